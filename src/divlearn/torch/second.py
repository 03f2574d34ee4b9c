r"""Second derivatives of the encoding: its Hessian times a direction.

With :math:`V^T B V = I` and :math:`V^T X V = \Lambda` the gradients are :math:`V p(\Lambda) V^T`
in X and :math:`-V q(\Lambda) V^T` in B, where :math:`q(\lambda) = f_t(\log \lambda)` and
:math:`p = q / \lambda`. Along E and F, with
:math:`e = V^T E V` and :math:`g = V^T F V`, they change by

.. math:: V (p_{ij} e_{ij} - q_{ij} g_{ij}) V^T, \qquad V (r_{ij} g_{ij} - q_{ij} e_{ij}) V^T

where two indices denote the divided differences of p, of q and of :math:`r = \lambda q`. All three
follow from those of q, which have a closed form without a difference: equal eigenvalues do no harm.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.spectral import _chi, _kappa, abld_scalar

Array = NDArray[np.float64]
Tensors = tuple[torch.Tensor, ...]
_MOST_NODES = 400  # of a quadrature: enough for |(alpha + beta) t| up to 128


@torch.no_grad()
def hessian_product(
    at: Tensors, along: Tensors, cotangent: torch.Tensor
) -> tuple[Tensors, torch.Tensor]:
    """Differentiate the gradient of (cotangent * encode).sum(), and encode itself, ``along``."""
    gradient, rates = [torch.zeros_like(tensor) for tensor in at], torch.zeros_like(cotangent)
    for k in range(len(at[1])):  # eigenvectors of all pairs at once would not fit
        one, rates[:, k] = _with_one_atom(
            (at[0], *(part[k] for part in at[1:])),
            (along[0], *(part[k] for part in along[1:])),
            cotangent[:, k, :, None],
        )
        gradient[0].add_(one[0])
        for total, part in zip(gradient[1:], one[1:], strict=True):
            total[k] = part
    return tuple(gradient), rates


def _with_one_atom(
    at: Tensors, along: Tensors, weight: torch.Tensor
) -> tuple[Tensors, torch.Tensor]:
    values, V = _pencils(*at[:2])
    e, g = (V.mT @ one @ V for one in along[:2])
    t = values.log()
    a, b = (one[:, None] for one in along[2:])
    scalar = _Scalars(t, *at[2:], in_parameters=bool((a != 0).any() | (b != 0).any()))
    speed = (e.diagonal(dim1=1, dim2=2) / values - g.diagonal(dim1=1, dim2=2))[:, None]  # of t
    turn = (weight * (a * scalar.t_alpha + b * scalar.t_beta)).sum(dim=1)
    slope = (weight * scalar.t).sum(dim=1)
    q = (weight[..., None] * scalar.divided).sum(dim=1)
    p = (q - _halfway(slope / values)) / _halfway(values)
    r = q * _halfway(values) + _halfway(slope)
    in_X = p * e - q * g + torch.diag_embed(turn / values)
    in_atoms = r * g - q * e - torch.diag_embed(turn)
    in_alpha = scalar.t_alpha * speed + a * scalar.alpha_alpha + b * scalar.alpha_beta
    in_beta = scalar.t_beta * speed + a * scalar.alpha_beta + b * scalar.beta_beta
    gradient = (
        V @ in_X @ V.mT,
        (V @ in_atoms @ V.mT).sum(dim=0),
        (weight * in_alpha).sum(dim=(0, 2)),
        (weight * in_beta).sum(dim=(0, 2)),
    )
    return gradient, (scalar.t * speed + a * scalar.alpha + b * scalar.beta).sum(dim=2)


def _pencils(X: torch.Tensor, atom: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Generalized eigenvalues and eigenvectors, V^T B V = I."""
    factor = torch.linalg.cholesky(atom)
    half = torch.linalg.solve_triangular(factor, X, upper=False)
    white = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    values, Q = torch.linalg.eigh(0.5 * (white + white.mT))
    # What rounding alone decides must not become zero or negative.
    least = torch.finfo(values.dtype).eps * values[:, -1:]
    return values.clamp(min=least), torch.linalg.solve_triangular(factor.mT, Q, upper=True)


def _halfway(values: torch.Tensor) -> torch.Tensor:
    return 0.5 * (values[..., :, None] + values[..., None, :])


class _Scalars:
    """Derivatives of f(t; alpha, beta), shape (n_matrices, n_pairs, d), for one atom."""

    def __init__(
        self, t: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor, *, in_parameters: bool
    ) -> None:
        t_, a, b = (x.cpu().numpy() for x in (t[:, None], alpha[:, None], beta[:, None]))
        first: Any = abld_scalar(t_, a, b, derivatives=("f_t", "f_tt", "f_alpha", "f_beta"))
        # With one more axis, ``divided`` is (f_t(t_i) - f_t(t_j)) / (exp(t_i) - exp(t_j)).
        gap = (t_[..., :, None] - t_[..., None, :]) / 2
        center = (t_[..., :, None] + t_[..., None, :]) / 2
        root = np.sqrt(first.f_tt)
        ratio = _sinh_quotient((a + b)[..., None] * gap) / _sinh_quotient(gap)
        divided = ratio * np.exp(-center) * root[..., :, None] * root[..., None, :]
        mixed = _slopes_in_parameters(t_, a, b, first.f_tt)[:2]
        pure = _in_parameters(t_, a, b) if in_parameters else (np.zeros(root.shape),) * 3
        arrays = (first.f_t, first.f_alpha, first.f_beta, divided, *mixed, *pure)
        (
            self.t,
            self.alpha,
            self.beta,
            self.divided,
            self.t_alpha,
            self.t_beta,
            self.alpha_alpha,
            self.alpha_beta,
            self.beta_beta,
        ) = (torch.from_numpy(np.asarray(array)).to(t.device) for array in arrays)


def _sinh_quotient(x: Array) -> Array:
    safe = np.where(x == 0, 1.0, x)
    return np.where(x == 0, 1.0, np.sinh(safe) / safe)


def _slopes_in_parameters(
    t: Array, alpha: Array, beta: Array, f_tt: RealArray
) -> tuple[Array, ...]:
    """Differentiate f_t in alpha, beta, (alpha, alpha), (alpha, beta) and (beta, beta)."""
    # f_t_alpha = -t^2 chi(theta t) f_tt and f_t_beta = t^2 chi(-theta t) f_tt, where f_tt = m^-2
    # with m = (alpha e^(theta t/2) + beta e^(-theta t/2)) / theta.
    theta = alpha + beta
    x = theta * t
    a = np.divide(alpha, theta, out=np.full_like(theta, 0.5), where=theta != 0)
    rise, fall = a * np.exp(x / 2), (1 - a) * np.exp(-x / 2)
    common, tilt = t * _sinh_quotient(x / 2) / (rise + fall), t * (rise - fall) / (rise + fall) / 2
    log_alpha, log_beta = (1 - a) * common + tilt, tilt - a * common  # of m
    with np.errstate(all="ignore"):  # of branches not taken
        up, down = (t * t * _chi(y) * f_tt for y in (x, -x))
        bend_up, bend_down = (t**3 * _kappa(y) * f_tt for y in (x, -x))
    in_alphas, in_both = 2 * up * log_alpha - bend_up, 2 * up * log_beta - bend_up
    return -up, down, in_alphas, in_both, -bend_down - 2 * down * log_beta


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
    nodes, weights = np.polynomial.legendre.leggauss(min(16 + int(3 * widest), _MOST_NODES))
    totals = [np.zeros(np.broadcast_shapes(t.shape, alpha.shape)) for _ in range(3)]
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        s = node * t
        f_tt: Any = abld_scalar(s, alpha, beta, derivatives="f_tt").f_tt
        parts = _slopes_in_parameters(s, alpha, beta, f_tt)[2:]
        for total, part in zip(totals, parts, strict=True):
            total += weight * t * part
    return tuple(totals)
