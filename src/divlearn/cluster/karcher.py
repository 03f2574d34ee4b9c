"""k-means in the affine-invariant Riemannian metric."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from divlearn.cluster.fitting import LloydModel
from divlearn.cluster.parameters import Point, Rule
from divlearn.engines import Engine

__all__ = ["KarcherKMeans"]


class KarcherKMeans(LloydModel):
    r"""k-means in the affine-invariant Riemannian metric, with Karcher means for centroids.

    It minimises :math:`\frac12 \sum_i w_i \| \log(C^{-1/2} X_i C^{-1/2}) \|_F^2`, C the centroid
    nearest to :math:`X_i`: it is `ABKMeans` at (alpha, beta) = (0, 0).

    Parameters
    ----------
    n_clusters, init, n_init, max_iter, tol, solver, steps, random_state, engine, verbose
        As in `ABKMeans`.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, objective_, n_iter_, message_, history_, n_features_in_
        As in `ABKMeans`. The inertia is half the sum of squared distances.
    alpha_, beta_ : float, both zero.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> found = KarcherKMeans(3, random_state=0).fit(X)
    >>> found.cluster_centers_.shape
    (3, 4, 4)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | ArrayLike = "tangent",
        n_init: int = 4,
        max_iter: int = 100,
        tol: float = 1e-3,
        solver: str = "fixed-point",
        steps: int = 3,
        random_state: int | np.random.RandomState | None = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.steps = steps
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose

    def _rule(self) -> Rule:
        return Rule(Point(0.0, 0.0))
