"""IDDL as a classifier, and as a regressor."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin

from divlearn.arrays import RealArray
from divlearn.checks import ClassWeight, RandomState, check_name
from divlearn.engines import Engine
from divlearn.fitting.calibration import calibrate, calibrate_by, log_softmax
from divlearn.fitting.folds import Splitter, split_by_fold
from divlearn.fitting.labelled import (
    Labelled,
    MatrixClassifierMixin,
    Numbered,
    label,
    number,
    takes_metric,
)
from divlearn.fitting.targets import check_numbers
from divlearn.heads.losses import LOSSES, RidgeLoss
from divlearn.iddl.atoms import Divergences, starts_from_grid
from divlearn.iddl.base import Recipe, is_loss, takes_loss
from divlearn.iddl.learning import Learned
from divlearn.iddl.predictor import IDDLPredictor, ScoreMixin
from divlearn.iddl.training import Task, sample_task
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Shards
from divlearn.sharded.targets import label_shards, number_shards


@takes_loss  # outermost: its warning names the line of the caller
@takes_metric
class IDDLClassifier(ScoreMixin, MatrixClassifierMixin, IDDLPredictor):
    r"""Classify SPD matrices by divergences to atoms, all learned together.

    A matrix is encoded by its divergences to atoms, each with an (alpha, beta) of its own,

    .. math:: v_k = D^{(\alpha_k, \beta_k)}(X \,\|\, B_k) ,

    and a linear model on :math:`\phi(v)`, the standardised logarithms of v, makes the prediction.
    Atoms, parameters and this head minimise
    :math:`\sum_i w_i \ell(W \phi(v_i) + b, y_i) + \gamma \|W\|_F^2` with :math:`\sum_i w_i = 1`.
    Atoms easily overfit. By default only a few steps optimise them, with penalties on the head and
    on the distance to their initial values. The penalty of the final head is chosen on held-out
    data. Predictions average the models of several folds: the learned models, the same models with
    the initial atoms, or both. Both are averaged unless one of the two has a held-out loss that is
    lower by more than one standard error. Regularised discriminant analyses of the same features
    and of log X are averaged with these linear models, unless they alone are clearly better on
    held-out data.

    Parameters
    ----------
    n_atoms : int or "auto", default="auto"
        "auto" is 3 per class, more if that is below 48 in all, fewer if there would be more than
        one for three matrices of a class or than 150 in all.
    divergence : str, pair, sequence of pairs, or Divergence, default="line"
        "line" gives every atom three divergences with alpha + beta = 1: (1/2, 1/2), (0, 1) and
        (1, 0). The head learns their weights. None needs eigenvalues, which makes learning several
        times faster. "learn" gives every atom three pairs (alpha, beta) to learn, which start at
        (1, 1), (0, 1) and (1, 0); a sequence of pairs gives other initial values. The paper's
        variants start at the best point of a grid: "S" learns one pair for all atoms, "V" one
        number alpha = beta for every atom, "N" one pair for every atom. A name or a pair fixes the
        divergence ("A" is AIRM, "B" the paper's "Burg", (1, 1)).
    rank : int, "full" or "auto", default="auto"
        Rank p of atoms. An atom of full rank is a whitening, :math:`D(X \| B) = D(V^T X V \| I)`
        with :math:`B = (V V^T)^{-1}`; one of rank p has V of shape (d, p). Beside the divergences,
        its features have the logarithm of the determinant of :math:`V^T X V`; with rank 1 and
        "line" they have it alone, as common spatial patterns do. "auto" averages models of full
        rank and of ranks 1 and 4, unless full rank alone predicts held-out data clearly better.
    recipe : Recipe, optional
        How to learn: loss, solver, initial atoms, penalty of the head; see `divlearn.iddl.Recipe`.
    cv : int, splitter, iterable of (train, test) indices or None, default=4
        Folds. One model is trained without each fold, and predictions average the models. None
        trains one model on all matrices, and so does any number of folds if nothing can be held
        out, because every class has only one matrix or group.
    max_iter : int or "auto", default="auto"
        Iterations of the solver. "auto" takes 10, and on a CPU 3 to 9 for atoms of full rank if
        the size of the data would need more than some minutes of a core. It takes none if models
        with the initial atoms make no error on 1,000 held-out matrices or more.
    class_weight : dict, "balanced" or None, multiplies sample weights; only ratios matter.
    random_state : int, RandomState or None
    engine : str or Engine, default="auto"
    n_jobs : int, optional
        Threads that train the models of folds, with an engine given by name; all by default, as
        with -1. The result is the same for any number.
    verbose : int, default=0, 1 prints progress, 2 every iteration as well.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray
    atoms_, alpha_, beta_ : ndarray, concatenated over the models.
    models_ : list of the averaged models: learned models, or those with the initial atoms.
    starts_ : list, models with the initial atoms
        Averaged with learned ones, or empty.
    vector_models_ : list, discriminants of log X and of the features of the models, or empty.
    loss_, penalty_ : the loss and the penalty that were chosen.
    temperature_ : float, divides the scores, so that probabilities are calibrated.
    oof_proba_ : ndarray, shape (n_matrices, n_classes)
        Probabilities of the training matrices by models that were trained without them; with
        cv=None, by the model with its initial atoms. All choices for a fold are made on the other
        folds. NaN for matrices that no fold holds out.
    n_iter_ : int, number of iterations; 0 if the initial atoms are kept.
    message_ : str, held-out losses and the choice among models, in a sentence.
    stop_reasons_ : list of str, why the solver stopped, for every model that was trained.
    history_ : dict of arrays, one row per iteration, or per block of `solver="bcd"`
        Several models add "model", the number of the model of every row, and "held_out_loss",
        before and after learning.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, separation=4, random_state=0)
    >>> classifier = IDDLClassifier(random_state=0).fit(X[::2], y[::2])
    >>> bool(classifier.score(X[1::2], y[1::2]) > 0.8)
    True
    """

    temperature_: float
    oof_proba_: Annotated[RealArray, "n_matrices n_classes"]
    _optimistic_proba: Annotated[RealArray, "n_matrices n_classes"]

    def __init__(
        self,
        n_atoms: int | str = "auto",
        *,
        divergence: Divergences = "line",
        rank: int | str = "auto",
        recipe: Recipe | None = None,
        cv: Splitter = 4,
        max_iter: int | str = "auto",
        class_weight: ClassWeight = None,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_atoms, self.divergence, self.rank = n_atoms, divergence, rank
        self.recipe, self.cv, self.max_iter, self.class_weight = recipe, cv, max_iter, class_weight
        self.random_state, self.engine, self.n_jobs = random_state, engine, n_jobs
        self.verbose, self.regularize = verbose, regularize

    @classmethod
    def paper(
        cls, divergence: str = "N", loss: str = "ridge", *, code: bool = False, **changes: Any
    ) -> Self:
        r"""Make a classifier set up as in the paper, or as in its authors' code.

        Both have five atoms per class, one model, and a loss with plain divergences as features;
        ridge has no bias. Both use block-coordinate descent: Riemannian conjugate gradients for
        each atom in turn, spectral projected gradients for alpha and beta, the closed form for the
        head. The paper starts from log-Euclidean k-means and a grid search of (alpha, beta), and
        chooses gamma by cross-validation, which here fits its models by the joint solver.

        The code of 2017 starts from random matrices of every class and (1, 1), has gamma = 10 and
        three iterations. It counts the penalty once beside the sum of the losses,
        :math:`\sum_i \frac{1}{2} \|h_i - W v_i\|^2 + \gamma \|W\|_F^2`, whose gamma is n times the
        one of this class.

        Parameters
        ----------
        divergence : {"S", "V", "N", "A", "B"}, default="N"
        loss : {"ridge", "hinge"}, default="ridge"
        code : bool, default=False
            Whether to follow the authors' code where the paper says otherwise.
        **changes
            Fields of the `Recipe` that are to differ, such as ``solver="joint"``.

        Examples
        --------
        >>> IDDLClassifier.paper("V").recipe.solver
        'bcd'
        >>> IDDLClassifier.paper("V", code=True).recipe.start
        (1.0, 1.0)
        """
        check_name(loss, "loss", LOSSES)
        plain = LOSSES[loss](bias=loss != "ridge", plain=True)
        recipe = Recipe(solver="bcd", loss=plain, init="kmeans", atoms_per_class=5, penalty="cv")
        if code:
            start = (1.0, 1.0) if starts_from_grid(divergence) else None
            recipe = replace(
                recipe, init="samples", start=start, penalty=10.0, penalty_per_matrix=True
            )
        return cls(
            divergence=divergence,
            rank="full",
            recipe=replace(recipe, **changes),
            cv=None,
            max_iter=3 if code else 10,
        )

    def _check_targets(self, block: Block, groups: ArrayLike | None) -> Labelled:
        return label(block.matrices, block.y, block.weights, self.class_weight, groups)

    def _sharded_task(self, shards: Shards, seeds: tuple[int, int]) -> Task:
        targets, sample, data = label_shards(shards, self.class_weight, self.engine, seeds[1])
        return sample_task(shards, targets, sample, data, data.folds(self._cv(), seeds[0]))

    def _set_held_out(self, learned: Learned, task: Task) -> None:
        """Fit the temperature, and turn held-out scores into probabilities."""
        data, rows = cast(Labelled, task.data), learned.choice.rows
        self.classes_, self.temperature_ = data.classes, 1.0
        self.oof_proba_ = np.full((len(data.y), len(self.classes_)), np.nan)
        self._optimistic_proba = self.oof_proba_
        if not len(rows):
            return
        codes, weights, parts = data.codes[rows], data.weights[rows], []
        _, self.temperature_ = calibrate(learned.choice.scores[..., None], codes, weights)
        for fold, ((_, held), choice) in enumerate(
            zip(task.folds, learned.fold_choices, strict=True)
        ):
            outside, scores = ~np.isin(rows, held), choice.scores[..., None]
            others = scores[outside], codes[outside], weights[outside]
            parts.append(calibrate_by(split_by_fold(scores, task.folds)[fold], *others))
        final = np.exp(log_softmax(learned.choice.scores / self.temperature_))
        self.oof_proba_, self._optimistic_proba = self._average_held_out(task, parts, final)
        if task.shards.whole is None:
            self.oof_proba_ = self.oof_proba_[:0]  # of a sample, not of X

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Compute calibrated scores, whose softmax is `predict_proba`.

        Their shape is (n_matrices, n_classes). For two classes, the result is the score of the
        second minus that of the first, shape (n_matrices,).
        """
        scores = self._scores(X) / self.temperature_
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Probabilities of the classes, shape (n_matrices, n_classes)."""
        return np.exp(log_softmax(self._scores(X) / self.temperature_))


@takes_metric
class IDDLRegressor(ScoreMixin, MultiOutputMixin, RegressorMixin, IDDLPredictor):  # type: ignore[misc]
    r"""Predict numbers from divergences to atoms, all learned together.

    Like `IDDLClassifier`, with half the squared error of one or several outputs as the loss. Each
    output is divided by its standard deviation. In place of discriminants there is a ridge
    regression on log X. Least squares on held-out data combine it with the models of each rank.

    Parameters
    ----------
    n_atoms : int or "auto"
        "auto" is 48, fewer for fewer than 144 matrices.
    divergence, rank, recipe, cv, max_iter, random_state, engine, n_jobs, verbose,
    regularize
        As in `IDDLClassifier`. The loss of the recipe is "auto", "ridge" or a `RidgeLoss`.

    Attributes
    ----------
    atoms_, alpha_, beta_, models_, starts_, loss_, penalty_, n_iter_, message_, history_,
    n_features_in_
        As in `IDDLClassifier`.
    vector_models_ : list with the ridge regression, or empty.
    oof_prediction_ : ndarray, shape of y
        Predictions of the training matrices by models that were trained without them, with all
        choices for a fold made on the other folds; see ``oof_proba_`` of `IDDLClassifier`.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> import numpy as np
    >>> X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    >>> y = np.linalg.slogdet(X)[1]
    >>> regressor = IDDLRegressor(random_state=0).fit(X[::2], y[::2])
    >>> bool(regressor.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    mean_: Annotated[RealArray, "n_outputs"]
    scale_: Annotated[RealArray, "n_outputs"]
    single_: bool
    oof_prediction_: RealArray
    _optimistic_prediction: RealArray

    def _check_parameters(self, *, in_memory: bool = True) -> None:
        super()._check_parameters(in_memory=in_memory)
        loss = self._recipe.loss
        if not (is_loss(loss, RidgeLoss) or loss in ("auto", "ridge")):
            raise ValueError(
                f"loss={loss!r} must be 'auto', 'ridge' or a RidgeLoss if y holds numbers"
            )

    def _check_targets(self, block: Block, groups: ArrayLike | None) -> Numbered:
        numbers = check_numbers(block.y, len(block))
        return number(block.matrices, numbers, block.weights, groups)

    def _sharded_task(self, shards: Shards, seeds: tuple[int, int]) -> Task:
        targets, sample, data = number_shards(shards, self.engine, seeds[1])
        return sample_task(shards, targets, sample, data, data.folds(self._cv(), seeds[0]))

    def _set_held_out(self, learned: Learned, task: Task) -> None:
        data = cast(Numbered, task.data)
        self.single_ = data.y.ndim == 1
        self.mean_, self.scale_ = np.atleast_1d(data.mean), np.atleast_1d(data.scale)
        self.oof_prediction_ = self._optimistic_prediction = np.full(data.y.shape, np.nan)
        if not len(learned.choice.rows):
            return
        parts = [split_by_fold(c.scores, task.folds)[k] for k, c in enumerate(learned.fold_choices)]
        averages = self._average_held_out(task, parts, learned.choice.scores)
        self.oof_prediction_, self._optimistic_prediction = map(self._restore, averages)
        if task.shards.whole is None:
            self.oof_prediction_ = self.oof_prediction_[:0]  # of a sample, not of X

    def _restore(self, scores: RealArray) -> RealArray:
        numbers: RealArray = scores * self.scale_ + self.mean_
        return numbers[:, 0] if self.single_ else numbers

    def predict(self, X: ArrayLike) -> RealArray:
        """Predict numbers, shape (n_matrices,) or (n_matrices, n_outputs)."""
        return self._restore(self._scores(X))
