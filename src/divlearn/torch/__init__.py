"""Divergences as a layer of torch networks: a differentiable encoding, and a module of it."""

from divlearn.torch.functional import encode, encode_filters
from divlearn.torch.layer import DivergenceLayer

__all__ = ["DivergenceLayer", "encode", "encode_filters"]
