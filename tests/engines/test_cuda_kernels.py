"""The kernels of the CUDA engine, as far as they can be known without a GPU."""

from __future__ import annotations

import pytest

from divlearn.engines import cuda_problem, get_engine
from divlearn.engines.cuda.kernels import LARGEST_DIMENSION, PART_OF, Kernels, source


def test_layouts_hold_every_dimension():
    for d in range(1, LARGEST_DIMENSION + 1):
        kernels = Kernels(d)
        assert kernels.shared() <= 227 << 10, d  # of a Hopper multiprocessor
        for layout in kernels.layouts.values():
            assert layout.team * layout.columns >= d
            assert layout.team & (layout.team - 1) == 0 or layout.team % 32 == 0, d
            assert layout.threads % 32 == 0, d


def test_sources_are_whole():
    for kernel in PART_OF:
        found = [part for part in Kernels(5).layouts if f"\n{kernel}(" in source(part)]
        assert len(found) == 1
    assert "#include" not in source("eigenvectors")
    assert source("jacobi").count("struct Team {") == 1


def test_a_machine_without_cuda_says_so():
    if cuda_problem() is None:
        assert get_engine("cuda").name == "cuda"
    else:
        with pytest.raises(ValueError, match=r"engine='cuda' does not run here: .*CUDA"):
            get_engine("cuda")
