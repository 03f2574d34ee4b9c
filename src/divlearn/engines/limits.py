"""Where the routes without eigenvalues are accurate enough: the same on every device."""

from __future__ import annotations

__all__ = [
    "LARGEST_SPREAD", "LEAST_ALPHA", "LOGDET_EXPONENT", "SMALLEST_TRACE", "TRACE_EXPONENT",
]  # fmt: skip

# Differences of traces and log-determinants have absolute errors, about eps times the condition
# number; they serve where that is small against the result.
LARGEST_SPREAD = 1e6
SMALLEST_TRACE = 0.005  # divergence by traces, for each dimension
TRACE_EXPONENT = 16  # powers of two by which sizes may differ where traces are used

LEAST_ALPHA = 0.05  # the gradient without eigenvectors divides by alpha
LOGDET_EXPONENT = 300  # powers of two by which sizes may differ where it is used
