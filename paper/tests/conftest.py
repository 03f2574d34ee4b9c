"""Tests with one BLAS thread: small matrices gain nothing from more, and idle ones spin."""

import signal

import pytest
from threadpoolctl import threadpool_limits

# What a shell starts in the background ignores Ctrl-C, and with it the test of how it is answered.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def short_mixtures(monkeypatch):
    """A few iterations are enough for tests of what is around them."""
    monkeypatch.setattr("divlearn.cluster.mixture.TOLERANCE", 1e-2)


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread():
    with threadpool_limits(1, user_api="blas"):
        yield
