"""Tests with one BLAS thread: small matrices gain nothing from more, and idle ones spin."""

import signal

import pytest
from threadpoolctl import threadpool_limits

# What a shell starts in the background ignores Ctrl-C, and with it the test of how it is answered.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def short_fits(monkeypatch):
    """Few iterations and candidates are enough for tests of what is around them."""
    for name, few in {
        "cluster.mixture.TOLERANCE": 1e-2,
        "baselines.log_svm.PENALTIES": {"linear": (10.0,), "rbf": (10.0,)},
        "baselines.log_svm.GAMMAS": (1.0,),
        "baselines.log_svm.VectorClassifier.cv": 2,
        "baselines.coded._PENALTIES": (10.0,),
        "baselines.coded._STEPS": 1,
        "baselines.rspdl._INNER": 10,
    }.items():
        monkeypatch.setattr(f"divlearn.{name}", few)


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread():
    with threadpool_limits(1, user_api="blas"):
        yield
