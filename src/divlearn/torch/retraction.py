"""Steps that keep atoms positive definite, for optimizers that know nothing of manifolds."""

import torch

from divlearn.tolerances import TENSOR_MARGIN, positive_definite, repair_floor

_LONGEST = 1.0  # step: no variance in any direction changes by more than a factor of e
_LARGEST_CHANGE = 0.5  # of alpha or beta in a step


def factorize(atoms: torch.Tensor) -> torch.Tensor:
    factor: torch.Tensor
    factor, failed = torch.linalg.cholesky_ex(atoms.detach().double())
    if failed.any():
        raise ValueError(
            f"atoms[{int(failed.nonzero()[0])}] is not positive definite before the step; let "
            "optimizers move atoms inside `with layer.stepping():` only"
        )
    return factor


def bounded_step(
    before: torch.Tensor, factor: torch.Tensor, coordinates: torch.Tensor
) -> torch.Tensor:
    r"""Go from atoms :math:`L L^T` to :math:`L \exp(S) L^T`, within `DivergenceLayer.stepping`."""
    finite = torch.isfinite(coordinates.detach()).flatten(1).all(dim=1)
    if not finite.all():
        raise _not_finite(f"atoms[{int((~finite).nonzero()[0])}]")
    S = 0.5 * (coordinates + coordinates.mT).double()
    length = torch.linalg.eigvalsh(S.detach()).abs().amax(dim=-1)[:, None, None]
    root = factor @ torch.matrix_exp(0.5 * _LONGEST * S / length.clamp(min=_LONGEST))
    moved = root @ root.mT
    with torch.no_grad():
        correction = _inside(moved, before) - moved
    result = (moved + correction).to(before.dtype)
    # While a graph is built even S = 0 has derivatives.
    return result if torch.is_grad_enabled() else torch.where(length == 0, before, result)


def bounded_change(before: torch.Tensor, after: torch.Tensor, name: str) -> torch.Tensor:
    """Return alpha or beta after a step, >= 0 and not too far from before."""
    if not torch.isfinite(after.detach()).all():
        raise _not_finite(name)
    change = (after - before).clamp(-_LARGEST_CHANGE, _LARGEST_CHANGE)
    return (before + change).clamp(min=0)


def _not_finite(name: str) -> ValueError:
    return ValueError(
        f"the optimizer moved {name} to NaN or infinity, and the step was undone; lower the "
        "learning rate, or check that loss and gradients are finite"
    )


def _inside(moved: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Clip what comes too near to the border: eigenvalues of correlations, and variances."""
    dtype, d = str(before.dtype).removeprefix("torch."), before.shape[-1]
    values, vectors = _correlations(moved)
    floor = _correlations(before.double())[0][:, :1].clamp(
        TENSOR_MARGIN * positive_definite(d, dtype), repair_floor(dtype)
    )
    variances = moved.diagonal(dim1=1, dim2=2)
    start = before.double().diagonal(dim1=1, dim2=2)
    limits = torch.finfo(before.dtype)
    lowest, highest = start.clamp(max=limits.tiny**0.5), start.clamp(min=limits.max**0.5)
    kept = variances.clamp(lowest, highest)
    outside = (values < floor).any(dim=1) | (kept != variances).any(dim=1)
    correlations = (vectors * values.clamp(min=floor)[:, None]) @ vectors.mT
    deviations = kept.sqrt()
    clipped = deviations[:, :, None] * correlations * deviations[:, None]
    return torch.where(outside[:, None, None], clipped, moved)


def _correlations(atoms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    deviations = atoms.diagonal(dim1=1, dim2=2).sqrt()
    values, vectors = torch.linalg.eigh(atoms / deviations[:, :, None] / deviations[:, None])
    return values, vectors
