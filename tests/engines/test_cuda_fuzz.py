"""The CUDA engine on hostile spectra: no NaN, and what the native engine finds."""

import pytest
from engine_problems import has_native
from hostile_spectra import compare

from divlearn.engines import cuda_problem

if reason := cuda_problem():
    pytest.skip(f"no test runs on CUDA: {reason}", allow_module_level=True)


@pytest.mark.skipif(not has_native, reason="the native engine was not compiled")
@pytest.mark.parametrize(("d", "n_pairs"), [(3, 3e6), (8, 3e6), (18, 2e6), (33, 3e5), (51, 1e6)])
def test_engines_agree_on_hostile_spectra(d, n_pairs):
    assert compare(d, n_pairs)[0] < 1
