"""What the torch layer requires of tensors: the one door for matrices, atoms and parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

__all__ = ["as_parameter", "check_matrices", "check_same_device", "symmetric_part"]

_DTYPES = (torch.float32, torch.float64)
_HALVES = (torch.float16, torch.bfloat16)
# |x_ij - x_ji| relative to the largest entry. Half precision and difference quotients stay below;
# whatever is above was never meant to be symmetric.
_ASYMMETRY = 1e-2


def check_matrices(tensor: Any, name: str) -> torch.Tensor:
    """Return a floating-point tensor of square matrices, or raise.

    Half precision becomes float32 inside ``torch.autocast``, as in torch's own linear algebra.

    Examples
    --------
    >>> check_matrices(torch.eye(2), "X")
    Traceback (most recent call last):
    ValueError: X has shape (2, 2), expected (n_matrices, d, d); for a single matrix pass X[None]
    """
    layout = "(n_atoms, d, d)" if name == "atoms" else "(n_matrices, d, d)"
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(_not_a_tensor(tensor, name, layout))
    if tensor.dtype in _HALVES and torch.is_autocast_enabled(tensor.device.type):
        tensor = tensor.float()
    if tensor.dtype not in _DTYPES:
        raise TypeError(
            f"{name} has dtype {tensor.dtype}, but SPD matrices must be torch.float32 or "
            f"torch.float64; pass {name}.double()"
        )
    shape = tuple(tensor.shape)
    if len(shape) != 3:
        fix = f"for a single matrix pass {name}[None]" if len(shape) == 2 else "reshape it"
        raise ValueError(f"{name} has shape {shape}, expected {layout}; {fix}")
    if shape[1] != shape[2]:
        raise ValueError(
            f"{name} has shape {shape}: its matrices are {shape[1]} by {shape[2]}, not square; "
            "compute covariances of the features first"
        )
    checked: torch.Tensor = tensor
    return checked


def _not_a_tensor(value: Any, name: str, layout: str) -> str:
    required = f"must be a tensor of SPD matrices, shape {layout}"
    if isinstance(value, np.ndarray):
        return f"{name} is a NumPy array, but {required}; pass torch.from_numpy({name})"
    if isinstance(value, list | tuple):
        kind = type(value).__name__
        return f"{name} is a {kind}, but {required}; pass torch.stack or torch.tensor of it"
    if name == "atoms":
        return (
            f"atoms={value!r}, but they {required}; start from some of the matrices, as in "
            "DivergenceLayer(X[:24])"
        )
    return f"{name}={value!r}, but it {required}"


def check_same_device(X: torch.Tensor, atoms: torch.Tensor) -> None:
    """Raise unless matrices and atoms are on the same device.

    Examples
    --------
    >>> check_same_device(torch.eye(2)[None], torch.eye(2)[None])
    """
    if X.device != atoms.device:
        raise ValueError(
            f"X is on {X.device}, but the atoms are on {atoms.device}; move one of them with "
            ".to(device)"
        )


def as_parameter(value: Any, name: str, like: torch.Tensor) -> torch.Tensor:
    """Return alpha or beta as a tensor of the type and on the device of another.

    Examples
    --------
    >>> as_parameter("a", "alpha", torch.ones(1))
    Traceback (most recent call last):
    TypeError: alpha='a' must be a number or a tensor of numbers
    """
    try:
        return torch.as_tensor(value, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name}={value!r} must be a number or a tensor of numbers") from None


def symmetric_part(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return (X + X^T)/2, or raise where X is not symmetric to about one percent.

    Roundings and difference quotients leave matrices that are not exactly symmetric.

    Examples
    --------
    >>> symmetric_part(torch.tensor([[[1.0, 0.2], [0.9, 1.0]]]), "X")
    Traceback (most recent call last):
    ValueError: X[0] is not symmetric: entries (i, j) and (j, i) differ by up to 0.7, ...
    """
    matrices = tensor.detach()
    gap = (matrices - matrices.mT).abs().flatten(1).amax(dim=1)
    wrong = (gap > _ASYMMETRY * matrices.abs().flatten(1).amax(dim=1)).nonzero()
    if len(wrong):
        i = int(wrong[0])
        raise ValueError(
            f"{name}[{i}] is not symmetric: entries (i, j) and (j, i) differ by up to "
            f"{float(gap[i]):.3g}, must be <= {_ASYMMETRY:g} of the largest entry; pass "
            f"0.5 * ({name} + {name}.mT) if that is what is meant"
        )
    return 0.5 * (matrices + matrices.mT)
