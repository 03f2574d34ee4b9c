"""IDDL as a classifier."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin, clone

from divlearn.arrays import RealArray
from divlearn.engines import Engine
from divlearn.iddl.calibration import fit_temperature
from divlearn.iddl.goals import classes_goal
from divlearn.iddl.learning import Learned
from divlearn.iddl.losses import SoftmaxLoss
from divlearn.iddl.online import Lesson
from divlearn.iddl.streaming import StreamingBase
from divlearn.labelled import Labelled, all_or_nothing, check_labelled
from divlearn.sharded.opening import is_sharded
from divlearn.sharded.scoring import ScoreMixin

__all__ = ["IDDLClassifier"]

_FEWEST = 64  # matrices to choose a temperature by


class IDDLClassifier(ScoreMixin, ClassifierMixin, StreamingBase):  # type: ignore[misc]
    r"""Classify SPD matrices by divergences to atoms, all learned together.

    A matrix is encoded by its divergences to atoms, each with an (alpha, beta) of its own,

    .. math:: v_k = D^{(\alpha_k, \beta_k)}(X \,\|\, B_k) ,

    and a linear head on features of v predicts. Atoms, parameters and head minimise
    :math:`\sum_i w_i \ell(W \phi(v_i) + b, y_i) + \gamma \|W\|_F^2`. Atoms easily fit noise, so by
    default learning is stopped early by data held out, and the models of several folds are
    averaged.

    Parameters
    ----------
    n_atoms : int or str, default="auto"
        Number of atoms, in all or as in "5 per class". "auto" is 5 per class, fewer where there are
        more than 30 classes.
    variant : str or (alpha, beta), default="free"
        What is learned of the divergences: "free" (the paper's N), "tied" (alpha = beta, V),
        "shared" (one pair for all atoms, S); or a fixed one by name or parameters ("A" is AIRM, "B"
        the paper's "Burg", (1, 1)).
    pairs : "auto", "grid" or sequence of (alpha, beta)
        Where the parameters start; several give each atom as many divergences, at the price of one
        spectrum. "auto" is (1, 1), (0, 1), (1, 0); "grid" is the one point of a grid that does best
        on data held out, before atoms move.
    loss : {"auto", "ridge", "hinge", "softmax"}, default="auto"
        "auto" takes softmax or ridge, whichever does better on data held out.
    gamma : float or "auto"
        Penalty on the head; "auto" chooses by data held out.
    logarithm, standardize : bool, default=True
        Whether features are log(v + c), and standardised.
    tangent : bool or "auto"
        Whether components of the tangent space at the mean stand beside the divergences.
    bias : bool, default=True
    margin : float, default=1.0
        Of the hinge.
    solver : {"joint", "bcd", "stochastic"}, default="joint"
        All at once by L-BFGS in moving frames, the paper's block-coordinate descent, or Riemannian
        Adam on minibatches, for very many matrices.
    init : {"class-kmeans", "kmeans", "samples", "identity"} or array of atoms
        Where the atoms start.
    learn_atoms, learn_parameters : bool, default=True
    max_iter : int, default=30
    tol : float, default=1e-5
    ensemble : int, splitter or None, default=4
        Folds: as many models, each stopped by the fold it has not seen. None trains one model on
        everything for ``max_iter`` iterations.
    head : {"auto", "linear", "svm", "rbf"}, default="auto"
        What predicts from the features in the end: the linear head they were learned with, or a
        support vector machine fitted to them afterwards, linear (liblinear; the paper's extra step)
        or Gaussian. "auto" takes "linear" or "rbf", whichever does better on data held out; where
        one model is trained on everything, "linear".
    warm_start : bool, default=False
        Whether `fit` goes on from the atoms and divergences of the last one. With several models,
        data and ``random_state`` must be the same, or models have seen what is held out from them.
    class_weight : dict, "balanced" or None
    random_state : int, RandomState or None
    engine : str or Engine, default="auto"
    verbose : int, default=0
    checkpoint : str, path-like or None, default=None
        File that `fit` keeps its progress in, at most every five seconds. After a kill the same
        call, with the same data and parameters, goes on from there and ends with the same model;
        others are refused. The file is removed at the end, and stays after Ctrl-C, which gives the
        best model so far: a new `fit` goes on.

    Attributes
    ----------
    classes_ : ndarray
    atoms_, alpha_, beta_ : ndarray, of all models one after the other.
    models_ : list, what is averaged.
    recipe_ : the loss, penalty and features that were chosen.
    head_ : {"linear", "svm", "rbf"}
    temperature_ : float, by which scores are divided to be calibrated.
    oof_proba_ : ndarray, shape (n_matrices, n_classes)
        Probabilities of the training matrices by models that have not seen them; where one model
        is trained on everything, by its start. NaN for what no fold holds out.
    n_iter_ : int, the iteration the models were taken from; of a stream, the number of batches.
    message_ : str, why learning stopped.
    history_ : dict of arrays, one row per iteration, per block of `solver="bcd"`, or per batch of a
        stream. An ensemble adds "model", the number of the model of every row, and "held_out_loss",
        one entry per iteration.
    n_features_in_ : int, size of the matrices.
    n_samples_seen_ : int, matrices that were learned from.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, separation=4, random_state=0)
    >>> classifier = IDDLClassifier(random_state=0).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.8)
    True
    """

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        variant: str | tuple[float, float] = "free",
        pairs: Any = "auto",
        loss: str = "auto",
        gamma: float | str = "auto",
        logarithm: bool = True,
        standardize: bool = True,
        tangent: bool | str = "auto",
        bias: bool = True,
        margin: float = 1.0,
        solver: str = "joint",
        init: str | ArrayLike = "class-kmeans",
        learn_atoms: bool = True,
        learn_parameters: bool = True,
        max_iter: int = 30,
        tol: float = 1e-5,
        ensemble: Any = 4,
        head: str = "auto",
        warm_start: bool = False,
        class_weight: Any = None,
        random_state: int | np.random.RandomState | None = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            n_atoms, variant=variant, pairs=pairs, loss=loss, gamma=gamma, logarithm=logarithm,
            standardize=standardize, tangent=tangent, bias=bias, margin=margin, solver=solver,
            init=init, learn_atoms=learn_atoms, learn_parameters=learn_parameters,
            max_iter=max_iter, tol=tol, ensemble=ensemble, head=head, warm_start=warm_start,
            random_state=random_state, engine=engine, verbose=verbose, checkpoint=checkpoint,
        )  # fmt: skip
        self.class_weight = class_weight

    @classmethod
    def paper(cls, variant: str = "N", loss: str = "ridge") -> Self:
        """Make a classifier set up as in the paper.

        Plain divergences as features, five atoms per class from log-Euclidean k-means, one pair per
        atom from a grid search, block-coordinate descent, one model, no early stopping; gamma is
        chosen by cross-validation on the training data.

        Parameters
        ----------
        variant : {"S", "V", "N", "A", "B"}, default="N"
        loss : {"ridge", "hinge"}, default="ridge"

        Examples
        --------
        >>> IDDLClassifier.paper("V").set_params(solver="joint").variant
        'V'
        """
        return cls(
            "5 per class", variant=variant, pairs="grid", loss=loss, logarithm=False,
            standardize=False, tangent=False, bias=loss != "ridge", solver="bcd", init="kmeans",
            max_iter=10, ensemble=None,
        )  # fmt: skip

    @all_or_nothing
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Learn atoms, divergences and head.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards
            What `divlearn.sharded.open_shards` takes: a Dask array, files and so on, which are
            learned from where they are. Then ``ensemble`` must be None, ``loss`` and ``gamma`` must
            be given, ``tangent="auto"`` stands for False, and `oof_proba_` is empty. Atoms start
            from, and `temperature_` is chosen by, a sample of 10,000 matrices.
        y : array-like, shape (n_matrices,), or shards likewise; None for opened shards
        sample_weight : array-like, shape (n_matrices,), optional
        groups : array-like, shape (n_matrices,), optional
            What belongs together, as patches of one image do, and must not be split by a fold.

        Returns
        -------
        self
        """
        if is_sharded(X, self.engine):
            from divlearn.sharded.learning import fit_classes

            fit_classes(self, self._open_shards(X, y, sample_weight))
            return self
        self._fit_labelled(check_labelled(X, y, sample_weight, self.class_weight, groups))
        return self

    def fit_members(self, data: Labelled) -> dict[str, Self]:
        """Fit, and make a classifier of each kind that was tried on the way.

        Parameters
        ----------
        data : Labelled

        Returns
        -------
        dict of classifiers
            By the names of head and loss, as "linear softmax"; "start softmax" has a linear head on
            the first atoms and divergences.
        """
        members = {}
        for learned in self._fit_labelled(data):
            name = learned.recipe.loss.name
            members[f"{learned.head} {name}"] = self._member(learned, data)
            if learned.head == "linear" and learned.start is not None:
                members[f"start {name}"] = self._member(learned.start, data)
        return members

    def _fit_labelled(self, data: Labelled) -> list[Learned]:
        given = {"X": data.matrices, "y": data.codes, "weights": data.weights}
        with self._checkpointed(**given, groups=data.kept_groups):
            folds = data.folds(self._cv(), self._seed(), "ensemble")
            goal = classes_goal(data.codes, data.weights / data.weights.sum(), folds)
            learned = self._fit(data.matrices, goal)
            self.classes_ = data.classes
            self._calibrate(min(learned, key=lambda one: one.loss), data)
            return learned

    def _member(self, learned: Learned, data: Labelled) -> Self:
        member: Self = clone(self)
        member.classes_, member.n_features_in_ = self.classes_, self.n_features_in_
        member.n_samples_seen_ = self.n_samples_seen_
        member._keep(learned)
        member._calibrate(learned, data)
        return member

    def _calibrate(self, learned: Learned, data: Labelled) -> None:
        rows, scores = learned.rows, learned.scores
        self.temperature_ = 1.0
        self.oof_proba_ = np.full((len(data.y), len(self.classes_)), np.nan)
        if len(rows):
            share = data.weights[rows] / data.weights[rows].sum()
            self.temperature_, _ = fit_temperature(scores, data.codes[rows], share)
            self.oof_proba_ = data.spread(rows, softmax(scores / self.temperature_, axis=1))

    @all_or_nothing
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Learn from a batch of a stream: of data too large for memory, or yet to come.

        The first batch gives the atoms, the features and a head, so it should hold all classes and
        not be too small. Each batch, the first too, is then gone through once in minibatches of 64:
        atoms and divergences take steps of Riemannian Adam, the head takes parts of Newton steps,
        all shorter and shorter, so that long streams converge. Batches are best well mixed; of
        classes that come one after the other the last are remembered.

        There is one model, whatever ``ensemble`` is, and ``max_iter``, ``tol`` and ``solver`` have
        no say. What `fit` chooses by data held out is not chosen: "auto" stands for softmax, a
        gamma of 1e-3, no tangent block and a linear head, "grid" for (1, 1). Scores are calibrated
        by the latest matrices as they were before these were learned from, and so are those of the
        batch in `oof_proba_`; there are none for a first batch.

        After `fit` a stream goes on from its model, or from the first of several; with a new head
        from the batch where that is a support vector machine, or where ``pairs`` have changed.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
        y : array-like, shape (n_matrices,)
        classes : array-like, shape (n_classes,)
            All there will be; required in the first call, unless after `fit`.
        sample_weight : array-like, shape (n_matrices,), optional

        Returns
        -------
        self

        Examples
        --------
        >>> from divlearn.datasets import make_wishart_clusters
        >>> X, y = make_wishart_clusters(3, 200, 4, separation=4, random_state=0)
        >>> classifier = IDDLClassifier(random_state=0)
        >>> for start in range(0, 500, 100):
        ...     batch = slice(start, start + 100)
        ...     classifier = classifier.partial_fit(X[batch], y[batch], classes=[0, 1, 2])
        >>> bool(classifier.score(X[500:], y[500:]) > 0.8)
        True
        """
        data = self._check_batch(X, y, classes, sample_weight, self.class_weight)
        targets = np.eye(len(data.classes))[data.codes]
        lesson = self._partial_fit(data.matrices, targets, data.weights, "softmax", data.codes)
        self.classes_ = data.classes
        self._calibrate_stream(lesson, data)
        return self

    def _calibrate_stream(self, lesson: Lesson, data: Labelled) -> None:
        recent, rows, scores = lesson.online.recent, lesson.rows, lesson.scores
        fitted = isinstance(self.recipe_.loss, SoftmaxLoss) and not recent.unseen
        if not recent.unseen:
            self.temperature_ = 1.0
            rows, scores = rows[:0], scores[:0]
        if len(recent.weights) >= _FEWEST and not fitted:
            share = recent.weights / recent.weights.sum()
            codes = recent.targets.argmax(axis=1)
            self.temperature_, _ = fit_temperature(recent.scores, codes, share)
        self.oof_proba_ = data.spread(rows, softmax(scores / self.temperature_, axis=1))

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Compute calibrated scores: their softmax is `predict_proba`.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices, n_classes), or (n_matrices,) for two classes
            Then the score of the second less that of the first.
        """
        scores = self._mean_scores(X) / self.temperature_
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Probabilities of the classes, shape (n_matrices, n_classes)."""
        result: RealArray = softmax(self._mean_scores(X) / self.temperature_, axis=1)
        return result

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable classes, shape (n_matrices,)."""
        chosen: NDArray[Any] = self.classes_[self._mean_scores(X).argmax(axis=1)]
        return chosen
