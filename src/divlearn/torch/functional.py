"""The encoding as a differentiable function, and checks of its tensors."""

from __future__ import annotations

from typing import Any, NoReturn

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
    r"""Divergences (..., n_atoms[, n_pairs]), twice differentiable in all arguments.

    .. math:: V_{ik} = D^{(\alpha_k, \beta_k)}(X_i \,\|\, B_k)

    Gradients are Euclidean and symmetric, :math:`-V \mathrm{diag}(f_t) V^T` for atoms and
    :math:`V \mathrm{diag}(f_t / \lambda) V^T` for matrices; the latter follows from
    :math:`D^{(\alpha, \beta)}(X \| B) = D^{(\beta, \alpha)}(B \| X)`. Gradients of gradients
    (``create_graph=True``) are analytic, too, for gradient penalties and for learning through
    steps of an optimizer. Third derivatives raise RuntimeError, second derivatives in alpha and
    beta of opposite signs raise ValueError.

    Parameters
    ----------
    X : tensor of float32 or float64, shape (..., d, d)
        Results have its dtype. Inside ``torch.autocast`` half precision becomes float32.
    atoms : tensor of float32 or float64, shape (n_atoms, d, d)
    alpha, beta : float or tensor, shape (n_atoms,) or (n_atoms, n_pairs)
    engine : {"auto", "cuda", "native", "reference"} or Engine
        "auto" is "cuda" for CUDA tensors, and the fastest engine of the CPU for other tensors.

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
    engine = _engine_for(X, engine)
    alpha, beta = _as_parameter(alpha, "alpha", X), _as_parameter(beta, "beta", X)
    matrices = X.reshape(-1, *X.shape[-2:])
    if not len(matrices):  # engines need a matrix, and this checks the atoms
        matrices = torch.cat([matrices, torch.eye(X.shape[-1]).to(X)[None]])
    values = _Encoding.apply(matrices, atoms, alpha, beta, engine)  # type: ignore[no-untyped-call]
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
    r"""Divergences to atoms of rank p, shape (..., n_atoms, n_pairs + 1), twice differentiable.

    .. math:: D^{(\alpha_k, \beta_k)}(V_k^T X V_k \,\|\, I)

    The last value of an atom is :math:`\log\det(V_k^T X V_k) / p`, the mean logarithm of the
    eigenvalues of the filtered matrix.

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
    n_atoms, _, p = _check_filters(filters, X)
    with torch.autocast(X.device.type, enabled=False):  # products keep the type of X
        filtered = filters.mT @ X[..., None, :, :] @ filters
    filtered = 0.5 * (filtered + filtered.mT)
    identity = torch.eye(p).to(X)[None]
    alpha, beta = _as_pairs(alpha, "alpha", X, n_atoms), _as_pairs(beta, "beta", X, n_atoms)
    values = []
    for k in range(n_atoms):
        pairs = alpha[k : k + 1], beta[k : k + 1]
        try:
            values.append(encode(filtered[..., k, :, :], identity, *pairs, engine=engine))
        except ValueError as error:
            error.add_note(
                f"X stands for V.mT @ X @ V here, with V = filters[{k}]: check that columns of V "
                "are independent, or lower the learning rate."
            )
            raise
    sizes = torch.linalg.slogdet(filtered)[1] / p
    return torch.cat([torch.cat(values, dim=-2), sizes[..., None]], dim=-1)


def check_matrices(tensor: object, name: str) -> Tensor:
    """Check a tensor of square matrices; half precision in ``torch.autocast`` becomes float32."""
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


def _check_filters(filters: Tensor, X: Tensor) -> torch.Size:
    """Check filters of matrices X, and return their shape (n_atoms, d, p)."""
    if not isinstance(filters, Tensor) or filters.ndim != 3 or filters.dtype != X.dtype:
        raise ValueError(
            f"filters must be a tensor of shape (n_atoms, d, p) and of the type of X, {X.dtype}; "
            "pass torch.as_tensor(filters).to(X)"
        )
    n_atoms, d, p = filters.shape
    if not n_atoms or not 1 <= p <= d:
        raise ValueError(
            f"filters have shape {tuple(filters.shape)}: n_atoms={n_atoms} must be >= 1, and the "
            f"rank p={p} must be >= 1 and <= d={d}; pass other filters"
        )
    if X.shape[-1] != d:
        raise ValueError(
            f"filters have shape {tuple(filters.shape)}, but X has matrices of size {X.shape[-1]}; "
            "the second size of filters must be that of the matrices"
        )
    wrong = (~filters.detach().isfinite().flatten(1).all(dim=1)).nonzero()
    if len(wrong):
        raise ValueError(
            f"filters[{int(wrong[0])}] has an entry that is not finite, all must be; lower the "
            "learning rate"
        )
    return filters.shape


def _as_parameter(value: Tensor | float, name: str, like: Tensor) -> Tensor:
    try:
        return torch.as_tensor(value, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name}={value!r} must be a number or a tensor of numbers") from None


def _as_pairs(value: Tensor | float, name: str, like: Tensor, n_atoms: int) -> Tensor:
    """Return parameters of shape (n_atoms, n_pairs)."""
    tensor = _as_parameter(value, name, like)
    pairs = tensor.reshape(len(tensor) if tensor.ndim else 1, -1)
    if len(pairs) not in (1, n_atoms):
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}, must have (n_atoms, n_pairs) with n_atoms="
            f"{n_atoms}; pass one row for each filter, or a number for all"
        )
    return pairs.expand(n_atoms, pairs.shape[1])


def _checked_symmetric(tensor: Tensor, name: str) -> Tensor:
    """Return (X + X^T)/2; raise an error if X is not symmetric up to about one percent."""
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
    engine = get_engine(engine)
    if X.is_cuda and engine.name != "cuda":
        raise ValueError(
            f"X is on {X.device}, but engine={engine.name!r} works on the CPU; pass "
            'engine="cuda" or X.cpu()'
        )
    return engine


def _to_array(tensor: Tensor) -> DeviceArray:
    """Return an array for engines: a CUDA tensor itself, others as NumPy arrays."""
    return tensor.detach() if tensor.is_cuda else tensor.detach().numpy()


def _to_tensor(array: DeviceArray, like: Tensor) -> Tensor:
    tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
    return tensor.to(device=like.device, dtype=like.dtype)


class _Function(torch.autograd.Function):
    """A function that says what to do in place of `vmap`."""

    @staticmethod
    def vmap(*_: Any) -> NoReturn:
        raise RuntimeError(
            "encode does not work inside torch.func.vmap, jacrev, jacfwd and hessian; pass it a "
            "batch (..., d, d), or take torch.func.grad or torch.autograd.functional.hessian"
        )


class _Encoding(_Function):
    """`Engine.encode` forward, `_Gradient` backward."""

    @staticmethod
    def forward(X: Tensor, atoms: Tensor, alpha: Tensor, beta: Tensor, engine: Engine) -> Tensor:
        data = engine.prepare(_to_array(_checked_symmetric(X, "X")))
        checked = _to_array(_checked_symmetric(atoms, "atoms"))
        return _to_tensor(engine.encode(data, checked, _to_array(alpha), _to_array(beta)), X)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.engine = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        needed = tuple(ctx.needs_input_grad[:4])
        gradients = _Gradient.apply(ctx.engine, needed, *ctx.saved_tensors, cotangent)  # type: ignore[no-untyped-call]
        return (*(g if n else None for g, n in zip(gradients, needed, strict=True)), None)


class _Gradient(_Function):
    """`Engine.pullback` forward, the product with the Hessian backward."""

    @staticmethod
    def forward(engine: Engine, needed: tuple[bool, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        X, atoms, alpha, beta, cotangent = tensors
        if not cotangent.isfinite().all():  # a GradScaler detects NaN, and lowers its scale
            return tuple(torch.full_like(tensor, torch.nan) for tensor in tensors[:4])
        gradients = [tensor.new_zeros(()) for tensor in tensors[:4]]
        if needed[0]:
            gradients[0] = _gradient_in_data(engine, X, atoms, alpha, beta, cotangent)
        if any(needed[1:]):
            arrays = _to_array(alpha), _to_array(beta), _to_array(cotangent.contiguous())
            prepared = _as_prepared(X), _as_prepared(atoms)
            back = engine.pullback(*prepared, *arrays, parameters=any(needed[2:]))
            gradients[1] = _to_tensor(back.atoms, atoms)
            if needed[2]:
                gradients[2] = _to_tensor(back.alpha, alpha).sum_to_size(alpha.shape)
            if needed[3]:
                gradients[3] = _to_tensor(back.beta, beta).sum_to_size(beta.shape)
        return tuple(gradients)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.engine = inputs[0]
        ctx.save_for_backward(*inputs[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *along: Tensor | None) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        direction = (
            torch.zeros_like(tensor) if part is None else part
            for part, tensor in zip(along, tensors[:4], strict=True)
        )
        guarded = _NoThirdDerivatives.apply(*tensors)  # type: ignore[no-untyped-call]
        return (None, None, *_Curvature.apply(ctx.engine, *guarded, *direction))  # type: ignore[no-untyped-call]


class _Curvature(_Function):
    """The product with the Hessian, and the slope of the values, in a direction; both linear."""

    @staticmethod
    def forward(engine: Engine, *tensors: Tensor) -> tuple[Tensor, ...]:
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
        products = (*gradient[:2], *parameters, rates.reshape(cotangent.shape))
        return tuple(g.to(like.dtype) for g, like in zip(products, tensors[:5], strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.engine = inputs[0]
        ctx.save_for_backward(*inputs[1:6])

    @staticmethod
    def backward(ctx: Any, *along: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient in the direction; `_NoThirdDerivatives` refuses the others."""
        tensors = ctx.saved_tensors
        products = _Curvature.apply(ctx.engine, *tensors, *along[:4])  # type: ignore[no-untyped-call]
        needed = tuple(ctx.needs_input_grad[6:])
        gradients = _Gradient.apply(ctx.engine, needed, *tensors[:4], along[4])  # type: ignore[no-untyped-call]
        in_direction = (
            product + gradient if wanted else None
            for product, gradient, wanted in zip(products, gradients, needed, strict=False)
        )
        return (None, *map(torch.zeros_like, tensors), *in_direction)


class _NoThirdDerivatives(_Function):
    """Tensors forward, an error backward: third derivatives are not zero."""

    @staticmethod
    def forward(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

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
    """Compute the gradient in X as that in atoms, with X and atoms exchanged."""
    n = len(atoms)
    shape = np.broadcast_shapes(alpha.shape, beta.shape, (n,) if cotangent.ndim == 2 else (n, 1))
    pairs = [p.detach().expand(shape).reshape(n, -1) for p in (alpha, beta)]
    # The pullback has the same parameters for all data, so atoms are grouped by their parameters.
    points, codes = torch.unique(torch.cat(pairs, dim=1), dim=0, return_inverse=True)
    n_pairs = points.shape[1] // 2
    weights = cotangent.detach().reshape(len(X), n, n_pairs)
    gradient = torch.zeros_like(X)
    for k, point in enumerate(points):
        members = (codes == k).nonzero()[:, 0]
        data = engine.prepare(_as_prepared(atoms[members]))
        first, second = (_to_array(p.expand(len(X), n_pairs)) for p in point.reshape(2, -1).flip(0))
        arrays = first, second, _to_array(weights[:, members].transpose(0, 1).contiguous())
        back = engine.pullback(data, _as_prepared(X), *arrays, parameters=False)
        gradient += _to_tensor(back.atoms, X)
    return gradient


def _as_prepared(matrices: Tensor) -> DeviceArray:
    """Return matrices for an engine, which does not check them again."""
    symmetric = _symmetric(matrices)
    return symmetric if matrices.is_cuda else Prepared.checked(symmetric.numpy())


def _symmetric(tensor: Tensor) -> Tensor:
    detached = tensor.detach()
    return 0.5 * (detached + detached.mT)
