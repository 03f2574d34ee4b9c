"""Diagnosis of matrices and labels: all problems at once, each with advice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn import tolerances
from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import check_sortable
from divlearn.datasets.dataset import find_copies
from divlearn.fitting.targets import find_fractions
from divlearn.judge.answer import Summarised
from divlearn.spd import CANCELLING, find_not_definite, rows_cancel
from divlearn.text import counted

_ILL_CONDITIONED = 1e10
_UNIT_RATIO = 1e6  # of traces
_EXPLAINED = 1e-3  # of condition numbers, which are due to units if these explain so much
_N_SHOWN = 8
_DEFECTS = {  # kind: (text, advice)
    "not finite": (
        "NaN or infinite entries",
        "drop these matrices, or fix the computation they come from",
    ),
    "asymmetric": (
        "entries differ from those across the diagonal by more than rounding",
        "symmetrize: X = (X + X.transpose(0, 2, 1)) / 2, if they are meant to be covariances",
    ),
    "indefinite": (
        "negative eigenvalues",
        "these are not covariances: check how they are computed",
    ),
    "rank-deficient": (
        "some eigenvalues are zero",
        'take more samples per covariance, drop dependent features, or pass regularize="shrink"',
    ),
}
_ADVICE_CANCELLING = f'{CANCELLING} or pass regularize="shrink"'
_ADVICE_CONDITION = (
    "results are exact but ten times slower, and the smallest eigenvalues are mostly noise; "
    'consider regularize="shrink"'
)
_ADVICE_CHANNELS = (
    "convert all channels to the same unit, such as EEG and EOG to microvolts; AIRM and all other "
    'alpha-beta divergences do not change by that, but regularize="shrink" would bury small ones'
)
_ADVICE_UNITS = (
    "convert all matrices to the same units; if scale has no meaning, divide each by its trace"
)
_BLOCK_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class Finding:
    """One kind of problem.

    Attributes
    ----------
    kind, text, advice : str, its name, a description, and how to fix it.
    severe : bool, whether the matrices cannot be used before it is fixed.
    indices : ndarray of int, the matrices concerned.
    """

    kind: str
    severe: bool
    indices: Indices
    text: str
    advice: str


@dataclass(frozen=True, eq=False)
class Diagnosis(Summarised):
    """Result of `examine`.

    Attributes
    ----------
    n_matrices, size : int
    findings : tuple of Finding, the severe ones first.
    condition : ndarray, condition number of each matrix, NaN if it is not SPD.
    classes : dict, the number of matrices of each class; empty without labels.
    """

    n_matrices: int
    size: int
    findings: tuple[Finding, ...]
    condition: RealArray
    classes: dict[str, int]

    @property
    def healthy(self) -> bool:
        """Whether no severe problem was found."""
        return not any(finding.severe for finding in self.findings)

    def summary(self) -> str:
        """Summarise the diagnosis in one sentence."""
        text = f"{counted(self.n_matrices, 'matrices')} of size {self.size}"
        if self.classes:
            text += f", {counted(len(self.classes), 'classes')}"
        listed = (finding for finding in self.findings if finding.severe or self.healthy)
        kinds = ", ".join(finding.kind for finding in listed)
        if not self.healthy:
            return f"{text}: not usable as they are ({kinds})."
        condition = self.condition[~np.isnan(self.condition)]
        median = np.median(condition)
        span = f"{condition.min():.3g} to {condition.max():.3g}, median {median:.3g}"
        if not kinds:
            return f"{text}: no problems found; condition numbers {span}."
        return f"{text}: usable, but look at: {kinds}. Condition numbers {span}."


def examine(X: ArrayLike, y: ArrayLike | None = None) -> Diagnosis:
    """Find all problems of matrices, shape (n_matrices, d, d), and their labels, (n_matrices,).

    Unlike `divlearn.check_spd` it does not stop at the first matrix that is not SPD.

    Examples
    --------
    >>> X = np.stack([np.eye(2), np.ones((2, 2)), np.eye(2)])
    >>> diagnosis = examine(X, ["a", "a", "b"])
    >>> print(diagnosis.summary())
    3 matrices of size 2, 2 classes: not usable as they are (rank-deficient).
    >>> [(finding.kind, finding.indices.tolist()) for finding in diagnosis.findings]
    [('rank-deficient', [1]), ('copies under different labels', [0, 2]), ('classes of one', [2])]
    """
    matrices = np.asarray(X)
    square = matrices.ndim == 3 and matrices.shape[1] == matrices.shape[2] and matrices.size
    if matrices.dtype.kind not in "biuf" or not square:
        raise ValueError(
            f"X has shape {matrices.shape} and dtype {matrices.dtype}, must be real numbers of "
            "shape (n_matrices, d, d); pass at least one square matrix"
        )
    labels = None if y is None else np.asarray(y)
    if labels is not None:
        if labels.shape != (len(matrices),):
            raise ValueError(f"y has shape {labels.shape}, must have ({len(matrices)},)")
        check_sortable(labels, "y")
    condition, findings = _examine_spectra(matrices)
    findings += _examine_spread(matrices, condition)
    findings += _examine_copies(matrices, labels)
    classes: dict[str, int] = {}
    if labels is not None:
        names, counts = np.unique(labels, return_counts=True)
        found = _examine_classes(labels, names, counts)
        findings += found
        if not any(finding.kind == "numbers" for finding in found):
            classes = dict(zip(map(str, names), counts.tolist(), strict=True))
    ordered = sorted(findings, key=lambda finding: not finding.severe)
    return Diagnosis(len(matrices), matrices.shape[-1], tuple(ordered), condition, classes)


def _examine_spectra(matrices: RealArray) -> tuple[RealArray, list[Finding]]:
    """Return condition numbers, NaN if a matrix is not SPD, and findings of these matrices."""
    n, d = matrices.shape[:2]
    condition, ranks, cancelling = np.full(n, np.nan), [], []
    rows_by_kind: dict[str, list[int]] = {kind: [] for kind in _DEFECTS}
    single = matrices.dtype.kind == "f" and matrices.dtype.itemsize < 8
    precision = np.float32 if single else np.float64  # to which the entries are rounded
    relative = tolerances.asymmetry(precision)
    zero = tolerances.positive_definite(d, precision)
    step = max(1, _BLOCK_ENTRIES // d**2)
    for start in range(0, n, step):
        block = matrices[start : start + step].astype(np.float64)
        finite = np.isfinite(block).all(axis=(1, 2))
        block[~finite] = np.eye(d)
        gaps = np.abs(block - block.mT).max(axis=(1, 2))
        skew = gaps > relative * np.abs(block).max(axis=(1, 2))
        block[skew] = np.eye(d)  # an asymmetric matrix is neither definite nor indefinite
        symmetric = 0.5 * (block + block.mT)
        bad = find_not_definite(symmetric, zero)
        values = np.linalg.eigvalsh(symmetric)
        rounding = zero * np.abs(values).max(axis=1)
        negative = bad[values[bad, 0] < -rounding[bad]]
        deficient = np.setdiff1d(bad, negative)
        ranks += (values > rounding[:, None]).sum(axis=1)[deficient].tolist()
        cancelling += rows_cancel(symmetric[deficient].astype(precision)).tolist()
        defective = (np.flatnonzero(~finite), np.flatnonzero(skew), negative, deficient)
        for kind, rows in zip(_DEFECTS, defective, strict=True):
            rows_by_kind[kind] += (start + rows).tolist()
        usable = np.setdiff1d(np.flatnonzero(finite & ~skew), bad)
        with np.errstate(divide="ignore"):  # the smallest eigenvalue may be rounded to zero
            condition[start + usable] = values[usable, -1] / np.maximum(values[usable, 0], 0.0)
    findings = [
        _make_finding(kind, indices, *_DEFECTS[kind], severe=True)
        for kind, indices in rows_by_kind.items()
        if indices
    ]
    if ranks:
        span = f"rank {min(ranks)}" + f" to {max(ranks)}" * (max(ranks) > min(ranks))
        findings[-1] = replace(findings[-1], text=f"{span} of {d}, {findings[-1].text}")
        if set(ranks) == {d - 1} and all(cancelling):
            findings[-1] = replace(findings[-1], advice=_ADVICE_CANCELLING)
    return condition, findings


def _examine_spread(matrices: RealArray, condition: RealArray) -> list[Finding]:
    findings = []
    ill = np.flatnonzero(condition > _ILL_CONDITIONED)
    if ill.size:
        variances = np.einsum("nii->ni", matrices[~np.isnan(condition)]).astype(np.float64)
        usual = np.median(variances, axis=0)
        mixed = ill[_are_tame(matrices[ill], condition[ill], usual)]
        if mixed.size:
            text = f"usual variances of channels from {usual.min():.2g} to {usual.max():.2g}"
            kind = "channels in different units"
            findings.append(_make_finding(kind, mixed, text, _ADVICE_CHANNELS))
        ill = np.setdiff1d(ill, mixed)
    if ill.size:
        text = f"condition numbers up to {condition[ill].max():.2g}"
        findings.append(_make_finding("ill-conditioned", ill, text, _ADVICE_CONDITION))
    traces = np.trace(matrices, axis1=1, axis2=2).astype(np.float64)
    definite = traces[np.isfinite(condition)]
    if definite.size and definite.max() > _UNIT_RATIO * definite.min():
        usual, factor = np.median(definite), _UNIT_RATIO**0.5
        unusual = (traces > factor * usual) | (factor * traces < usual)
        odd = np.flatnonzero(np.isfinite(condition) & unusual)
        text = f"traces from {definite.min():.2g} to {definite.max():.2g}"
        findings.append(_make_finding("different units", odd, text, _ADVICE_UNITS))
    return findings


def _are_tame(matrices: RealArray, condition: RealArray, variances: RealArray) -> NDArray[np.bool_]:
    """Whether ill-conditioned matrices are not, once channels are divided by their usual size."""
    scales = np.sqrt(variances)
    scaled = np.linalg.cond(matrices / scales[:, None] / scales)
    return (scaled < _ILL_CONDITIONED) & (scaled < _EXPLAINED * condition)


def _examine_copies(matrices: RealArray, labels: Labels | None) -> list[Finding]:
    contradicting: list[tuple[int, ...]] = []
    agreeing: list[tuple[int, ...]] = []
    for rows in find_copies(matrices):
        differ = labels is not None and len(set(labels[list(rows)].tolist())) > 1
        (contradicting if differ else agreeing).append(rows)
    findings = []
    if contradicting:
        text = f"{len(contradicting)} repeated with different labels"
        advice = "at most one label can be right: drop the others"
        kind, copies = "copies under different labels", np.concatenate(contradicting)
        findings.append(_make_finding(kind, copies, text, advice))
    if agreeing:
        advice = "drop copies: with one in training and one in test data a test is too easy"
        copies, text = np.concatenate(agreeing), f"{len(agreeing)} repeated"
        findings.append(_make_finding("copies", copies, text, advice))
    return findings


def _examine_classes(labels: Labels, names: Labels, counts: Indices) -> list[Finding]:
    if len(names) == 1:
        text, advice = f"all are of class {names[0]}", "pass more classes, or no labels"
        return [_make_finding("one class", np.arange(len(labels)), text, advice)]
    if len(rows := find_fractions(labels)):
        text = f"labels hold {labels[rows[0]]:g}, which classifiers refuse"
        advice = "predict such numbers with a regressor, such as SPDRegressor, or pass text"
        return [_make_finding("numbers", rows, text, advice)]
    single = np.flatnonzero(np.isin(labels, names[counts == 1]))
    if not single.size:
        return []
    text = f"{len(single)} of {len(names)} classes have one matrix"
    advice = "such a class cannot be both learned and tested; drop it or add matrices"
    return [_make_finding("classes of one", single, text, advice)]


def _make_finding(
    kind: str, indices: ArrayLike, text: str, advice: str, *, severe: bool = False
) -> Finding:
    rows = np.asarray(indices, dtype=np.intp)
    shown = ", ".join(map(str, rows[:_N_SHOWN])) + ", ..." * (rows.size > _N_SHOWN)
    return Finding(kind, severe, rows, f"{text} (matrices {shown})", advice)
