r"""The alpha-beta log-det divergence of SPD matrices, its gradients, and tables of it.

.. math:: D^{(\alpha,\beta)}(X \,\|\, Y) = \frac{1}{\alpha\beta}
          \log\det\frac{\alpha (X Y^{-1})^{\beta} + \beta (X Y^{-1})^{-\alpha}}{\alpha + \beta}
          = \sum_i f(\log\lambda_i; \alpha, \beta)

with :math:`\lambda_i` the eigenvalues of :math:`X Y^{-1}`. It is zero exactly for X = Y, invariant
under X, Y -> A X A^T, A Y A^T, and contains most named divergences: see `divlearn.get_divergence`.
Matrices may be complex Hermitian, for which the same formulas hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import DeviceArray, IntArray, RealArray, as_real
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.engines.data import cast_results, check_out, is_descending
from divlearn.engines.pencil import check_domain, congruence, decompose, factorize, whiteners
from divlearn.hermitian import from_real_form, is_complex, real_form
from divlearn.spd import check_spd
from divlearn.spectral import abld_scalar
from divlearn.tolerances import condition_limit

__all__ = ["DivergenceGradient", "abld", "abld_grad", "divergence_plane", "pairwise_abld"]

Point = tuple[float, float]  # alpha and beta
_SYMMETRIC_BLOCKS = 8  # of a symmetric table, whose upper blocks are copies of the lower


@dataclass(frozen=True, eq=False)
class DivergenceGradient:
    """A divergence and its partial derivatives.

    Attributes
    ----------
    value : ndarray, the divergence, of the broadcast leading shape.
    X, Y : ndarray, shape (..., d, d), gradients in the two matrices, symmetric.
    alpha, beta : ndarray, derivatives in the parameters.
    """

    value: RealArray
    X: RealArray
    Y: RealArray
    alpha: RealArray
    beta: RealArray


def abld(X: ArrayLike, Y: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> RealArray:
    """Alpha-beta log-det divergence D(X || Y), broadcast over leading dimensions.

    Parameters
    ----------
    X, Y : array-like, shape (..., d, d)
        SPD matrices, real or complex Hermitian.
    alpha, beta : float or array-like
        Parameters, any real numbers; arrays broadcast with the leading dimensions. With opposite
        signs the divergence is defined only while every eigenvalue of X Y^-1 lies in an interval.

    Examples
    --------
    >>> X, Y = np.diag([1.0, 4.0]), np.eye(2)
    >>> round(float(abld(X, Y, 0, 0)), 6)  # half the squared affine-invariant distance
    0.960906
    >>> round(float(abld(X, Y, 0, 1)), 6)  # Burg: tr(XY^-1) - logdet(XY^-1) - d
    1.613706
    """
    (X, Y), share = real_forms(X, Y)
    return share * compare(*check_pair(X, Y), alpha, beta)


def real_forms(*sets: ArrayLike | Prepared | None) -> tuple[list[Any], float]:
    """Real forms of Hermitian matrices, and the factor that corrects their divergences."""
    # One complex set makes all of them complex; `Prepared` sets are real forms already.
    if not any(map(is_complex, sets)):
        return list(sets), 1.0
    forms = [
        X if X is None or isinstance(X, Prepared) else real_form(X, name, always=True)
        for X, name in zip(sets, "XY", strict=False)
    ]
    return forms, 0.5


def compare(first: RealArray, second: RealArray, alpha: ArrayLike, beta: ArrayLike) -> RealArray:
    """`abld` of checked matrices."""
    a, b = as_real(alpha, "alpha"), as_real(beta, "beta")
    single = a.ndim == b.ndim == 0 and np.sign(a) * np.sign(b) >= 0
    if single and second.ndim > first.ndim == 2:
        return compare(second, first, beta, alpha)  # D^(a,b)(X||Y) = D^(b,a)(Y||X)
    if single and second.ndim == 2:
        d = first.shape[-1]
        many = first.reshape(-1, d, d).astype(np.result_type(first, second), copy=False)
        operands = Prepared.checked(many), Prepared.checked(second[None])
        return get_engine().encode(*operands, alpha, beta).reshape(first.shape[:-2])[()]
    pairs = Pairs(first, second, alpha, beta)
    t, _ = pairs.decompose(vectors=False)
    pairs.check_domain(t)
    scalar = abld_scalar(t, pairs.alpha, pairs.beta, derivatives=())
    return pairs.finish(scalar.f.sum(axis=-1))


def abld_grad(X: ArrayLike, Y: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> DivergenceGradient:
    r"""Divergence with its gradients in both matrices and both parameters.

    With :math:`X V = Y V \Lambda`, :math:`V^T Y V = I` and :math:`t = \log\lambda`,

    .. math:: \nabla_Y D = -V \operatorname{diag}(f_t(t)) V^T, \qquad
              \nabla_X D = V \operatorname{diag}(f_t(t) / \lambda) V^T .

    Parameters
    ----------
    X, Y, alpha, beta : as in `abld`

    Examples
    --------
    >>> gradient = abld_grad(np.diag([1.0, 4.0]), np.eye(2), 0, 1)
    >>> gradient.Y.round(9) + 0.0  # Y^-1 - Y^-1 X Y^-1
    array([[ 0.,  0.],
           [ 0., -3.]])
    """
    (X, Y), share = real_forms(X, Y)
    if share != 1:
        grad = abld_grad(X, Y, alpha, beta)
        in_x, in_y = map(from_real_form, (grad.X, grad.Y))  # of Re tr(G dX), so not halved
        slopes = share * grad.alpha, share * grad.beta
        return DivergenceGradient(share * grad.value, in_x, in_y, *slopes)
    first, second = check_pair(X, Y)
    pairs = Pairs(first, second, alpha, beta)
    t, vectors = pairs.decompose(vectors=True)
    pairs.check_domain(t)
    scalar = abld_scalar(t, pairs.alpha, pairs.beta, derivatives=("f_t", "f_alpha", "f_beta"))
    in_y = pairs.gradient(vectors, scalar.f_t)
    # D^(a,b)(X||Y) = D^(b,a)(Y||X): with X and Y swapped, small eigenvalues become large ones, and
    # both gradients keep their accuracy.
    swapped = Pairs(second, first, beta, alpha)
    t, vectors = swapped.decompose(vectors=True)
    slope = abld_scalar(t, swapped.alpha, swapped.beta, derivatives="f_t").f_t
    in_x = swapped.gradient(vectors, slope)
    f, f_alpha, f_beta = (v.sum(axis=-1) for v in (scalar.f, scalar.f_alpha, scalar.f_beta))
    return DivergenceGradient(*map(pairs.finish, (f, in_x, in_y, f_alpha, f_beta)))


def pairwise_abld(
    X: ArrayLike | Prepared,
    Y: ArrayLike | Prepared | None = None,
    *,
    alpha: float,
    beta: float,
    engine: str | Engine = "auto",
    n_threads: int | None = None,
    out: RealArray | None = None,
) -> RealArray:
    """Divergences of every matrix of X to every matrix of Y.

    Parameters
    ----------
    X : array-like, shape (n_matrices_X, d, d), or data prepared by an engine
    Y : the same, shape (n_matrices_Y, d, d), optional
        X itself by default; the diagonal is then exactly zero, and with alpha = beta only half
        of the table is computed.
    alpha, beta : float
    engine : str or Engine, default="auto"
    n_threads : int, optional
        Threads to use; all by default. Ignored if ``engine`` is an engine already.
    out : ndarray, shape (n_matrices_X, n_matrices_Y), optional
        Where to write the table, for example a memory map.

    Examples
    --------
    >>> X = np.array([np.eye(2), 2 * np.eye(2)])
    >>> pairwise_abld(X, alpha=0, beta=1).round(4)
    array([[0.    , 0.3863],
           [0.6137, 0.    ]])
    """
    engine = get_engine(engine, n_threads)
    (X, Y), share = real_forms(X, Y)
    if share != 1:
        table = pairwise_abld(X, Y, alpha=alpha, beta=beta, engine=engine, out=out)
        return np.multiply(table, share, out=table)
    data = engine.prepare(X)
    if Y is not None:
        atoms = Y if isinstance(Y, Prepared) else Prepared.checked(check_spd(Y, ndim=3, name="Y"))
        if atoms.engine == engine.name and out is None:
            return encode_pairs(engine, data, atoms, [(alpha, beta)])[..., 0]
        return engine.encode(keep_prepared(engine, data, atoms.dtype), atoms, alpha, beta, out=out)
    out = check_out(out, (data.n_matrices, data.n_matrices), data.dtype)
    if np.ndim(alpha) == np.ndim(beta) == 0 and alpha == beta and len(out) > 64:
        _fill_symmetric(engine, data.matrices, alpha, out)
    else:
        engine.encode(data, Prepared.checked(data.matrices), alpha, beta, out=out)
    np.fill_diagonal(out, 0.0)
    return out


def encode_pairs(engine: Engine, X: Prepared, Y: Prepared, points: ArrayLike) -> RealArray:
    """Divergences of X to Y, shape (n_matrices_X, n_matrices_Y, n_points).

    Points are pairs (alpha, beta), shape (n_points, 2).

    Engines are fastest on much data and few atoms, so that the larger set is the data. It keeps
    what is prepared of it.
    """

    def encode(data: Prepared, atoms: Prepared, pairs: RealArray) -> RealArray:
        alpha, beta = np.broadcast_to(pairs[:, None], (2, atoms.n_matrices, len(pairs[0])))
        return engine.encode(keep_prepared(engine, data, atoms.dtype), atoms, alpha, beta)

    pairs = np.asarray(points).T
    if X.n_matrices >= Y.n_matrices:
        return encode(X, Y, pairs)
    # D^(a,b)(X || Y) = D^(b,a)(Y || X)
    return np.swapaxes(encode(Y, X, pairs[::-1]), 0, 1)


def keep_prepared(engine: Engine, data: Prepared, dtype: np.dtype) -> Prepared:
    """Prepare data in the common type of data and others, which the data keep for further calls."""
    common = np.result_type(data.dtype, dtype)
    if data.dtype == common and data.engine == engine.name:
        return data

    def prepare() -> Prepared:
        return engine.prepare(Prepared.checked(data.matrices.astype(common, copy=False)))

    return data.cached((engine.name, common), prepare)


def _fill_symmetric(engine: Engine, matrices: RealArray, alpha: float, out: RealArray) -> None:
    for start, stop in pairwise(np.linspace(0, len(out), _SYMMETRIC_BLOCKS + 1).astype(int)):
        rows, atoms = matrices[start:], matrices[start:stop]
        block = engine.encode(Prepared.checked(rows), Prepared.checked(atoms), alpha, alpha)
        out[start:, start:stop] = block
        out[start:stop, start:] = block.T


def divergence_plane(
    X: ArrayLike | Prepared,
    Y: ArrayLike,
    alphas: ArrayLike,
    betas: ArrayLike,
    *,
    engine: str | Engine = "auto",
    n_threads: int | None = None,
    out: RealArray | None = None,
) -> RealArray:
    """Divergences (n_matrices_X, n_matrices_Y, n_alphas, n_betas), from one pass of spectra.

    Parameters
    ----------
    X : array-like, shape (n_matrices_X, d, d), or data prepared by an engine
    Y : array-like, shape (n_matrices_Y, d, d)
    alphas, betas : array-like, shape (n_alphas,) and (n_betas,)
    engine, n_threads, out : as in `pairwise_abld`

    Examples
    --------
    >>> X, Y = np.array([np.eye(2)]), np.array([np.diag([1.0, 4.0])])
    >>> divergence_plane(X, Y, [0, 1], [0, 1]).shape
    (1, 1, 2, 2)
    """
    engine = get_engine(engine, n_threads)
    (X, Y), share = real_forms(X, Y)
    if share != 1:
        plane = divergence_plane(X, Y, alphas, betas, engine=engine, out=out)
        return np.multiply(plane, share, out=plane)
    data, atoms = engine.prepare(X), check_spd(Y, ndim=3, name="Y")
    first, second = np.atleast_1d(np.asarray(alphas)), np.atleast_1d(np.asarray(betas))
    if first.ndim != 1 or second.ndim != 1:
        raise ValueError(
            f"alphas has shape {first.shape} and betas {second.shape}, but both must be "
            "one-dimensional: the grid is their product"
        )
    shape = (data.n_matrices, len(atoms), len(first), len(second))
    out = check_out(out, shape, data.dtype)
    grid = np.stack(np.meshgrid(first, second, indexing="ij")).reshape(2, 1, -1)
    pairs = np.broadcast_to(grid, (2, len(atoms), grid.shape[2]))
    flat = out.reshape(*shape[:2], -1)
    engine.encode(data, atoms, pairs[0], pairs[1], out=flat)
    if not np.shares_memory(flat, out):  # out was not contiguous
        out[...] = flat.reshape(shape)
    return out


def nonnegative_point(alpha: float, beta: float) -> tuple[float, float]:
    """Return parameters >= 0 of the same divergence: D^(-a,-b) = D^(b,a)."""
    if min(alpha, beta) < 0 < max(alpha, beta):
        raise ValueError(
            f"(alpha, beta) = ({alpha:g}, {beta:g}) must not have opposite signs, for which D is "
            "not defined for every pair of matrices; change the sign of one"
        )
    first, second = (alpha, beta) if max(alpha, beta) > 0 else (-beta, -alpha)
    return first + 0.0, second + 0.0  # no -0.0


def check_pair(
    X: ArrayLike, Y: ArrayLike, *, ndim: int | None = None
) -> tuple[RealArray, RealArray]:
    first, second = check_spd(X, ndim=ndim), check_spd(Y, ndim=ndim, name="Y")
    check_sizes(first, second)
    return first, second


def check_sizes(first: RealArray, second: RealArray) -> None:
    if first.shape[-1] != second.shape[-1]:
        raise ValueError(
            f"X is {first.shape[-1]} by {first.shape[-1]}, but Y is {second.shape[-1]} by "
            f"{second.shape[-1]}; both must have the same dimension"
        )


class Pairs:
    """Pairs of checked matrices, flattened over their broadcast leading dimensions."""

    def __init__(self, X: RealArray, Y: RealArray, alpha: ArrayLike, beta: ArrayLike) -> None:
        a, b = as_real(alpha, "alpha"), as_real(beta, "beta")
        shapes = X.shape[:-2], Y.shape[:-2], a.shape, b.shape
        try:
            self.leading = np.broadcast_shapes(*shapes)
        except ValueError:
            raise ValueError(
                f"the leading dimensions of X {shapes[0]}, Y {shapes[1]}, alpha {shapes[2]} and "
                f"beta {shapes[3]} do not broadcast; for all pairs use pairwise_abld"
            ) from None
        self.dtype = np.result_type(X, Y)
        self.alpha = np.broadcast_to(a, self.leading).reshape(-1, 1)
        self.beta = np.broadcast_to(b, self.leading).reshape(-1, 1)
        X, Y, self.order = self._sort(X, Y)
        self._factor, _, exponent = self._factorize(X)
        _, self._whitener, self._unit = self._factorize(Y)
        self._exponent = exponent - self._unit

    def _sort(self, X: RealArray, Y: RealArray) -> tuple[RealArray, RealArray, IntArray | None]:
        """Sort the variables of graded pairs by descending x_ii/y_ii, for accurate factors."""
        d = X.shape[-1]
        first, second = (np.diagonal(Z, axis1=-2, axis2=-1).astype(np.float64) for Z in (X, Y))
        sizes = np.broadcast_to(np.log(first) - np.log(second), (*self.leading, d))
        if is_descending(sizes):
            return X, Y, None
        order = np.argsort(-sizes, axis=-1, kind="stable")
        rows, columns = order[..., :, None], order[..., None, :]
        full = (np.broadcast_to(Z, (*self.leading, d, d)) for Z in (X, Y))
        X, Y = (np.take_along_axis(np.take_along_axis(Z, rows, -2), columns, -1) for Z in full)
        return X, Y, order.reshape(-1, d)

    def _factorize(self, matrices: RealArray) -> tuple[RealArray, RealArray, IntArray]:
        """Cholesky factors of matrices scaled by 2^-exponent, their inverses, and exponents."""
        # Factor before broadcasting, so that each matrix is factored once.
        d = matrices.shape[-1]
        factor, exponent = factorize(matrices.reshape(-1, d, d))
        exponents = np.broadcast_to(exponent.reshape(matrices.shape[:-2]), self.leading).ravel()
        inverse = whiteners(factor).reshape(matrices.shape)
        return self._spread(factor.reshape(matrices.shape)), self._spread(inverse), exponents

    def _spread(self, matrices: RealArray) -> RealArray:
        d = matrices.shape[-1]
        return np.broadcast_to(matrices, (*self.leading, d, d)).reshape(-1, d, d)

    def decompose(self, *, vectors: bool) -> tuple[RealArray, DeviceArray]:
        """Log-eigenvalues, and vectors or None, in the frame of Y's Cholesky factor."""
        return decompose(self._whitener @ self._factor, self._exponent, condition_limit(), vectors)

    def gradient(self, vectors: RealArray, slope: RealArray) -> RealArray:
        """Gradient in Y: ``-V diag(f_t) V^T`` with ``V = L_Y^-T Z``."""
        inner = (vectors * slope[:, None, :]) @ vectors.mT
        gradient = congruence(self._whitener, -inner, self._unit)
        if self.order is None:
            return gradient
        back = np.argsort(self.order, axis=-1)
        gradient = np.take_along_axis(gradient, back[:, :, None], axis=1)
        return np.take_along_axis(gradient, back[:, None, :], axis=2)

    def check_domain(self, t: RealArray) -> None:
        opposite = np.flatnonzero(np.sign(self.alpha) * np.sign(self.beta) < 0)
        for row in opposite:
            index = np.unravel_index(row, self.leading) if self.leading else ()
            where = f"[{', '.join(str(i) for i in index)}]" if index else ""
            check_domain(
                t[row : row + 1],
                float(self.alpha[row, 0]),
                float(self.beta[row, 0]),
                names=lambda _, where=where: f"X and Y{where}",  # type: ignore[misc]
            )

    def finish(self, values: RealArray) -> RealArray:
        """Restore the leading dimensions and the type; a single pair gives a scalar."""
        shaped = cast_results(values.reshape((*self.leading, *values.shape[1:])), self.dtype)
        return shaped if shaped.ndim else shaped[()]
