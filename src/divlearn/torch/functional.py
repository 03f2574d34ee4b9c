"""The encoding as a differentiable function, and what it requires of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from divlearn.arrays import DeviceArray
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.tolerances import TENSOR_ASYMMETRY
from divlearn.torch.second import hessian_product

_DTYPES = (torch.float32, torch.float64)
_HALVES = (torch.float16, torch.bfloat16)


def encode(
    X: Tensor,
    atoms: Tensor,
    alpha: Tensor | float,
    beta: Tensor | float,
    *,
    engine: str | Engine = "auto",
) -> Tensor:
    r"""Divergences (..., n_atoms[, n_pairs]), twice differentiable in everything.

    .. math:: V_{ik} = D^{(\alpha_k, \beta_k)}(X_i \,\|\, B_k)

    Gradients are Euclidean and symmetric, :math:`-V \mathrm{diag}(f_t) V^T` for atoms and
    :math:`V \mathrm{diag}(f_t / \lambda) V^T` for matrices; that for the matrices is found from
    :math:`D^{(\alpha, \beta)}(X \| B) = D^{(\beta, \alpha)}(B \| X)`. Gradients of gradients
    (``create_graph=True``) are analytic too, for gradient penalties and for learning through
    steps of an optimizer. Third derivatives raise RuntimeError, second ones in alpha and beta of
    opposite signs ValueError.

    Parameters
    ----------
    X : tensor of float32 or float64, shape (..., d, d)
        Results have its dtype. Inside ``torch.autocast`` half precision becomes float32.
    atoms : tensor of float32 or float64, shape (n_atoms, d, d)
    alpha, beta : float or tensor, shape (n_atoms,) or (n_atoms, n_pairs)
    engine : {"auto", "cuda", "native", "reference"} or Engine
        "auto" is "cuda" for CUDA tensors and the fastest engine of the CPU for others.

    Examples
    --------
    >>> X = torch.stack([torch.eye(2), 2 * torch.eye(2)]).double()
    >>> encode(X, X[:1], 0.0, 1.0)  # tr(X B^-1) - logdet(X B^-1) - d
    tensor([[0.0000], [0.6137]], dtype=torch.float64)
    """
    X, atoms = check_matrices(X, "X"), check_matrices(atoms, "atoms")
    if X.device != atoms.device:
        raise ValueError(
            f"X is on {X.device}, but the atoms are on {atoms.device}; move one of them with "
            ".to(device)"
        )
    chosen = _engine_for(X, engine)
    first, second = (_as_parameter(p, n, X) for p, n in ((alpha, "alpha"), (beta, "beta")))
    matrices = X.reshape(-1, *X.shape[-2:])
    if not len(matrices):  # one stands in: engines take no empty stacks, and atoms are checked too
        matrices = torch.cat([matrices, torch.eye(X.shape[-1]).to(X)[None]])
    values = _Encoding.apply(matrices, atoms, first, second, chosen)  # type: ignore[no-untyped-call]
    values = values if X.numel() else values[:0]
    return values.reshape(*X.shape[:-2], *values.shape[1:])


def encode_filters(
    X: Tensor,
    filters: Tensor,
    alpha: Tensor | float,
    beta: Tensor | float,
    *,
    engine: str | Engine = "auto",
) -> Tensor:
    r"""Divergences to atoms of rank p, shape (..., n_atoms, n_pairs + 1), differentiable likewise.

    .. math:: D^{(\alpha_k, \beta_k)}(V_k^T X V_k \,\|\, I)

    The last value of an atom is :math:`\log\det(V_k^T X V_k) / p`, the signed size of what the
    filter lets through.

    Parameters
    ----------
    X : tensor, shape (..., d, d)
    filters : tensor, shape (n_atoms, d, p)
    alpha, beta : float or tensor, shape (n_atoms, n_pairs)
    engine : as in `encode`

    Examples
    --------
    >>> X = 2 * torch.eye(3).double()[None]
    >>> encode_filters(X, torch.eye(3).double()[None, :, :2], 0.0, 1.0)
    tensor([[[0.6137, 0.6931]]], dtype=torch.float64)
    """
    X = check_matrices(X, "X")
    n_atoms, d, p = filters.shape
    if X.shape[-1] != d:
        raise ValueError(
            f"filters have shape {tuple(filters.shape)}, but X has matrices of size {X.shape[-1]}; "
            "the second size of filters must be that of the matrices"
        )
    small = filters.mT @ X[..., None, :, :] @ filters
    small = 0.5 * (small + small.mT)
    identity = torch.eye(p).to(X)[None]
    first, second = (_as_pairs(p, n, X, n_atoms) for p, n in ((alpha, "alpha"), (beta, "beta")))
    values = [
        encode(small[..., k, :, :], identity, first[k : k + 1], second[k : k + 1], engine=engine)
        for k in range(n_atoms)
    ]
    sizes = torch.linalg.slogdet(small)[1] / p
    return torch.cat([torch.cat(values, dim=-2), sizes[..., None]], dim=-1)


def check_matrices(tensor: object, name: str) -> Tensor:
    """Return a tensor of square matrices, float32 for halves in ``torch.autocast``, or raise."""
    layout = "(n_atoms, d, d)" if name == "atoms" else "(..., d, d)"
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"{name} is a {type(tensor).__name__}, but must be a tensor of SPD matrices, shape "
            f"{layout}; pass torch.as_tensor({name}), or some of the matrices for atoms"
        )
    if tensor.dtype in _HALVES and torch.is_autocast_enabled(tensor.device.type):
        tensor = tensor.float()
    if tensor.dtype not in _DTYPES:
        raise TypeError(
            f"{name} has dtype {tensor.dtype}, but SPD matrices must be torch.float32 or "
            f"torch.float64; pass {name}.double()"
        )
    shape = tuple(tensor.shape)
    if len(shape) < 2 or (name == "atoms" and len(shape) != 3):
        fix = f"for a single matrix pass {name}[None]" if len(shape) == 2 else "reshape it"
        raise ValueError(f"{name} has shape {shape}, expected {layout}; {fix}")
    if shape[-2] != shape[-1]:
        raise ValueError(
            f"{name} has shape {shape}: its matrices are {shape[-2]} by {shape[-1]}, not square; "
            "compute covariances of the features first"
        )
    return tensor


def _as_parameter(value: Tensor | float, name: str, like: Tensor) -> Tensor:
    try:
        return torch.as_tensor(value, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name}={value!r} must be a number or a tensor of numbers") from None


def _as_pairs(value: Tensor | float, name: str, like: Tensor, n_atoms: int) -> Tensor:
    """Return parameters of shape (n_atoms, n_pairs)."""
    known = _as_parameter(value, name, like)
    pairs = known.reshape(len(known) if known.ndim else 1, -1)
    return pairs.expand(n_atoms, pairs.shape[1])


def _checked_symmetric(tensor: Tensor, name: str) -> Tensor:
    """Return (X + X^T)/2, or raise where X is not symmetric up to roundings, about one percent."""
    matrices = tensor.detach()
    gap = (matrices - matrices.mT).abs().flatten(1).amax(dim=1)
    wrong = (gap > TENSOR_ASYMMETRY * matrices.abs().flatten(1).amax(dim=1)).nonzero()
    if len(wrong):
        i = int(wrong[0])
        raise ValueError(
            f"{name}[{i}] is not symmetric: entries (i, j) and (j, i) differ by up to "
            f"{float(gap[i]):.3g}, must be <= {TENSOR_ASYMMETRY:g} of the largest entry; pass "
            f"0.5 * ({name} + {name}.mT) if that is what is meant"
        )
    return _symmetric(matrices)


def _engine_for(X: Tensor, engine: str | Engine) -> Engine:
    if engine == "auto" and X.is_cuda:
        engine = "cuda"
    chosen = get_engine(engine)
    if X.is_cuda and chosen.name != "cuda":
        raise ValueError(
            f"X is on {X.device}, but engine={chosen.name!r} works on the CPU; pass "
            'engine="cuda" or X.cpu()'
        )
    return chosen


def _give(tensor: Tensor) -> DeviceArray:
    """Return what engines take: CUDA tensors as they are, others as NumPy arrays."""
    return tensor.detach() if tensor.is_cuda else tensor.detach().numpy()


def _take(array: DeviceArray, like: Tensor) -> Tensor:
    tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
    return tensor.to(device=like.device, dtype=like.dtype)


class _Encoding(torch.autograd.Function):
    """`Engine.encode` forward, `_Gradient` backward."""

    @staticmethod
    def forward(X: Tensor, atoms: Tensor, alpha: Tensor, beta: Tensor, engine: Engine) -> Tensor:
        data = engine.prepare(_give(_checked_symmetric(X, "X")))
        checked = _give(_checked_symmetric(atoms, "atoms"))
        return _take(engine.encode(data, checked, _give(alpha), _give(beta)), X)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.engine = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        wanted = tuple(ctx.needs_input_grad[:4])
        found = _Gradient.apply(ctx.engine, wanted, *ctx.saved_tensors, cotangent)  # type: ignore[no-untyped-call]
        return (*(g if w else None for g, w in zip(found, wanted, strict=True)), None)


class _Gradient(torch.autograd.Function):
    """`Engine.pullback` forward, the product with the Hessian backward."""

    @staticmethod
    def forward(engine: Engine, wanted: tuple[bool, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        X, atoms, alpha, beta, cotangent = tensors
        if not cotangent.isfinite().all():  # scalers of losses look for this, and lower the scale
            return tuple(torch.full_like(one, torch.nan) for one in (X, atoms, alpha, beta))
        gradients = [tensor.new_zeros(()) for tensor in (X, atoms, alpha, beta)]
        if wanted[0]:
            gradients[0] = _gradient_in_data(engine, X, atoms, alpha, beta, cotangent)
        if any(wanted[1:]):
            given = _give(alpha), _give(beta), _give(cotangent.contiguous())
            back = engine.pullback(_known(X), _known(atoms), *given, parameters=any(wanted[2:]))
            gradients[1] = _take(back.atoms, atoms)
            for i, (found, parameter) in enumerate(((back.alpha, alpha), (back.beta, beta))):
                if wanted[2 + i]:
                    gradients[2 + i] = _take(found, parameter).sum_to_size(parameter.shape)
        return tuple(gradients)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *along: Tensor | None) -> tuple[Tensor | None, ...]:
        at = ctx.saved_tensors
        direction = (
            torch.zeros_like(a) if u is None else u for u, a in zip(along, at[:4], strict=True)
        )
        found = _Curvature.apply(*at, *direction)  # type: ignore[no-untyped-call]
        return (None, None, *found)


class _Curvature(torch.autograd.Function):
    """The product with the Hessian forward; asking for more raises instead of giving zero."""

    @staticmethod
    def forward(*tensors: Tensor) -> tuple[Tensor, ...]:
        at, cotangent, along = tensors[:4], tensors[4], tensors[5:]
        shape = cotangent.shape[1:]
        gradient, rates = hessian_product(
            _in_double(at, shape),
            _in_double(along, shape),
            cotangent.double().reshape(len(cotangent), len(at[1]), -1),
        )
        parameters = (
            g.reshape(shape).sum_to_size(a.shape) for g, a in zip(gradient[2:], at[2:], strict=True)
        )
        found = (*gradient[:2], *parameters, rates.reshape(cotangent.shape))
        return tuple(g.to(like.dtype) for g, like in zip(found, tensors[:5], strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(
            "encode has no third derivatives; detach() its second derivatives, or take them "
            "without create_graph=True"
        )


def _in_double(tensors: tuple[Tensor, ...], shape: torch.Size) -> tuple[Tensor, ...]:
    """Make matrices symmetric and parameters of shape (n_atoms, n_pairs), all in float64."""
    matrices = (_symmetric(tensor.double()) for tensor in tensors[:2])
    parameters = (p.double().expand(shape).reshape(shape[0], -1) for p in tensors[2:])
    return (*matrices, *parameters)


def _gradient_in_data(
    engine: Engine, X: Tensor, atoms: Tensor, alpha: Tensor, beta: Tensor, cotangent: Tensor
) -> Tensor:
    """Let matrices and atoms change places, one atom's parameters after the other."""
    n = len(atoms)
    shape = np.broadcast_shapes(alpha.shape, beta.shape, (n,) if cotangent.ndim == 2 else (n, 1))
    pairs = [p.detach().expand(shape).reshape(n, -1) for p in (alpha, beta)]
    # Atoms with the same parameters go together.
    points, which = torch.unique(torch.cat(pairs, dim=1), dim=0, return_inverse=True)
    m = points.shape[1] // 2
    weights = cotangent.detach().reshape(len(X), n, m)
    total = torch.zeros_like(X)
    for k in range(len(points)):
        index = (which == k).nonzero()[:, 0]
        data = engine.prepare(_known(atoms[index]))
        first, second = (_give(p.expand(len(X), m)) for p in (points[k, m:], points[k, :m]))
        swapped = weights[:, index].transpose(0, 1).contiguous()
        back = engine.pullback(data, _known(X), first, second, _give(swapped), parameters=False)
        total += _take(back.atoms, X)
    return total


def _known(matrices: Tensor) -> DeviceArray:
    """Return for an engine what it has checked before."""
    symmetric = _symmetric(matrices)
    return symmetric if matrices.is_cuda else Prepared.checked(symmetric.numpy())


def _symmetric(tensor: Tensor) -> Tensor:
    detached = tensor.detach()
    return 0.5 * (detached + detached.mT)
