r"""Simulated data: SPD matrices around known centres, and recordings of several subjects.

The three families of matrices share one density, :math:`p(X) \propto \exp(-\kappa D(X \,\|\, C))`
with respect to the affine-invariant volume. D is the Burg divergence, (alpha, beta) = (0, 1), for
Wishart matrices, its reverse (1, 0) for inverse Wishart matrices and half the squared
affine-invariant distance (0, 0) for the Riemannian Gaussian. In any direction they spread by about

.. math:: \sigma = \kappa^{-1/2}, \quad \kappa = \mathrm{dof} / 2,

in the affine-invariant metric, and ``separation`` counts the distances of the centres in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils import check_random_state, gen_batches

from divlearn.arrays import Indices, RealArray, as_real
from divlearn.checks import RandomState, check_count, check_number, is_number
from divlearn.divergence import pairwise_abld
from divlearn.geometry import compose
from divlearn.spd import check_spd
from divlearn.threads import limit_blas

_BLOCK_ENTRIES = 2**17  # of matrices that are drawn at a time
_SEPARATION_ERROR = 1e-4
_MAX_PLACING_STEPS = 50
_N_VARIANTS, _CONTRAST, _ARTIFACT = 4, 0.5, 8.0  # of recordings, see `make_recordings`


def make_wishart_clusters(
    n_clusters: int = 15,
    n_per_cluster: ArrayLike = 50,
    d: int = 5,
    *,
    dof: ArrayLike | None = None,
    separation: float = 10.0,
    condition: float = 10.0,
    shuffle: bool = True,
    random_state: RandomState = None,
    return_centers: bool = False,
    dtype: DTypeLike = np.float64,
) -> tuple[np.ndarray, ...]:
    r"""Clusters of Wishart matrices: sample covariances of Gaussian vectors.

    .. math:: X = \frac{1}{\mathrm{dof}} \sum_i z_i z_i^T, \quad z_i \sim N(0, C), \quad E[X] = C

    Parameters
    ----------
    n_clusters, n_per_cluster, d : int, default=15, 50 and 5; the second may be one per cluster.
    dof : float or array-like, shape (n_clusters,), optional
        Degrees of freedom, > d - 1 and not necessarily whole; 2 d + 4 by default. The matrices
        spread by :math:`\sigma = (2 / \mathrm{dof})^{1/2}` in every direction.
    separation : float, default=10
        Distance of two centres in units of :math:`\sigma`, as a root mean square over all pairs.
    condition : float, default=10, of the matrix around which the centres are placed.
    shuffle, return_centers : bool, default=True and False
    random_state : int, RandomState or None, default=None
    dtype : float32 or float64, default=float64

    Returns
    -------
    X, y[, centers] : ndarray, shape (n_matrices, d, d), (n_matrices,) and (n_clusters, d, d)

    Examples
    --------
    >>> make_wishart_clusters(3, 20, 4, random_state=0)[0].shape
    (60, 4, 4)
    """
    plan = ClusterPlan(
        n_clusters, n_per_cluster, d, separation, condition, shuffle, random_state, dtype
    )
    freedom = plan.per_cluster(2 * d + 4 if dof is None else dof, "dof")
    require(freedom > d - 1, freedom, "dof", f"> d - 1 = {d - 1}, or all are singular; raise dof")

    def draw(rows: slice) -> RealArray:
        row_dof = freedom[plan.labels[rows]]
        return _bartlett(row_dof, d, plan.random_state) / np.sqrt(row_dof)[:, None, None]

    return plan.make(np.sqrt(2 / freedom), draw, "raise dof", return_centers)


def make_inverse_wishart_clusters(
    n_clusters: int = 15,
    n_per_cluster: ArrayLike = 50,
    d: int = 5,
    *,
    dof: ArrayLike | None = None,
    separation: float = 10.0,
    condition: float = 10.0,
    shuffle: bool = True,
    random_state: RandomState = None,
    return_centers: bool = False,
    dtype: DTypeLike = np.float64,
) -> tuple[np.ndarray, ...]:
    r"""Clusters of inverse Wishart matrices: a few of their eigenvalues may be very large.

    :math:`X^{-1}` is a Wishart matrix, scaled such that :math:`E[X] = C`.

    Parameters
    ----------
    dof : float or array-like, shape (n_clusters,), optional
        Degrees of freedom, > d + 1, for the mean to exist; 2 d + 4 by default. Variances are finite
        if it is > d + 3.
    other parameters, and the result : as in `make_wishart_clusters`

    Examples
    --------
    >>> X, y = make_inverse_wishart_clusters(3, [10, 20, 30], 4, random_state=0)
    >>> X.shape, np.bincount(y).tolist()
    ((60, 4, 4), [10, 20, 30])
    """
    plan = ClusterPlan(
        n_clusters, n_per_cluster, d, separation, condition, shuffle, random_state, dtype
    )
    freedom = plan.per_cluster(2 * d + 4 if dof is None else dof, "dof")
    require(freedom > d + 1, freedom, "dof", f"> d + 1 = {d + 1}, or E[X] is infinite; raise dof")

    def draw(rows: slice) -> RealArray:
        row_dof = freedom[plan.labels[rows]]
        inverse = np.linalg.inv(_bartlett(row_dof, d, plan.random_state)).mT
        return inverse * np.sqrt(row_dof - d - 1)[:, None, None]

    return plan.make(np.sqrt(2 / freedom), draw, "raise dof", return_centers)


def make_recordings(
    n_recordings: int = 360,
    n_channels: int = 8,
    n_times: int = 64,
    *,
    n_classes: int = 3,
    n_subjects: int = 12,
    shift: float = 0.1,
    artifacts: float = 0.25,
    random_state: RandomState = None,
) -> tuple[RealArray, Indices, Indices]:
    r"""Simulate recordings of several channels, as in a brain-computer interface.

    .. math:: X = (I + \text{shift} \; G_s) \, A \, Z + u v^T

    A class has four variants, with different powers of the sources Z. Every subject s mixes them
    slightly differently. An artifact, eight times as strong as the signal, has a random pattern u.

    Parameters
    ----------
    n_recordings, n_channels, n_times : int, default=360, 8 and 64
    n_classes, n_subjects : int, default=3 and 12
    shift : float, default=0.1, size of the differences between subjects.
    artifacts : float, default=0.25, share of recordings with an artifact.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    X, y, subjects : ndarray, shape (n_recordings, n_channels, n_times) and (n_recordings,)

    Examples
    --------
    >>> make_recordings(random_state=0)[0].shape
    (360, 8, 64)
    """
    sizes = {"n_recordings": n_recordings, "n_channels": n_channels, "n_times": n_times}
    for name, size in (sizes | {"n_classes": n_classes, "n_subjects": n_subjects}).items():
        check_count(size, name)
    check_number(shift, "shift")
    if not is_number(artifacts) or not 0 <= artifacts <= 1:
        raise ValueError(f"{artifacts=} must be a number from 0 to 1")
    random = make_generator(random_state)
    variants, subjects = np.divmod(np.arange(n_recordings), n_subjects)
    variants %= _N_VARIANTS * n_classes
    mixing = random.standard_normal((n_channels, n_channels))
    powers = np.exp(_CONTRAST * random.standard_normal((_N_VARIANTS * n_classes, n_channels)))
    shifts = random.standard_normal((n_subjects, n_channels, n_channels)) / np.sqrt(n_channels)
    subject_mixing = mixing + shift * shifts @ mixing
    sources = np.sqrt(powers)[variants][:, :, None] * random.standard_normal(tuple(sizes.values()))
    X = subject_mixing[subjects] @ sources
    return X + _draw_artifacts(X.shape, artifacts, random), variants % n_classes, subjects


def _draw_artifacts(
    shape: tuple[int, ...], share: float, random: np.random.RandomState
) -> RealArray:
    n_recordings, n_channels, n_times = shape
    patterns = _ARTIFACT * np.sqrt(n_channels) * random.standard_normal((n_recordings, n_channels))
    patterns[random.uniform(size=n_recordings) >= share] = 0
    return patterns[:, :, None] * random.standard_normal((n_recordings, 1, n_times))


class ClusterPlan:
    """Checked arguments of `make_wishart_clusters`, with labels; `make` draws the matrices."""

    def __init__(
        self,
        n_clusters: int,
        n_per_cluster: ArrayLike,
        d: int,
        separation: float,
        condition: float,
        shuffle: bool,
        random_state: RandomState,
        dtype: DTypeLike,
    ) -> None:
        self.n_clusters = check_count(n_clusters, "n_clusters")
        self.d = check_count(d, "d")
        for name, value, least in (("separation", separation, 0), ("condition", condition, 1)):
            if as_real(value, name).ndim or value < least:
                raise ValueError(f"{name}={value} must be one number >= {least}")
        self.separation, self.condition = float(separation), float(condition)
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype={dtype!r} must be float32 or float64")
        self.random_state = make_generator(random_state)
        counts = np.asarray(n_per_cluster, dtype=object)
        self._check_shape(counts.shape, "n_per_cluster")
        counts = np.vectorize(check_count, otypes=[np.intp])(counts, "n_per_cluster")
        self.labels = np.repeat(np.arange(n_clusters), counts)
        if shuffle:
            self.random_state.shuffle(self.labels)

    def _check_shape(self, shape: tuple[int, ...], name: str) -> None:
        if shape not in ((), (self.n_clusters,)):
            raise ValueError(
                f"{name} has shape {shape}, must be one number or one per cluster: "
                f"{self.n_clusters}"
            )

    def per_cluster(self, values: ArrayLike, name: str) -> RealArray:
        real = as_real(values, name)
        self._check_shape(real.shape, name)
        return np.broadcast_to(real, self.n_clusters)

    def make(
        self, sigma: RealArray, draw: Callable[[slice], RealArray], fix: str, return_centers: bool
    ) -> tuple[np.ndarray, ...]:
        """Draw centres, and matrices around them in clusters of the spread ``sigma``."""
        # ``draw`` returns factors F of matrices F F^T around the identity, for rows of the data.
        X = np.empty((len(self.labels), self.d, self.d), self.dtype)
        try:
            # On small matrices, several threads of BLAS are slower than one.
            with limit_blas(1), np.errstate(all="ignore"):
                roots = self._draw_roots(self.separation * float(np.sqrt(np.mean(sigma**2))))
                centers = check_spd(roots @ roots.mT, dtype=self.dtype)
                for rows in row_blocks(len(X), self.d):
                    factors = roots[self.labels[rows]] @ draw(rows)
                    X[rows] = check_spd(factors @ factors.mT, dtype=self.dtype)
        except ValueError as error:
            dtype_fix = "" if self.dtype == np.float64 else ", or pass dtype=np.float64"
            raise ValueError(
                f"separation={self.separation:g}, condition={self.condition:g} and the spread of "
                f"the clusters give matrices that {self.dtype} cannot tell from singular ones; "
                f"{fix}, lower separation or condition{dtype_fix}"
            ) from error
        return (X, self.labels, centers) if return_centers else (X, self.labels)

    def _draw_roots(self, distance: float) -> RealArray:
        """Roots R of centres R R^T, whose distances have the given root mean square over pairs."""
        logarithms = np.linspace(-0.5, 0.5, self.d) * np.log(self.condition)
        units = np.exp(0.5 * (logarithms - logarithms.mean()))
        base = random_frames(1, self.d, self.random_state) * units
        tangents = self.random_state.standard_normal((self.n_clusters, self.d, self.d))
        if self.n_clusters == 1 or distance == 0:
            return np.repeat(base, self.n_clusters, axis=0)
        values, vectors = np.linalg.eigh(tangents + tangents.mT)
        scale = distance / (2 * self.d)
        # Because of the curvature, distances grow slightly faster than the tangents. Rounding
        # errors may keep the ratio from one, hence the limit of steps.
        for _ in range(_MAX_PLACING_STEPS):
            half_squares = pairwise_abld(compose(vectors, np.exp(scale * values)), alpha=0, beta=0)
            mean_square = 2 * half_squares.sum() / (self.n_clusters * (self.n_clusters - 1))
            ratio = distance / np.sqrt(mean_square)
            if abs(ratio - 1) < _SEPARATION_ERROR:
                break
            scale *= ratio
        return base @ compose(vectors, np.exp(0.5 * scale * values))


def row_blocks(n_matrices: int, d: int) -> Iterator[slice]:
    """Blocks of rows to draw at a time, which limit the memory beside the result."""
    return gen_batches(n_matrices, max(1, _BLOCK_ENTRIES // d**2))


def make_generator(random_state: RandomState) -> np.random.RandomState:
    # For None scikit-learn would use the global generator, which other code may seed.
    return check_random_state(np.random.RandomState() if random_state is None else random_state)


def require(valid: NDArray[np.bool_], values: RealArray, name: str, relation: str) -> None:
    """Raise an error that names the first value, one per cluster, that is not valid."""
    if not valid.all():
        index = int(np.argmin(valid))
        where = name if np.all(values == values[0]) else f"{name}[{index}]"
        raise ValueError(f"{where}={values[index]:g} must be {relation}")


def random_frames(n: int, d: int, random_state: np.random.RandomState) -> RealArray:
    """Orthogonal matrices V, uniform up to signs of columns, which cancel in V diag(t) V^T."""
    return np.linalg.qr(random_state.standard_normal((n, d, d)))[0]


def _bartlett(dof: RealArray, d: int, random_state: np.random.RandomState) -> RealArray:
    """Bartlett's factors: lower triangular A such that A A^T is Wishart around dof * identity."""
    factor = np.zeros((len(dof), d, d))
    index = np.arange(d)
    factor[:, index, index] = np.sqrt(random_state.chisquare(dof[:, None] - index))
    below = np.tril_indices(d, -1)
    factor[:, *below] = random_state.standard_normal((len(dof), len(below[0])))
    return factor
