"""Support vector machines as heads: fitted to an embedding after it was learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC, LinearSVC

from divlearn.arrays import RealArray, to_host
from divlearn.iddl.losses import Head
from divlearn.kernels.coupling import Coupling

__all__ = ["HEADS", "Chosen", "Fold", "Machine", "Scorer", "choose_machine"]

HEADS = ("auto", "linear", "svm", "rbf")
_SHARPNESS = 10.0  # of decisions between pairs of classes
_ABSENT = -10.0  # score of a class that was not seen: far below the margin of -1


@dataclass(frozen=True, eq=False)
class GaussianHead:
    """Scores of a support vector machine with a Gaussian kernel, from decisions between pairs."""

    machine: SVC
    n_classes: int

    def scores(self, features: RealArray) -> RealArray:
        """Compute scores, shape (n_samples, n_classes)."""
        features = to_host(features)
        seen = self.machine.classes_
        found = Coupling(len(seen), _SHARPNESS).score(self.machine.decision_function(features))
        if len(seen) == 2:
            found = np.stack([-found, found], axis=1)
        scores = np.full((len(features), self.n_classes), found.min(axis=1, keepdims=True))
        scores[:, seen] = found
        return scores


Scorer = Head | GaussianHead


@dataclass(frozen=True)
class Machine:
    """Settings of a support vector machine.

    Attributes
    ----------
    kind : {"svm", "rbf"}
        Linear and one against the rest (liblinear), or Gaussian and one against one (libsvm).
    C : float
    width : float, of "rbf": gamma in units of one over the variance of all features together.
    """

    kind: str
    C: float
    width: float = 1.0

    def __str__(self) -> str:
        """Say it in words."""
        if self.kind == "svm":
            return f"a linear SVM with C={self.C:g}"
        return f"a Gaussian SVM with C={self.C:g} and a width of {self.width:g}"

    def fit(
        self, features: RealArray, codes: NDArray[np.intp], weights: RealArray, n_classes: int
    ) -> Scorer:
        """Fit to an embedding.

        Parameters
        ----------
        features : ndarray, shape (n_samples, n_features)
        codes : ndarray of int, shape (n_samples,)
        weights : ndarray, shape (n_samples,), with sum one.
        n_classes : int
        """
        present = np.unique(codes)
        if len(present) == 1:  # a fold of the commonest class: there is nothing to learn
            bias = np.full(n_classes, _ABSENT)
            bias[present] = 0
            return Head(np.zeros((n_classes, features.shape[1])), bias)
        shares = weights * len(weights)
        if self.kind == "svm":
            # The primal problem: liblinear draws no random numbers for it.
            linear = LinearSVC(C=self.C, dual=False, max_iter=5000)
            return _as_head(linear.fit(features, codes, shares), n_classes)
        variance = max(float(features.var(axis=0).sum()), np.finfo(float).tiny)
        machine = SVC(C=self.C, gamma=self.width / variance, decision_function_shape="ovo")
        return GaussianHead(machine.fit(features, codes, shares), n_classes)


def machines(kind: str) -> Iterator[Machine]:
    """Machines of a kind to choose from."""
    if kind == "svm":
        return (Machine(kind, C) for C in (0.01, 0.1, 1.0, 10.0))
    return (Machine(kind, C, width) for C, width in product((1.0, 10.0), (0.3, 1.0)))


Fold = tuple[RealArray, NDArray[np.intp], RealArray, RealArray]


@dataclass(frozen=True, eq=False)
class Chosen:
    """A machine, and its scores of what folds hold out, with their loss."""

    machine: Machine
    scores: RealArray
    loss: float


def choose_machine(
    kind: str, folds: Sequence[Fold], n_classes: int, loss: Callable[[RealArray], float]
) -> Chosen:
    """Choose the machine of a kind that does best on data held out.

    Parameters
    ----------
    kind : {"svm", "rbf"}
    folds : sequence of (features, codes, weights, features held out)
    n_classes : int
    loss : callable
        From the scores of what is held out, one fold after the other, to a number.
    """
    tried = []
    for machine in machines(kind):
        scores = np.concatenate([
            machine.fit(seen, codes, weights, n_classes).scores(unseen)
            for seen, codes, weights, unseen in folds
        ])  # fmt: skip
        tried.append(Chosen(machine, scores, loss(scores)))
    return min(tried, key=lambda one: one.loss)


def _as_head(machine: LinearSVC, n_classes: int) -> Head:
    weights, bias = machine.coef_, machine.intercept_
    if len(machine.classes_) == 2:
        weights, bias = np.concatenate([-weights, weights]), np.concatenate([-bias, bias])
    all_weights = np.zeros((n_classes, weights.shape[1]))
    all_bias = np.full(n_classes, _ABSENT)
    all_weights[machine.classes_], all_bias[machine.classes_] = weights, bias
    return Head(all_weights, all_bias)
