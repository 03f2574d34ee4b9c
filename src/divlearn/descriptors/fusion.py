"""Fusion of streams: the SPD matrices of a sample become the blocks of a single matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray, array_or_list
from divlearn.descriptors.definite import MatrixTransformer
from divlearn.fitting.labelled import fit_method
from divlearn.spd import check_spd

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
