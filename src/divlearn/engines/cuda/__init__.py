"""The CUDA engine; see `divlearn.engines.cuda.engine`."""

from __future__ import annotations

from divlearn.engines.cuda.engine import CudaEngine

__all__ = ["CudaEngine"]
