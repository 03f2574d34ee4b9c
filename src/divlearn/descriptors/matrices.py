"""Transformers of matrices: `Regularize` and `BlockDiagonal`; and the repair of singular ones."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from divlearn import tolerances
from divlearn.arrays import Indices, RealArray, array_or_list
from divlearn.checks import is_number
from divlearn.fitting.labelled import MatricesMixin, check_new, check_training, fit_method
from divlearn.spd import SPDRepairWarning, check_spd, find_not_definite
from divlearn.text import counted


class MatrixTransformer(TransformerMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    """Base of transformers to SPD matrices, from samples that are not vectors."""

    n_features_in_: int

    def set_output(self, *, transform: str | None = None) -> Self:
        """Do nothing: matrices stay an array, because a data frame cannot hold them."""
        return self

    def _set_or_check_count(self, count: int, noun: str, *, reset: bool, where: str = "X") -> None:
        if reset:
            self.n_features_in_ = count
        elif count != self.n_features_in_:
            raise ValueError(
                f"{where} has {counted(count, noun)}, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} {noun} as input; pass samples with the same {noun}"
            )

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Regularize(MatrixTransformer):
    r"""Make symmetric matrices that may be rank-deficient positive definite.

    .. math:: X \mapsto (1 - r) X + r \tau I , \qquad \tau = \tfrac{1}{d} \operatorname{tr} \bar X

    with :math:`\bar X` the mean of the training matrices. `fit` computes :math:`\tau`, and
    `transform` applies it to training matrices and new ones alike. Covariances of
    average-referenced EEG have rank d - 1, and covariances of n samples have rank n - 1 at most;
    their zero eigenvalues become :math:`r \tau`. Estimators of divlearn do the same with their
    parameter ``regularize``.

    Parameters
    ----------
    regularize : {"raise", "shrink"} or float, default="shrink"
        The weight r, > 0 and < 1; "shrink" is 0.01. "raise" changes nothing, and raises an error
        for matrices that are not positive definite.

    Attributes
    ----------
    shrinkage_ : (float, float) or None, r and tau; None for "raise".
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> signals = np.random.default_rng(0).standard_normal((10, 4, 50))
    >>> signals -= signals.mean(axis=1, keepdims=True)  # the average is the reference
    >>> X = signals @ signals.mT / 50
    >>> np.linalg.matrix_rank(X[0]), np.linalg.matrix_rank(Regularize().fit_transform(X)[0])
    (np.int64(3), np.int64(4))
    """

    def __init__(self, regularize: str | float = "shrink") -> None:
        self.regularize = regularize

    @fit_method
    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Compute tau from the weighted mean of X, shape (n_matrices, d, d); y is ignored."""
        self.n_features_in_ = check_training(self, X, sample_weight, dtype=None).shape[-1]
        return self

    def transform(self, X: ArrayLike) -> RealArray:
        """Regularize matrices, shape (n_matrices, d, d); float32 stays float32."""
        return self._as_given(check_new(self, X, dtype=None))


def check_floor(floor: float | str, dtype: DTypeLike = np.float64, d: int = 1) -> float:
    """Return the floor as a number, which must be at least `least_floor`."""
    least = least_floor(d, dtype)
    if isinstance(floor, str) and floor == "auto":
        return max(tolerances.repair_floor(dtype), least)
    if not is_number(floor) or not 0 < float(floor) < 1:
        raise ValueError(f'floor={floor!r} must be "auto" or a number > 0 and < 1')
    if float(floor) < least:
        raise ValueError(
            f"floor={floor!r} must be >= {least:.3g}, or matrices of size {d} in "
            f"{np.dtype(dtype)} are singular up to rounding; raise it"
        )
    return float(floor)


def least_floor(d: int, dtype: DTypeLike = np.float64) -> float:
    """Smallest floor for which matrices of size d pass `check_spd` after rounding to ``dtype``."""
    return 8 * tolerances.positive_definite(d, dtype)


def ensure_definite(
    covariances: RealArray, floor: float, *, name: str = "X", variables: str = "features"
) -> RealArray:
    """Shrink matrices towards their diagonals until eigenvalues of correlations are >= floor."""
    # A variable without variance gets the floor times the mean variance of the others. The result
    # is the input itself if no matrix has to be changed.
    leading, d = covariances.shape[:-2], covariances.shape[-1]
    matrices = covariances.reshape(-1, d, d)
    constant = np.diagonal(matrices, axis1=1, axis2=2) <= 0
    # Twice the floor, because the test scales diagonals to one up to a factor of two only.
    candidates = np.union1d(
        find_not_definite(matrices, 2 * floor), np.flatnonzero(constant.any(axis=1))
    )
    weights = np.zeros(len(matrices))
    if candidates.size:
        matrices = matrices.copy()
        filled = _fill_constant(matrices[candidates], constant[candidates], floor, candidates, name)
        matrices[candidates], weights[candidates] = _shrink(filled, floor)
    if not constant.any() and not weights.any():
        return covariances
    _warn(constant, weights, floor, name, variables)
    return matrices.reshape(*leading, d, d)


def _fill_constant(
    matrices: RealArray, constant: NDArray[np.bool_], floor: float, indices: Indices, name: str
) -> RealArray:
    zeros = indices[constant.all(axis=1)]
    if zeros.size:
        more = f" (and {zeros.size - 1} more)" if zeros.size > 1 else ""
        raise ValueError(
            f"{name}: matrix {zeros[0]}{more} has no variance in any variable, so there is no "
            "scale to regularise it to; drop this sample, or use variables that vary"
        )
    matrices[constant[:, :, None] | constant[:, None, :]] = 0
    variances = np.diagonal(matrices, axis1=1, axis2=2)
    mean = variances.sum(axis=1) / (~constant).sum(axis=1)
    row, variable = np.nonzero(constant)
    matrices[row, variable, variable] = floor * mean[row]
    return matrices


def _shrink(matrices: RealArray, floor: float) -> tuple[RealArray, RealArray]:
    d = matrices.shape[-1]
    deviations = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2).astype(np.float64))
    correlations = matrices / deviations[:, :, None] / deviations[:, None, :]
    smallest = np.linalg.eigvalsh(correlations)[:, 0]
    # The slack allows for rounding, so that matrices shrunk before are not shrunk again.
    below = smallest < floor - min(least_floor(d, matrices.dtype), floor) / 2
    weights = np.zeros(len(matrices))
    weights[below] = (floor - smallest[below]) / (1 - smallest[below])
    factors = np.asarray(1 - weights, dtype=matrices.dtype)[:, None, None]
    return np.where(np.eye(d, dtype=bool), matrices, factors * matrices), weights


def _warn(
    constant: NDArray[np.bool_], weights: RealArray, floor: float, name: str, variables: str
) -> None:
    parts = []
    flat, shrunk = np.flatnonzero(constant.any(axis=1)), np.flatnonzero(weights)
    if flat.size:
        parts.append(
            f"{flat.size} of {len(weights)} matrices had {variables} without variance (first: "
            f"{flat[0]}, number {int(np.argmax(constant[flat[0]]))}), which got {floor:.3g} of the "
            "mean variance"
        )
    if shrunk.size:
        parts.append(
            f"{shrunk.size} of {len(weights)} matrices had a correlation with an eigenvalue below "
            f"{floor:.3g} (first: {shrunk[0]}) and were shrunk towards the diagonal, by a weight "
            f"of {weights.max():.3g} at most"
        )
    warnings.warn(f"{name}: " + "; ".join(parts), SPDRepairWarning, stacklevel=3)


# --- fusion of streams ----------------------------------------------------------------------------


Samples = ArrayLike | Sequence[Sequence[ArrayLike]]


class BlockDiagonal(MatrixTransformer):
    r"""Fuse the streams of each sample into one block-diagonal SPD matrix.

    .. math:: P = \begin{pmatrix} P_1 & & 0 \\ & \ddots & \\ 0 & & P_s \end{pmatrix}

    Invariant divergences between fused matrices are the sums of the divergences between streams.

    Parameters
    ----------
    transformer : transformer to SPD matrices, optional
        A clone is fitted to each stream and applied first, so that streams may be series of any
        lengths, images, or with `Regularize` matrices that are not positive definite. By default
        streams are SPD matrices.

    Attributes
    ----------
    transformers_ : list, the fitted clones for the streams; empty without ``transformer``.
    block_sizes_ : list of int, sizes of the blocks.
    n_features_in_ : int, number of streams.

    Examples
    --------
    >>> from divlearn.descriptors import RBFKernelDescriptor
    >>> rng = np.random.default_rng(0)
    >>> videos = [
    ...     (rng.random((51, n_frames)), rng.random((51, n_frames - 1)))  # appearance and motion
    ...     for n_frames in (30, 120, 75)
    ... ]
    >>> BlockDiagonal(RBFKernelDescriptor()).fit_transform(videos).shape
    (3, 102, 102)
    """

    transformers_: list[BaseEstimator]
    block_sizes_: list[int]

    def __init__(self, transformer: BaseEstimator | None = None) -> None:
        self.transformer = transformer

    @fit_method
    def fit(self, X: Samples, y: ArrayLike | None = None) -> Self:
        """Fit a clone of ``transformer`` to each stream, and store the sizes of the blocks.

        X has the shape (n_samples, n_streams, ...), or is a list of samples, each a tuple, list or
        array of its streams. Without ``transformer`` streams are SPD matrices; sizes may differ
        between streams, not between samples. y is passed to ``transformer``.
        """
        self.fit_transform(X, y)
        return self

    @fit_method
    def fit_transform(self, X: Samples, y: ArrayLike | None = None) -> RealArray:
        """Fit, and fuse the same samples; see `fit` and `transform`."""
        streams = _split(X)
        self._set_or_check_count(len(streams), "streams", reset=True)
        self.transformers_ = []
        if self.transformer is not None:
            self.transformers_ = [clone(self.transformer) for _ in streams]
            pairs = zip(self.transformers_, streams, strict=True)
            streams = [transformer.fit_transform(stream, y) for transformer, stream in pairs]
        self.block_sizes_, fused = _join(streams)
        return fused

    def transform(self, X: Samples) -> RealArray:
        """Fuse the streams of samples, given as in `fit`.

        The result has the shape (n_samples, D, D), D the sum of ``block_sizes_``. It is float32 if
        all streams are, else float64.
        """
        check_is_fitted(self)
        streams = _split(X)
        self._set_or_check_count(len(streams), "streams", reset=False)
        if self.transformers_:
            pairs = zip(self.transformers_, streams, strict=True)
            streams = [transformer.transform(stream) for transformer, stream in pairs]
        sizes, fused = _join(streams)
        if sizes != self.block_sizes_:
            raise ValueError(
                f"X has blocks of sizes {sizes}, but BlockDiagonal is expecting sizes "
                f"{self.block_sizes_} as input"
            )
        return fused


def _split(X: Samples) -> list[ArrayLike]:
    if not isinstance(X, list | tuple):
        X = np.asarray(X)
        if X.ndim == 0:
            raise TypeError(f"X is {X!r}, expected an array or a list of samples of streams")
        if X.dtype != object:
            if X.ndim < 3 or 0 in X.shape:
                raise ValueError(
                    f"X has shape {X.shape}, expected (n_samples, n_streams, d, d) or, with a "
                    "transformer, (n_samples, n_streams, ...), not empty"
                )
            return list(X.swapaxes(0, 1))
    for i, sample in enumerate(X):
        if not isinstance(sample, list | tuple | np.ndarray) or not len(sample):
            raise TypeError(
                f"X[{i}] is {type(sample).__name__}, expected a tuple, list or array of at least "
                "one stream"
            )
        if len(sample) != len(X[0]):
            raise ValueError(
                f"X[{i}] has {len(sample)} streams, but X[0] has {len(X[0])}; pass samples with "
                "the same streams"
            )
    if not len(X):
        raise ValueError("X is empty; pass at least one sample of streams")
    # Streams of equal shapes become arrays, which transformers of other packages need.
    return [array_or_list([sample[s] for sample in X]) for s in range(len(X[0]))]


def _join(streams: Sequence[ArrayLike]) -> tuple[list[int], RealArray]:
    """Return the sizes of the blocks, and the block-diagonal matrices."""
    blocks = [check_spd(stream, ndim=3, name=f"streams[{s}]") for s, stream in enumerate(streams)]
    sizes = [block.shape[-1] for block in blocks]
    fused = np.zeros((len(blocks[0]), sum(sizes), sum(sizes)), dtype=np.result_type(*blocks))
    for block, end in zip(blocks, np.cumsum(sizes), strict=True):
        start = end - block.shape[-1]
        fused[:, start:end, start:end] = block
    return sizes, fused
