r"""Random matrices of the density exp(-kappa D(X || C)) / Z."""

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.checks import RandomState, check_count
from divlearn.datasets.riemannian_gaussian import Potential, sample_log_eigenvalues
from divlearn.datasets.synthetic import make_generator, random_frames, row_blocks
from divlearn.likelihood.normalizer import check_family, smallest_kappa
from divlearn.spd import check_spd
from divlearn.spectral import abld_scalar
from divlearn.threads import limit_blas


def sample_family(
    alpha: float,
    beta: float,
    kappa: float,
    n_samples: int,
    center: ArrayLike,
    random_state: RandomState = None,
) -> RealArray:
    r"""Draw matrices from :math:`p(X) = e^{-\kappa D^{(\alpha,\beta)}(X \| C)} / Z`.

    It is a density with respect to the affine-invariant volume :math:`\det(X)^{-(d+1)/2} dX`: that
    of Wishart matrices of 2 kappa degrees of freedom and the mean C at (0, 1), see `log_density`.

    Parameters
    ----------
    alpha, beta, kappa, center : as in `log_density`
    n_samples : int, >= 1
    random_state : int, RandomState or None, default=None

    Returns
    -------
    ndarray, shape (n_samples, d, d)

    Notes
    -----
    Log-eigenvalues are drawn by rejection, eigenvectors uniformly. With kappa twice its lower bound
    about half of the candidates are accepted whatever d is, with large kappa nearly all, and a
    tenth where alpha and beta are both large.

    Examples
    --------
    >>> X = sample_family(0, 1, 10, 2000, np.eye(3), 0)
    >>> X.mean(axis=0).round(1) + 0.0  # Wishart matrices
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    """
    middle = check_spd(center, ndim=2, name="center", dtype=np.float64)
    d = len(middle)
    check_family(alpha, beta, kappa, d)
    count, generator = check_count(n_samples, "n_samples"), make_generator(random_state)
    t, _ = sample_log_eigenvalues(potential_of(alpha, beta, kappa), count, d, generator)
    try:
        return _rotate(t, np.linalg.cholesky(middle), generator)
    except ValueError as error:
        raise ValueError(
            f"kappa={kappa:g} is so close to (d - 1) / 2 max(alpha, beta) = "
            f"{smallest_kappa(alpha, beta, d):g} that draws cannot be told from singular matrices; "
            "raise kappa"
        ) from error


def _rotate(t: RealArray, factor: RealArray, generator: np.random.RandomState) -> RealArray:
    """Draw matrices around L L^T with these log-eigenvalues, or raise where they are singular."""
    n_samples, d = t.shape
    X = np.empty((n_samples, d, d))
    with limit_blas(1):
        for rows in row_blocks(n_samples, d):
            frames = random_frames(len(t[rows]), d, generator)
            roots = factor @ (frames * np.exp(0.5 * t[rows])[:, None, :])
            X[rows] = check_spd(roots @ roots.mT)
    return X


def potential_of(alpha: float, beta: float, kappa: float) -> Potential:
    def potential(t: RealArray) -> tuple[RealArray, RealArray, RealArray]:
        values = abld_scalar(t, alpha, beta, derivatives=("f_t", "f_tt"))
        return kappa * values.f, kappa * values.f_t, kappa * values.f_tt

    return potential
