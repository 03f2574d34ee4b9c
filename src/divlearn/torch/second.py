r"""Second derivatives of the encoding: its Hessian times a direction.

With :math:`V^T B V = I` and :math:`V^T X V = \Lambda` the gradients are :math:`V p(\Lambda) V^T`
in X and :math:`-V q(\Lambda) V^T` in B, where :math:`q(\lambda) = f_t(\log \lambda)` and
:math:`p = q / \lambda`. Along E and F, with
:math:`e = V^T E V` and :math:`g = V^T F V`, they change by

.. math:: V (p_{ij} e_{ij} - q_{ij} g_{ij}) V^T, \qquad V (r_{ij} g_{ij} - q_{ij} e_{ij}) V^T

where two indices denote the divided differences of p, of q and of :math:`r = \lambda q`. All three
follow from those of q, which have a closed form that is accurate for equal eigenvalues, too.
"""

import numpy as np
import torch
from torch import Tensor

from divlearn.arrays import RealArray as Array
from divlearn.spectral import _chi, _kappa, abld_scalar

Tensors = tuple[Tensor, ...]
_MAX_NODES = 400  # of a quadrature, enough for |(alpha + beta) t| up to 128


@torch.no_grad()
def hessian_product(at: Tensors, along: Tensors, cotangent: Tensor) -> tuple[Tensors, Tensor]:
    """Differentiate the gradient of (cotangent * encode).sum(), and encode, in a direction."""
    # The point ``at`` and the direction ``along`` are X, atoms, alpha and beta.
    gradient, rates = [torch.zeros_like(tensor) for tensor in at], torch.zeros_like(cotangent)
    for k in range(len(at[1])):  # one by one, because all eigenvectors would take much memory
        product, rates[:, k] = _with_one_atom(
            (at[0], *(tensor[k] for tensor in at[1:])),
            (along[0], *(tensor[k] for tensor in along[1:])),
            cotangent[:, k, :, None],
        )
        gradient[0].add_(product[0])
        for total, part in zip(gradient[1:], product[1:], strict=True):
            total[k] = part
    return tuple(gradient), rates


def _with_one_atom(at: Tensors, along: Tensors, weight: Tensor) -> tuple[Tensors, Tensor]:
    values, V = _solve_pencils(*at[:2])
    e, g = (V.mT @ direction @ V for direction in along[:2])
    t = values.log()
    a, b = (direction[:, None] for direction in along[2:])
    point = (tensor.cpu().numpy()[:, None] for tensor in (t, *at[2:]))
    arrays = _derivatives(*point, in_parameters=bool(a.any() | b.any()))
    f_t, f_alpha, f_beta, divided, t_alpha, t_beta, alpha_alpha, alpha_beta, beta_beta = (
        torch.from_numpy(np.asarray(array)).to(t.device) for array in arrays
    )
    t_rate = (e.diagonal(dim1=1, dim2=2) / values - g.diagonal(dim1=1, dim2=2))[:, None]
    q_rate = (weight * (a * t_alpha + b * t_beta)).sum(dim=1)  # by alpha and beta
    slope = (weight * f_t).sum(dim=1)
    q = (weight[..., None] * divided).sum(dim=1)
    p = (q - _pair_means(slope / values)) / _pair_means(values)
    r = q * _pair_means(values) + _pair_means(slope)
    in_X = p * e - q * g + torch.diag_embed(q_rate / values)
    in_atoms = r * g - q * e - torch.diag_embed(q_rate)
    in_alpha = t_alpha * t_rate + a * alpha_alpha + b * alpha_beta
    in_beta = t_beta * t_rate + a * alpha_beta + b * beta_beta
    gradient = (
        V @ in_X @ V.mT,
        (V @ in_atoms @ V.mT).sum(dim=0),
        (weight * in_alpha).sum(dim=(0, 2)),
        (weight * in_beta).sum(dim=(0, 2)),
    )
    return gradient, (f_t * t_rate + a * f_alpha + b * f_beta).sum(dim=2)


def _solve_pencils(X: Tensor, atom: Tensor) -> tuple[Tensor, Tensor]:
    """Generalized eigenvalues and eigenvectors, V^T B V = I."""
    factor = torch.linalg.cholesky(atom)
    half = torch.linalg.solve_triangular(factor, X, upper=False)
    white = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    values, Q = torch.linalg.eigh(0.5 * (white + white.mT))
    # Eigenvalues that are rounding errors must not become zero or negative.
    least = torch.finfo(values.dtype).eps * values[:, -1:]
    return values.clamp(min=least), torch.linalg.solve_triangular(factor.mT, Q, upper=True)


def _pair_means(values: Tensor) -> Tensor:
    return 0.5 * (values[..., :, None] + values[..., None, :])


def _derivatives(t: Array, alpha: Array, beta: Array, *, in_parameters: bool) -> tuple[Array, ...]:
    """Differentiate f(t; alpha, beta) for one atom, shapes (n_matrices, n_pairs, d)."""
    # Returned are f_t, f_alpha, f_beta, the divided differences of f_t, f_t_alpha, f_t_beta, and
    # the second derivatives in (alpha, alpha), (alpha, beta) and (beta, beta).
    first = abld_scalar(t, alpha, beta, derivatives=("f_t", "f_tt", "f_alpha", "f_beta"))
    # ``divided`` has another axis, and is (f_t(t_i) - f_t(t_j)) / (exp(t_i) - exp(t_j)).
    gap = (t[..., :, None] - t[..., None, :]) / 2
    center = (t[..., :, None] + t[..., None, :]) / 2
    root = np.sqrt(first.f_tt)
    ratio = _sinh_quotient((alpha + beta)[..., None] * gap) / _sinh_quotient(gap)
    divided = ratio * np.exp(-center) * root[..., :, None] * root[..., None, :]
    mixed = _slopes_in_parameters(t, alpha, beta, first.f_tt)[:2]
    pure = _in_parameters(t, alpha, beta) if in_parameters else (np.zeros(root.shape),) * 3
    return first.f_t, first.f_alpha, first.f_beta, divided, *mixed, *pure


def _sinh_quotient(x: Array) -> Array:
    safe = np.where(x == 0, 1.0, x)
    return np.where(x == 0, 1.0, np.sinh(safe) / safe)


def _slopes_in_parameters(t: Array, alpha: Array, beta: Array, f_tt: Array) -> tuple[Array, ...]:
    """Differentiate f_t in alpha, beta, (alpha, alpha), (alpha, beta) and (beta, beta)."""
    # f_t_alpha = -t^2 chi(theta t) f_tt and f_t_beta = t^2 chi(-theta t) f_tt, where f_tt = m^-2
    # with m = (alpha e^(theta t/2) + beta e^(-theta t/2)) / theta.
    theta = alpha + beta
    x = theta * t
    a = np.divide(alpha, theta, out=np.full_like(theta, 0.5), where=theta != 0)
    rise, fall = a * np.exp(x / 2), (1 - a) * np.exp(-x / 2)
    common, tilt = t * _sinh_quotient(x / 2) / (rise + fall), t * (rise - fall) / (rise + fall) / 2
    log_alpha, log_beta = (1 - a) * common + tilt, tilt - a * common  # of m
    with np.errstate(all="ignore"):  # in the branches of `where` that are not used
        both = np.stack([x, -x])
        chi = _chi(both)
        up, down = t * t * chi * f_tt
        curve_up, curve_down = t**3 * _kappa(both, chi) * f_tt
    in_alphas, in_both = 2 * up * log_alpha - curve_up, 2 * up * log_beta - curve_up
    return -up, down, in_alphas, in_both, -curve_down - 2 * down * log_beta


def _in_parameters(t: Array, alpha: Array, beta: Array) -> tuple[Array, ...]:
    """Second derivatives of f in the parameters: integrals of f_t_alpha_alpha, ... from 0 to t."""
    # Poles are at least pi/theta away from the real line: a Gaussian rule with three nodes per unit
    # of theta t is exact to rounding. With opposite signs a pole is real.
    if (alpha * beta < 0).any():
        raise ValueError(
            "alpha and beta have opposite signs, but second derivatives in both are known for the "
            "same sign only; detach alpha and beta, or keep both >= 0"
        )
    widest = float(np.abs((alpha + beta) * t).max(initial=0.0))
    nodes, weights = np.polynomial.legendre.leggauss(min(16 + int(3 * widest), _MAX_NODES))
    totals = [np.zeros(np.broadcast_shapes(t.shape, alpha.shape)) for _ in range(3)]
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        s = node * t
        f_tt = abld_scalar(s, alpha, beta, derivatives="f_tt").f_tt
        parts = _slopes_in_parameters(s, alpha, beta, f_tt)[2:]
        for total, part in zip(totals, parts, strict=True):
            total += weight * t * part
    return tuple(totals)
