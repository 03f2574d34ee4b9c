"""Steps that keep atoms positive definite, for optimizers that know nothing of manifolds."""

from __future__ import annotations

import torch

__all__ = ["exponential_step", "retract_", "riemannian_gradient"]

_LONGEST = 20.0  # of a step, in units of the metric: further is overflow, not learning


def riemannian_gradient(atoms: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    r"""Turn a Euclidean gradient into the affine-invariant one, :math:`B \, \mathrm{sym}(G) \, B`.

    Examples
    --------
    >>> riemannian_gradient(2 * torch.eye(2), torch.eye(2))
    tensor([[4., 0.], [0., 4.]])
    """
    return atoms @ (0.5 * (gradient + gradient.mT)) @ atoms


def exponential_step(atoms: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
    r"""Go from atoms along tangent vectors, :math:`L \exp(L^{-1} S L^{-T}) L^T` with B = L L^T.

    Parameters
    ----------
    atoms, tangent : tensors, shape (..., d, d)

    Examples
    --------
    >>> exponential_step(torch.eye(2), torch.eye(2)).diagonal()
    tensor([2.7183, 2.7183])
    """
    factor = torch.linalg.cholesky(atoms)
    half = torch.linalg.solve_triangular(factor, tangent, upper=False)
    inner = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    values, vectors = torch.linalg.eigh(0.5 * (inner + inner.mT))
    root = factor @ (vectors * torch.exp(0.5 * values.clamp(-_LONGEST, _LONGEST))[..., None, :])
    moved: torch.Tensor = root @ root.mT
    return moved


@torch.no_grad()
def retract_(atoms: torch.Tensor, before: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
    """Turn the step a Euclidean optimizer took into one on the manifold, in place.

    The difference between atoms now and before the step is taken as a tangent vector there;
    parameters beside them (alpha, beta) are put back to >= 0.

    Parameters
    ----------
    atoms : tensor, shape (n_atoms, d, d), after the step.
    before : tensor, the same before it.
    *parameters : tensors
        To be kept non-negative.

    Returns
    -------
    tensor, the atoms

    Examples
    --------
    >>> before = torch.eye(2)[None]
    >>> after = before - 3.0  # not positive definite any more
    >>> torch.linalg.eigvalsh(retract_(after, before)).min() > 0
    tensor(True)
    """
    atoms.copy_(exponential_step(before, atoms - before))
    for parameter in parameters:
        parameter.clamp_(min=0)
    return atoms
