"""Tests with one BLAS thread: small matrices gain nothing from more, and idle ones spin."""

import signal

import pytest
from short_fits import SHORT
from threadpoolctl import threadpool_limits

# What a shell starts in the background ignores Ctrl-C, and with it the test of how it is answered.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def short_fits(monkeypatch):
    """Few iterations and candidates are enough for tests of what is around them."""
    for name, few in SHORT.items():
        monkeypatch.setattr(f"divlearn.{name}", few)


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread():
    with threadpool_limits(1, user_api="blas"):
        yield
