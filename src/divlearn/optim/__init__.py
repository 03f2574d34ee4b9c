"""Optimisers on products of manifolds, in coordinates that move with the point."""
