"""Optimisers on products of manifolds, in coordinates that move with the point."""

from divlearn.optim.adam import Moments
from divlearn.optim.gradients import minimize_conjugate_gradient, minimize_projected_gradient
from divlearn.optim.lbfgs import minimize_lbfgs
from divlearn.optim.problem import Problem, Progress, Result, Trial

__all__ = [
    "Moments", "Problem", "Progress", "Result", "Trial", "minimize_conjugate_gradient",
    "minimize_lbfgs", "minimize_projected_gradient",
]  # fmt: skip
