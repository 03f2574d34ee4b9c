"""The encoding as a differentiable function."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from divlearn.engines import Engine, Prepared, get_engine

__all__ = ["encode"]


def encode(
    X: torch.Tensor, atoms: torch.Tensor, alpha: torch.Tensor | float,
    beta: torch.Tensor | float, *, engine: str | Engine = "auto",
) -> torch.Tensor:  # fmt: skip
    r"""Divergences of matrices to atoms, differentiable in everything.

    .. math:: V_{ik} = D^{(\alpha_k, \beta_k)}(X_i \,\|\, B_k)

    Gradients are Euclidean and symmetric, :math:`-V \mathrm{diag}(f_t) V^T` for atoms and
    :math:`V \mathrm{diag}(f_t / \lambda) V^T` for matrices; that for the matrices is found from
    :math:`D^{(\alpha, \beta)}(X \| B) = D^{(\beta, \alpha)}(B \| X)`.

    Parameters
    ----------
    X : tensor, shape (n_matrices, d, d)
    atoms : tensor, shape (n_atoms, d, d)
    alpha, beta : float or tensor, shape (n_atoms,) or (n_atoms, n_pairs)
    engine : {"auto", "cuda", "native", "reference"} or Engine
        "auto" is "cuda" for CUDA tensors and the fastest engine of the CPU for others.

    Returns
    -------
    tensor, shape (n_matrices, n_atoms) or (n_matrices, n_atoms, n_pairs)

    Examples
    --------
    >>> X = torch.stack([torch.eye(2), 2 * torch.eye(2)]).double()
    >>> encode(X, X[:1], 0.0, 1.0)  # tr(X B^-1) - logdet(X B^-1) - d
    tensor([[0.0000], [0.6137]], dtype=torch.float64)
    """
    chosen = _engine_for(X, engine)
    first, second = (torch.as_tensor(p, dtype=X.dtype, device=X.device) for p in (alpha, beta))
    result: torch.Tensor = _Encoding.apply(X, atoms, first, second, chosen)  # type: ignore[no-untyped-call]
    return result


def _engine_for(X: torch.Tensor, engine: str | Engine) -> Engine:
    if engine == "auto" and X.is_cuda:
        engine = "cuda"
    chosen = get_engine(engine)
    if X.is_cuda and chosen.name != "cuda":
        raise ValueError(
            f"X is on {X.device}, but engine={chosen.name!r} works on the CPU; pass "
            'engine="cuda" or X.cpu()'
        )
    return chosen


def _give(tensor: torch.Tensor) -> Any:
    """Return what engines take: CUDA tensors as they are, others as NumPy arrays."""
    detached = tensor.detach()
    return detached if tensor.is_cuda else detached.numpy()


def _symmetric(tensor: torch.Tensor) -> Any:
    """Return a symmetric part: finite differences and noise are not exactly symmetric."""
    detached = tensor.detach()
    return _give(0.5 * (detached + detached.mT))


def _take(array: Any, like: torch.Tensor) -> torch.Tensor:
    tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
    return tensor.to(device=like.device, dtype=like.dtype)


class _Encoding(torch.autograd.Function):
    """`Engine.encode` forward, `Engine.pullback` backward."""

    @staticmethod
    def forward(
        ctx: Any, X: torch.Tensor, atoms: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor,
        engine: Engine,
    ) -> torch.Tensor:  # fmt: skip
        data = engine.prepare(_symmetric(X))
        values = engine.encode(data, _symmetric(atoms), _give(alpha), _give(beta))
        ctx.save_for_backward(X, atoms, alpha, beta)
        ctx.engine, ctx.data = engine, data
        return _take(values, X)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        X, atoms, alpha, beta = ctx.saved_tensors
        wants_X, wants_atoms, *wants_parameters = ctx.needs_input_grad[:4]
        gradients: list[torch.Tensor | None] = [None] * 5
        if wants_X:
            gradients[0] = _gradient_in_data(ctx.engine, X, atoms, alpha, beta, cotangent)
        if wants_atoms or any(wants_parameters):
            back = ctx.engine.pullback(
                ctx.data, _symmetric(atoms), _give(alpha), _give(beta),
                _give(cotangent.contiguous()), parameters=any(wants_parameters),
            )  # fmt: skip
            gradients[1] = _take(back.atoms, atoms)
            for i, (found, parameter) in enumerate(((back.alpha, alpha), (back.beta, beta))):
                if wants_parameters[i]:
                    gradients[2 + i] = _take(found, parameter).sum_to_size(parameter.shape)
        return tuple(gradients)


def _gradient_in_data(
    engine: Engine, X: torch.Tensor, atoms: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor,
    cotangent: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Let matrices and atoms change places, one atom's parameters after the other."""
    n = len(atoms)
    shape = np.broadcast_shapes(alpha.shape, beta.shape, (n,) if cotangent.ndim == 2 else (n, 1))
    pairs = [p.detach().expand(shape).reshape(n, -1) for p in (alpha, beta)]
    points, which = torch.unique(
        torch.cat(pairs, dim=1), dim=0, return_inverse=True
    )  # atoms with the same parameters go together
    m = points.shape[1] // 2
    weights = cotangent.detach().reshape(len(X), n, m)
    total = torch.zeros_like(X)
    for k in range(len(points)):
        index = (which == k).nonzero()[:, 0]
        data: Prepared = engine.prepare(_symmetric(atoms[index]))
        first, second = (_give(p.expand(len(X), m)) for p in (points[k, m:], points[k, :m]))
        swapped = weights[:, index].transpose(0, 1).contiguous()
        back = engine.pullback(data, _symmetric(X), first, second, _give(swapped), parameters=False)
        total += _take(back.atoms, X)
    return total
