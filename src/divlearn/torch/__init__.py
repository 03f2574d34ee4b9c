"""Divergences as a layer of torch networks: a differentiable encoding and a module around it."""

from divlearn.torch.functional import encode
from divlearn.torch.layer import DivergenceLayer
from divlearn.torch.retraction import exponential_step, retract_, riemannian_gradient

__all__ = ["DivergenceLayer", "encode", "exponential_step", "retract_", "riemannian_gradient"]
