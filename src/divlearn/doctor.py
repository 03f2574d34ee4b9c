"""Diagnosis of matrices and labels: every problem at once, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn import tolerances
from divlearn.arrays import RealArray
from divlearn.checks import check_sortable
from divlearn.datasets.dataset import find_copies
from divlearn.spd import find_not_definite

__all__ = ["Diagnosis", "Finding", "examine"]

Indices = NDArray[np.intp]

_ILL_CONDITIONED = 1e10
_MANY_UNITS = 1e6  # ratio of traces
_SHOWN = 8
_TROUBLES = {
    "not finite": (
        "NaN or infinite entries", "drop these matrices, or find out where the values come from",
    ),
    "asymmetric": (
        "entries differ from those across the diagonal by more than rounding",
        "symmetrize: X = (X + X.transpose(0, 2, 1)) / 2, if they are meant to be covariances",
    ),
    "indefinite": (
        "negative eigenvalues",
        "these are no covariances: look at how they are made, or repair them with clip",
    ),
    "rank-deficient": (
        "some eigenvalues are zero",
        "take more samples per covariance, drop features that depend on others, or repair them "
        "with shrink",
    ),
}  # fmt: skip
_ADVICE_CONDITION = (
    "results are exact but ten times slower, and the smallest eigenvalues are mostly noise: "
    "consider shrinkage"
)
_ADVICE_UNITS = (
    "bring matrices that are measured in different units to the same; where scale means nothing, "
    "divide each by its trace"
)
_BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class Finding:
    """One kind of trouble.

    Attributes
    ----------
    kind : str
    severe : bool, whether nothing can be computed until it is dealt with.
    indices : ndarray of int, the matrices that have it.
    text : str, what it is.
    advice : str, what to do.
    """

    kind: str
    severe: bool
    indices: Indices
    text: str
    advice: str


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `examine` found.

    Attributes
    ----------
    n_matrices, size : int
    findings : tuple of Finding, the severe ones first.
    condition : ndarray, ratio of the largest to the smallest eigenvalue of each matrix, NaN where
        it is not SPD.
    classes : dict, the number of matrices of each class; empty without labels.
    """

    n_matrices: int
    size: int
    findings: tuple[Finding, ...]
    condition: RealArray
    classes: dict[str, int]

    @property
    def healthy(self) -> bool:
        """Whether nothing severe was found."""
        return not any(finding.severe for finding in self.findings)

    def summary(self) -> str:
        """Summarise the diagnosis in one sentence."""
        what = f"{self.n_matrices} matrices of size {self.size}"
        if self.classes:
            what += f", {len(self.classes)} class{'es' * (len(self.classes) > 1)}"
        if not self.findings:
            return f"{what}: no problems found; condition numbers {self._span()}."
        severe = sum(finding.severe for finding in self.findings)
        if severe:
            kinds = ", ".join(one.kind for one in self.findings if one.severe)
            return f"{what}: not usable as they are ({kinds})."
        kinds = ", ".join(finding.kind for finding in self.findings)
        return f"{what}: usable, but look at: {kinds}. Condition numbers {self._span()}."

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.summary())}</p>"

    def _span(self) -> str:
        known = self.condition[np.isfinite(self.condition)]
        return f"{known.min():.3g} to {known.max():.3g}, median {np.median(known):.3g}"


def examine(X: ArrayLike, y: ArrayLike | None = None) -> Diagnosis:
    """Look for everything that could be wrong with matrices and their labels.

    Unlike `divlearn.check_spd` it does not stop at the first matrix that is no SPD matrix.

    Parameters
    ----------
    X : array-like of real numbers, shape (n_matrices, d, d)
    y : array-like, shape (n_matrices,), optional

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> X = np.stack([np.eye(2), np.ones((2, 2)), np.eye(2)])
    >>> found = examine(X, ["a", "a", "b"])
    >>> print(found.summary())
    3 matrices of size 2, 2 classes: not usable as they are (rank-deficient).
    >>> [(one.kind, one.indices.tolist()) for one in found.findings]
    [('rank-deficient', [1]), ('copies under different labels', [0, 2]), ('classes of one', [2])]
    """
    matrices = np.asarray(X)
    if matrices.dtype.kind not in "biuf" or matrices.ndim != 3:
        raise ValueError(
            f"X has shape {matrices.shape} and dtype {matrices.dtype}, must be real numbers of "
            "shape (n_matrices, d, d)"
        )
    if matrices.shape[1] != matrices.shape[2] or not matrices.size:
        raise ValueError(f"X has shape {matrices.shape}, must hold square matrices; pass some")
    labels = None if y is None else np.asarray(y)
    if labels is not None and labels.shape != (len(matrices),):
        raise ValueError(f"y has shape {labels.shape}, must have ({len(matrices)},)")
    if labels is not None:
        check_sortable(labels, "y")
    spectra, findings = _look_at_matrices(matrices)
    with np.errstate(divide="ignore", invalid="ignore"):
        condition: RealArray = spectra[:, -1] / spectra[:, 0]
    findings += _look_at_spread(matrices, condition)
    findings += _look_at_copies(matrices, labels)
    classes: dict[str, int] = {}
    if labels is not None:
        names, counts = np.unique(labels, return_counts=True)
        classes = dict(zip(map(str, names), counts.tolist(), strict=True))
        findings += _look_at_classes(labels, names, counts)
    ordered = sorted(findings, key=lambda finding: not finding.severe)
    return Diagnosis(len(matrices), matrices.shape[-1], tuple(ordered), condition, classes)


def _look_at_matrices(matrices: NDArray[Any]) -> tuple[RealArray, list[Finding]]:
    """Eigenvalues, NaN where a matrix is not SPD, and what is wrong with those."""
    n, d = matrices.shape[:2]
    spectra, ranks = np.full((n, d), np.nan), []
    found: dict[str, list[int]] = {kind: [] for kind in _TROUBLES}
    relative = tolerances.asymmetry(np.float32 if matrices.dtype.itemsize < 8 else np.float64)
    step = max(1, _BLOCK_ENTRIES // d**2)
    for start in range(0, n, step):
        block = matrices[start : start + step].astype(np.float64)
        finite = np.isfinite(block).all(axis=(1, 2))
        block[~finite] = np.eye(d)
        gaps = np.abs(block - block.mT).max(axis=(1, 2))
        skew = gaps > relative * np.abs(block).max(axis=(1, 2))
        block[skew] = np.eye(d)  # what is not symmetric is neither definite nor indefinite
        symmetric = 0.5 * (block + block.mT)
        bad = find_not_definite(symmetric, tolerances.positive_definite(d))
        values = np.linalg.eigvalsh(symmetric)
        rounding = d * np.finfo(np.float64).eps * np.abs(values).max(axis=1)
        negative = bad[values[bad, 0] < -rounding[bad]]
        deficient = np.setdiff1d(bad, negative)
        ranks += (values > rounding[:, None]).sum(axis=1)[deficient].tolist()
        rows = (np.flatnonzero(~finite), np.flatnonzero(skew), negative, deficient)
        for kind, which in zip(_TROUBLES, rows, strict=True):
            found[kind] += (start + which).tolist()
        usable = np.setdiff1d(np.flatnonzero(finite & ~skew), bad)
        spectra[start + usable] = values[usable]
    findings = [
        _make(kind, rows, *_TROUBLES[kind], severe=True) for kind, rows in found.items() if rows
    ]
    if ranks:
        span = f"rank {min(ranks)}" + f" to {max(ranks)}" * (max(ranks) > min(ranks))
        findings[-1] = replace(findings[-1], text=f"{span} of {d}, {findings[-1].text}")
    return spectra, findings


def _look_at_spread(matrices: NDArray[Any], condition: RealArray) -> list[Finding]:
    findings = []
    ill = np.flatnonzero(condition > _ILL_CONDITIONED)
    if ill.size:
        text = f"condition numbers up to {condition[ill].max():.2g}"
        findings.append(_make("ill-conditioned", ill, text, _ADVICE_CONDITION))
    traces = np.trace(matrices, axis1=1, axis2=2).astype(np.float64)
    known = traces[np.isfinite(condition)]
    if known.size and known.max() > _MANY_UNITS * known.min():
        far = np.flatnonzero(traces * _MANY_UNITS**0.5 < known.max())
        text = f"traces from {known.min():.2g} to {known.max():.2g}"
        findings.append(_make("different units", far, text, _ADVICE_UNITS))
    return findings


def _look_at_copies(matrices: NDArray[Any], labels: NDArray[Any] | None) -> list[Finding]:
    clashes: list[tuple[int, ...]] = []
    plain: list[tuple[int, ...]] = []
    for rows in find_copies(matrices):
        clash = labels is not None and len(set(labels[list(rows)].tolist())) > 1
        (clashes if clash else plain).append(rows)
    findings = []
    if clashes:
        text = f"{_count(clashes)} there more than once, with different labels"
        advice = "at most one label can be right: drop the others"
        findings.append(
            _make("copies under different labels", np.concatenate(clashes), text, advice)
        )
    if plain:
        text = f"{_count(plain)} there more than once"
        advice = "drop copies: one in training and one in test makes a test too easy"
        findings.append(_make("copies", np.concatenate(plain), text, advice))
    return findings


def _count(copies: list[tuple[int, ...]]) -> str:
    return "1 matrix is" if len(copies) == 1 else f"{len(copies)} matrices are"


def _look_at_classes(
    labels: NDArray[Any], names: NDArray[Any], counts: NDArray[np.intp]
) -> list[Finding]:
    if len(names) == 1:
        text = f"all are of the class {names[0]}"
        advice = "nothing can be told apart; pass more classes, or no labels"
        return [_make("one class", np.arange(len(labels)), text, advice)]
    single = np.flatnonzero(np.isin(labels, names[counts == 1]))
    if not single.size:
        return []
    text = f"{len(single)} of {len(names)} classes have one matrix"
    advice = "such a class cannot be both learned and tested; drop it or find more of it"
    return [_make("classes of one", single, text, advice)]


def _make(kind: str, indices: Any, text: str, advice: str, *, severe: bool = False) -> Finding:
    rows = np.asarray(indices, dtype=np.intp)
    shown = ", ".join(map(str, rows[:_SHOWN])) + ", ..." * (rows.size > _SHOWN)
    return Finding(kind, severe, rows, f"{text} (matrices {shown})", advice)
