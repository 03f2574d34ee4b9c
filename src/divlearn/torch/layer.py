"""The encoding as a module with atoms and parameters to learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import nn

from divlearn.engines import Engine
from divlearn.torch.functional import encode
from divlearn.torch.retraction import retract_

__all__ = ["DivergenceLayer"]


class DivergenceLayer(nn.Module):
    r"""Divergences of SPD matrices to learned atoms, each with its own :math:`(\alpha, \beta)`.

    It can be the last layer of a network that ends in SPD matrices, such as covariances of its
    features. The atoms are points of a manifold: either wrap the steps of any torch optimizer in
    `stepping`, or let geoopt's optimizers take them (``manifold=True`` makes the atoms a
    `geoopt.ManifoldParameter`).

    Parameters
    ----------
    atoms : tensor, shape (n_atoms, d, d)
        Where they start, for instance some of the matrices.
    alpha, beta : float, default=0.5
        Where the parameters start.
    learn_parameters : bool, default=True
        Whether alpha and beta are learned.
    engine : {"auto", "cuda", "native", "reference"} or Engine, default="auto"
    manifold : bool, default=False
        Whether atoms are a parameter of geoopt.

    Examples
    --------
    >>> layer = DivergenceLayer(torch.eye(3, dtype=torch.float64).repeat(4, 1, 1))
    >>> X = torch.eye(3, dtype=torch.float64).repeat(5, 1, 1)
    >>> layer(X).shape
    torch.Size([5, 4])
    >>> optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    >>> layer(2 * X).sum().backward()
    >>> with layer.stepping():
    ...     optimizer.step()
    >>> bool((torch.linalg.eigvalsh(layer.atoms) > 0).all())
    True
    """

    atoms: torch.Tensor
    alpha: torch.Tensor
    beta: torch.Tensor

    def __init__(
        self, atoms: torch.Tensor, alpha: float = 0.5, beta: float = 0.5, *,
        learn_parameters: bool = True, engine: str | Engine = "auto", manifold: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if atoms.ndim != 3 or atoms.shape[1] != atoms.shape[2]:
            raise ValueError(f"atoms has shape {tuple(atoms.shape)}, expected (n_atoms, d, d)")
        for name, value in (("alpha", alpha), ("beta", beta)):
            if not value >= 0:
                raise ValueError(f"{name}={value} must be >= 0; exchange alpha and beta instead")
        self.engine = engine
        make = _geoopt_parameter() if manifold else nn.Parameter
        self.atoms = make(atoms.detach().clone())
        for name, value in (("alpha", alpha), ("beta", beta)):
            start = torch.full((len(atoms),), float(value), dtype=atoms.dtype, device=atoms.device)
            if learn_parameters:
                setattr(self, name, nn.Parameter(start))
            else:
                self.register_buffer(name, start)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Divergences, shape (n_matrices, n_atoms)."""
        # An optimizer may have left a parameter just below zero.
        alpha, beta = self.alpha.clamp(min=0), self.beta.clamp(min=0)
        return encode(X, self.atoms, alpha, beta, engine=self.engine)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Turn what an optimizer does to the atoms inside into a step on the manifold."""
        before = self.atoms.detach().clone()
        yield
        retract_(self.atoms, before, self.alpha, self.beta)

    def extra_repr(self) -> str:
        """Sizes, for ``repr``."""
        n, d = self.atoms.shape[:2]
        return f"n_atoms={n}, d={d}"


def _geoopt_parameter() -> Callable[[torch.Tensor], torch.Tensor]:
    if find_spec("geoopt") is None:
        raise ImportError("manifold=True needs geoopt; install it, or use `stepping` instead")
    import geoopt

    manifold = geoopt.SymmetricPositiveDefinite()
    return lambda atoms: geoopt.ManifoldParameter(atoms, manifold=manifold)
