"""The encoding as a module with learned atoms and parameters, and bounded steps for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from divlearn.checks import check_count
from divlearn.engines import Engine
from divlearn.fitting.targets import check_labels
from divlearn.iddl.atoms import initial_atoms, initial_filters, make_variant, starts_from_grid
from divlearn.spd import check_spd
from divlearn.tolerances import TENSOR_MARGIN, positive_definite, repair_floor
from divlearn.torch.functional import check_matrices, encode, encode_filters

_STEIN = ((0.5, 0.5),)  # initial divergence of each atom
_MAX_STEP = 1.0  # no variance in any direction changes by more than a factor of e
_MAX_CHANGE = 0.5  # of alpha or beta in a step


class DivergenceLayer(nn.Module):
    r"""Divergences of SPD matrices to learned atoms, each with its own :math:`(\alpha, \beta)`.

    .. math:: v_{kp} = D^{(\alpha_{kp}, \beta_{kp})}(X \,\|\, B_k)

    Matrices (..., d, d) become vectors (..., out_features), the pairs p of an atom k side by side.
    Atoms start at random around the identity, which suits normalised matrices, or by `from_data`.
    They are points of a manifold: wrap the steps of an optimizer in `stepping`.

    Parameters
    ----------
    n_atoms, d : int
        Number and size of the atoms.
    divergence : pairs (alpha, beta), str or one pair, default=((0.5, 0.5),)
        A sequence of initial pairs of each atom, which are learned; "learn" is (1, 1), (0, 1) and
        (1, 0). One pair, a name such as "stein", and "line", three pairs of sum 1, are fixed.
    rank : int, optional
        Rank p < d of atoms, which are then filters V of shape (d, p) with the divergences
        :math:`D(V^T X V \,\|\, I)`, and :math:`\log\det(V^T X V) / p` after the pairs of an
        atom. Filters are not constrained: optimizers need no `stepping`.
    engine, device, dtype : as in `encode` and in the layers of torch

    Attributes
    ----------
    atoms : tensor, shape (n_atoms, d, d), or filters of shape (n_atoms, d, rank)
    alpha, beta : tensor, shape (n_atoms, n_pairs)
    out_features : int, n_atoms * n_pairs, or n_atoms * (n_pairs + 1) with a rank

    Examples
    --------
    >>> layer = DivergenceLayer(4, 3)
    >>> X = torch.eye(3).repeat(5, 2, 1, 1)
    >>> layer(X).shape
    torch.Size([5, 2, 4])
    >>> optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    >>> layer(2 * X).sum().backward()
    >>> with layer.stepping():
    ...     optimizer.step()
    >>> bool((torch.linalg.eigvalsh(layer.atoms) > 0).all())
    True
    """

    atoms: Tensor
    alpha: Tensor
    beta: Tensor

    def __init__(
        self,
        n_atoms: int,
        d: int,
        divergence: Any = _STEIN,
        *,
        rank: int | None = None,
        engine: str | Engine = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count(n_atoms, "n_atoms", fix="; `from_atoms` takes the atoms themselves")
        check_count(d, "d")
        if starts_from_grid(divergence):
            raise ValueError(
                f'divergence={divergence!r} is for IDDLClassifier; pass pairs or "learn"'
            )
        if rank is not None:
            check_count(rank, "rank", most=d - 1, fix=", the size of the matrices less one")
        self.engine, self.rank = engine, rank
        self._start: tuple[Tensor, ...] | None = None  # values before `stepping`
        noise = torch.randn(n_atoms, d, rank or d, device=device, dtype=torch.float64) / d**0.5
        if rank is None:
            noise = torch.matrix_exp(0.5 * (noise + noise.mT))
            noise = 0.5 * (noise + noise.mT)
        start = noise.to(dtype or torch.get_default_dtype())
        check_matrices(start if rank is None else start.mT @ start, "atoms")
        self.atoms = nn.Parameter(start)
        variant = make_variant(divergence, n_atoms)
        self.out_features = variant.alpha_index.size + (0 if rank is None else n_atoms)
        for name, values in zip(("alpha", "beta"), variant.expand(variant.start), strict=True):
            start = torch.from_numpy(values).to(self.atoms)
            if variant.learned:
                setattr(self, name, nn.Parameter(start))
            else:
                self.register_buffer(name, start)

    @classmethod
    def from_atoms(
        cls, atoms: Tensor, divergence: Any = _STEIN, *, engine: str | Engine = "auto"
    ) -> Self:
        """Start from a copy of atoms (n_atoms, d, d)."""
        checked = check_matrices(atoms, "atoms").detach()
        check_spd(checked.cpu().numpy(), ndim=3, name="atoms")
        (n_atoms, d, _), device, dtype = checked.shape, checked.device, checked.dtype
        layer = cls(n_atoms, d, divergence, engine=engine, device=device, dtype=dtype)
        with torch.no_grad():
            layer.atoms.copy_(checked)
        return layer

    @classmethod
    def from_data(
        cls,
        X: Tensor,
        y: ArrayLike | Tensor | None = None,
        n_atoms: int = 20,
        divergence: Any = _STEIN,
        *,
        rank: int | None = None,
        engine: str | Engine = "auto",
    ) -> Self:
        """Start from log-Euclidean k-means centres of each class, as `IDDLClassifier` does.

        X has the shape (n_matrices, d, d); without y all matrices are one class. k-means is seeded
        by torch's generator. With a ``rank`` initial filters are the directions in which a centre
        differs most from the mean (common spatial patterns).
        """
        X = check_matrices(X, "X").detach()
        matrices = check_spd(X.cpu().numpy(), ndim=3, dtype=np.float64)
        check_count(n_atoms, "n_atoms", most=len(matrices), fix=", the number of matrices")
        y = y.cpu() if isinstance(y, Tensor) else y
        labels = np.zeros(len(matrices)) if y is None else check_labels(y, len(matrices))
        codes = np.unique(labels, return_inverse=True)[1]
        random = np.random.RandomState(int(torch.randint(2**31, ())))
        atoms = initial_atoms(matrices, codes, n_atoms, "class-kmeans", random)
        if rank is None:
            return cls.from_atoms(torch.from_numpy(atoms).to(X), divergence, engine=engine)
        d, device, dtype = X.shape[-1], X.device, X.dtype
        layer = cls(n_atoms, d, divergence, rank=rank, engine=engine, device=device, dtype=dtype)
        filters = initial_filters(matrices, atoms, n_atoms, rank, random)
        with torch.no_grad():
            layer.atoms.copy_(torch.from_numpy(filters))
        return layer

    def forward(self, X: Tensor) -> Tensor:
        """Divergences of matrices (..., d, d), shape (..., out_features)."""
        if self._start is not None:  # inside `stepping`, an optimizer evaluates the loss
            return encode(X, *self._stepped(self._start), engine=self.engine).flatten(-2)
        # Without `stepping`, an optimizer may make parameters negative.
        alpha, beta = self.alpha.clamp(min=0), self.beta.clamp(min=0)
        if self.rank is not None:
            return encode_filters(X, self.atoms, alpha, beta, engine=self.engine).flatten(-2)
        try:
            return encode(X, self.atoms, alpha, beta, engine=self.engine).flatten(-2)
        except ValueError as error:
            if str(error).startswith("atoms["):
                error.add_note("Atoms stay positive definite if optimizers step in `stepping`.")
            raise

    @contextmanager
    def stepping(self) -> Iterator[None]:
        r"""Turn the step of an optimizer inside the context into a bounded step on the manifold.

        Inside, the parameter ``atoms`` contains coordinates S that start at zero, and its gradient
        is :math:`L^T G L`: the atom is :math:`B = L \exp(S) L^T`, with :math:`L L^T` the atom
        before. A learning rate is therefore relative to the atom, for any condition and units, and
        plain SGD takes the same step in any basis: data and atoms :math:`M X M^T` and
        :math:`M B M^T` lead to atoms :math:`M B' M^T`.

        A step changes no variance by more than a factor of e, and neither alpha nor beta by more
        than 0.5. The smallest eigenvalue of an atom's correlation matrix stays above 1.5e-8
        (3.5e-4 in float32), or above its initial value if that is lower. If the body raises an
        error or sets a value to NaN, nothing changes.

        Optimizers that evaluate the loss in their step (LBFGS) are supported, those that copy
        parameters are not. Weight decay has no effect on atoms, since S starts at zero.
        """
        if self.rank is not None:
            raise RuntimeError("filters move freely; step without `stepping`")
        if self._start is not None:
            raise RuntimeError("`stepping` is active already; wrap each step once")
        factor = _factorize(self.atoms)
        after = before = tuple(p.detach().clone() for p in (self.atoms, self.alpha, self.beta))
        self._start = (*before, factor)
        with torch.no_grad():
            self.atoms.zero_()
            self._transform_gradient(factor)
        try:
            yield
            with torch.no_grad():
                after = self._stepped(self._start)
        finally:
            self._start = None
            with torch.no_grad():
                self._transform_gradient(torch.linalg.inv(factor))
                for name, value in zip(("atoms", "alpha", "beta"), after, strict=True):
                    getattr(self, name).copy_(value)

    def _stepped(self, start: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return atoms, alpha and beta after a step, from its coordinates."""
        atoms, alpha, beta, factor = start
        return (
            _bounded_step(atoms, factor, self.atoms),
            _bounded_change(alpha, self.alpha, "alpha"),
            _bounded_change(beta, self.beta, "beta"),
        )

    def _transform_gradient(self, factor: Tensor) -> None:
        if self.atoms.grad is not None:
            self.atoms.grad.copy_(factor.mT @ self.atoms.grad.double() @ factor)

    def extra_repr(self) -> str:
        """Sizes, for ``repr``."""
        n_atoms, d, _ = self.atoms.shape
        rank = "" if self.rank is None else f"rank={self.rank}, "
        return f"n_atoms={n_atoms}, d={d}, {rank}out_features={self.out_features}"


def _factorize(atoms: Tensor) -> Tensor:
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(atoms.detach().double())
    if failed.any():
        raise ValueError(
            f"atoms[{int(failed.nonzero()[0])}] is not positive definite before the step; let "
            "optimizers move atoms inside `with layer.stepping():` only"
        )
    return factor


def _bounded_step(before: Tensor, factor: Tensor, coordinates: Tensor) -> Tensor:
    r"""Move atoms :math:`L L^T` to :math:`L \exp(S) L^T`; see `DivergenceLayer.stepping`."""
    finite = torch.isfinite(coordinates.detach()).flatten(1).all(dim=1)
    if not finite.all():
        raise _not_finite(f"atoms[{int((~finite).nonzero()[0])}]")
    S = 0.5 * (coordinates + coordinates.mT).double()
    length = torch.linalg.eigvalsh(S.detach()).abs().amax(dim=-1)[:, None, None]
    root = factor @ torch.matrix_exp(0.5 * _MAX_STEP * S / length.clamp(min=_MAX_STEP))
    moved = root @ root.mT
    with torch.no_grad():
        correction = _clip(moved, before) - moved
    result = (moved + correction).to(before.dtype)
    # Where a graph is built, S = 0 needs the derivatives of the result.
    return result if torch.is_grad_enabled() else torch.where(length == 0, before, result)


def _bounded_change(before: Tensor, after: Tensor, name: str) -> Tensor:
    """Return alpha or beta after a step, clipped to be >= 0 and close to the value before."""
    if not torch.isfinite(after.detach()).all():
        raise _not_finite(name)
    change = (after - before).clamp(-_MAX_CHANGE, _MAX_CHANGE)
    return (before + change).clamp(min=0)


def _not_finite(name: str) -> ValueError:
    return ValueError(
        f"the optimizer moved {name} to NaN or infinity, and the step was undone; lower the "
        "learning rate, or check that loss and gradients are finite"
    )


def _clip(moved: Tensor, before: Tensor) -> Tensor:
    """Clip eigenvalues of correlations, and variances, that are too close to the border."""
    dtype, d = str(before.dtype).removeprefix("torch."), before.shape[-1]
    values, vectors = _correlations(moved)
    floor = _correlations(before.double())[0][:, :1].clamp(
        TENSOR_MARGIN * positive_definite(d, dtype), repair_floor(dtype)
    )
    variances = moved.diagonal(dim1=1, dim2=2)
    start = before.double().diagonal(dim1=1, dim2=2)
    limits = torch.finfo(before.dtype)
    lowest, highest = start.clamp(max=limits.tiny**0.5), start.clamp(min=limits.max**0.5)
    clipped_variances = variances.clamp(lowest, highest)
    outside = (values < floor).any(dim=1) | (clipped_variances != variances).any(dim=1)
    correlations = (vectors * values.clamp(min=floor)[:, None]) @ vectors.mT
    deviations = clipped_variances.sqrt()
    clipped = deviations[:, :, None] * correlations * deviations[:, None]
    return torch.where(outside[:, None, None], clipped, moved)


def _correlations(atoms: Tensor) -> tuple[Tensor, Tensor]:
    deviations = atoms.diagonal(dim1=1, dim2=2).sqrt()
    return torch.linalg.eigh(atoms / deviations[:, :, None] / deviations[:, None])
