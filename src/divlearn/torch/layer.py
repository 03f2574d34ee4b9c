"""The encoding as a module with atoms and parameters to learn."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import nn

from divlearn.checks import check_number
from divlearn.engines import Engine
from divlearn.spd import check_spd
from divlearn.torch.functional import check_matrices, encode
from divlearn.torch.retraction import bounded_change, bounded_step, factorize


class DivergenceLayer(nn.Module):
    r"""Divergences of SPD matrices to learned atoms, each with its own :math:`(\alpha, \beta)`.

    It can be the last layer of a network that ends in SPD matrices, such as covariances of its
    features. The atoms are points of a manifold: either wrap the steps of any torch optimizer in
    `stepping`, or let geoopt's optimizers take them (``manifold=True`` makes the atoms a
    `geoopt.ManifoldParameter`).

    Parameters
    ----------
    atoms : tensor of float32 or float64, shape (n_atoms, d, d)
        Where they start, for instance some of the matrices; copied, without their graph.
    alpha, beta : float, default=0.5
        Where the parameters start, and stay unless ``learn_parameters``.
    learn_parameters : bool, default=True
    engine : as in `encode`
    manifold : bool, default=False

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
        checked = check_matrices(atoms, "atoms").detach()
        check_spd(checked.cpu().numpy(), ndim=3, name="atoms")
        self.engine, self.manifold = engine, manifold
        self._start: tuple[torch.Tensor, ...] | None = None  # where `stepping` began
        make = _geoopt_parameter() if manifold else nn.Parameter
        self.atoms = make(checked.clone())
        for name, value in (("alpha", alpha), ("beta", beta)):
            check_number(value, name)
            start = checked.new_full((len(checked),), float(value))
            if learn_parameters:
                setattr(self, name, nn.Parameter(start))
            else:
                self.register_buffer(name, start)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Divergences, shape (n_matrices, n_atoms)."""
        if self._start is not None:  # an optimizer that evaluates the loss during its step
            return encode(X, *self._stepped(self._start), engine=self.engine)
        # An optimizer may have left a parameter just below zero.
        alpha, beta = self.alpha.clamp(min=0), self.beta.clamp(min=0)
        try:
            return encode(X, self.atoms, alpha, beta, engine=self.engine)
        except ValueError as error:
            if str(error).startswith("atoms["):
                error.add_note("Atoms stay positive definite if optimizers step in `stepping`.")
            raise

    @contextmanager
    def stepping(self) -> Iterator[None]:
        r"""Turn what an optimizer does inside into bounded steps on the manifold.

        Inside, the parameter ``atoms`` holds coordinates S that start at zero, and its gradient is
        :math:`L^T G L`: the atom is :math:`B = L \exp(S) L^T`, with :math:`L L^T` the atom before.
        A learning rate is therefore relative to the atom, whatever its condition and its units,
        and plain SGD takes the same step in any basis: data and atoms :math:`M X M^T` and
        :math:`M B M^T` lead to atoms :math:`M B' M^T`.

        A step changes no variance by more than a factor of e, and neither alpha nor beta by more
        than 0.5. The smallest eigenvalue of an atom's correlation matrix stays above 1.5e-8
        (3.5e-4 in float32), or above where it began if that is lower. A body that raises, or that
        moves something to NaN, changes nothing.

        Optimizers that evaluate the loss in their step (LBFGS) work too. Weight decay does not act
        on atoms, since S starts at zero. Optimizers that keep copies of parameters from step to
        step do not suit these coordinates.
        """
        if self.manifold:
            raise RuntimeError("manifold=True leaves steps to geoopt; step without `stepping`")
        if self._start is not None:
            raise RuntimeError("`stepping` is active already; wrap each step once")
        factor = factorize(self.atoms)
        after = before = tuple(p.detach().clone() for p in (self.atoms, self.alpha, self.beta))
        self._start = (*before, factor)
        with torch.no_grad():
            self.atoms.zero_()
            self._turn_gradient(factor)
        try:
            yield
            with torch.no_grad():
                after = self._stepped(self._start)
        finally:
            self._start = None
            with torch.no_grad():
                self._turn_gradient(torch.linalg.inv(factor))
                for name, value in zip(("atoms", "alpha", "beta"), after, strict=True):
                    getattr(self, name).copy_(value)

    def _stepped(self, start: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Return atoms, alpha and beta that the coordinates of a step denote."""
        atoms, alpha, beta, factor = start
        return (
            bounded_step(atoms, factor, self.atoms),
            bounded_change(alpha, self.alpha, "alpha"),
            bounded_change(beta, self.beta, "beta"),
        )

    def _turn_gradient(self, factor: torch.Tensor) -> None:
        if self.atoms.grad is not None:
            self.atoms.grad.copy_(factor.mT @ self.atoms.grad.double() @ factor)

    def extra_repr(self) -> str:
        """Sizes, for ``repr``."""
        return f"n_atoms={len(self.atoms)}, d={self.atoms.shape[1]}"


def _geoopt_parameter() -> Callable[[torch.Tensor], torch.Tensor]:
    if find_spec("geoopt") is None:
        raise ImportError("manifold=True needs geoopt; install it, or use `stepping` instead")
    import geoopt

    manifold = geoopt.SymmetricPositiveDefinite()
    return lambda atoms: geoopt.ManifoldParameter(atoms, manifold=manifold)
