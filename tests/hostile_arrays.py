"""Hostile arrays of matrices, and what may come of them: an answer or a sentence, nothing else."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from divlearn.spd import SPDRepairWarning

EXAMPLES = int(os.environ.get("DIVLEARN_ABUSE", 12))
abused = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# What a user may be told on the way to an answer.
ALLOWED = (ConvergenceWarning, SPDRepairWarning, UserWarning)


def definite(seed: int, n: int, d: int) -> np.ndarray:
    factors = np.random.default_rng(seed).standard_normal((n, d, d + 2))
    return factors @ factors.mT


def spread(X: np.ndarray, power: float) -> np.ndarray:
    """Matrices whose condition numbers are about ten to some power."""
    values, vectors = np.linalg.eigh(X)
    shape = np.logspace(0, -power, X.shape[-1]) if X.shape[-1] else np.ones(0)
    spread = (vectors * (values.max(axis=-1, keepdims=True, initial=1) * shape)[:, None, :]) @ (
        vectors.mT
    )
    return 0.5 * (spread + spread.mT)


def put(value: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Put a value in the middle."""

    def change(X: np.ndarray) -> np.ndarray:
        X = X.astype(np.result_type(X, type(value)))
        if X.size:
            X[len(X) // 2, 0, -1] = X[len(X) // 2, -1, 0] = value
        return X

    return change


def read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.setflags(write=False)
    return X


# What has a right answer, if any is there: strange only in how it is stored or how large it is.
STRANGE: dict[str, Callable[[np.ndarray], Any]] = {
    "huge": lambda X: 1e150 * X,
    "tiny": lambda X: 1e-150 * X,
    "huge and tiny": lambda X: X * np.logspace(-150, 150, max(len(X), 1))[: len(X), None, None],
    "graded": lambda X: X * np.multiply.outer(*2 * [np.logspace(-60, 60, X.shape[-1])]),
    "nearly singular": lambda X: spread(X, 15),
    "ill-conditioned": lambda X: spread(X, 9),
    "all equal": lambda X: np.broadcast_to(np.eye(X.shape[-1]), X.shape),
    "subnormal": lambda X: 1e-310 * X,
    "read-only": read_only,
    "fortran": lambda X: np.asfortranarray(X),
    "backwards": lambda X: X[::-1, ::-1, ::-1],
    "strided": lambda X: np.repeat(np.repeat(X, 2, axis=0), 2, axis=2)[::2, :, ::2],
    "transposed": lambda X: np.moveaxis(np.ascontiguousarray(np.moveaxis(X, 0, 2)), 2, 0),
    "lists": lambda X: X.tolist(),
    "single precision": lambda X: X.astype(np.float32),
    "half precision": lambda X: X.astype(np.float16),
    "long": lambda X: X.astype(np.longdouble),
    "integers": lambda X: np.rint(100 * X).astype(np.int64),
    "other byte order": lambda X: X.astype(">f8"),
}
# What has none: it must be refused.
WRONG: dict[str, Callable[[np.ndarray], Any]] = {
    "nan": put(np.nan),
    "infinite": put(np.inf),
    "complex": put(1j),
    "objects": lambda X: np.array([object()] * len(X)),
    "words": lambda X: np.full(X.shape, "a"),
    "nothing": lambda X: None,
    "number": lambda X: 3.0,
    "no matrices": lambda X: X[:0],
    "no rows": lambda X: X[:, :0, :0],
    "not square": lambda X: X[:, :, :-1],
    "one axis less": lambda X: X[:, 0],
    "one axis more": lambda X: X[None, None],
    "ragged": lambda X: [np.eye(2), np.eye(3)],
    "zero": lambda X: 0 * X,
    "negative": lambda X: -X,
    "not symmetric": lambda X: X + np.triu(np.ones(X.shape[-1]), 1) * np.abs(X).max(initial=1),
    "indefinite": lambda X: X * (1 - 2 * np.eye(X.shape[-1])),
    "dates": lambda X: X.astype("M8[s]"),
}
stacks = st.tuples(st.integers(0, 99), st.integers(1, 9), st.integers(1, 4))


def say(error: BaseException) -> str:
    return " ".join(str(error).split())


def attempt(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or the sentence with which it refuses; all else is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ALLOWED:
            warnings.simplefilter("ignore", kind)
        try:
            return call()
        except NotFittedError:
            raise
        except (ValueError, TypeError) as error:
            if len(say(error).split()) < 4:
                raise AssertionError(f"{error!r} is no sentence") from error
            return Refused(say(error))


class Refused(str):
    """The sentence of a refusal."""


def numbers(result: Any) -> Iterator[np.ndarray]:
    """All floating-point arrays in a result."""
    if isinstance(result, np.ndarray | np.generic | float):
        array = np.asarray(result)
        if array.dtype.kind == "f":
            yield array
    elif isinstance(result, dict):
        for value in result.values():
            yield from numbers(value)
    elif isinstance(result, list | tuple):
        for value in result:
            yield from numbers(value)
    elif dataclasses.is_dataclass(result):
        for field in dataclasses.fields(result):
            yield from numbers(getattr(result, field.name))


def assert_sound(result: Any) -> None:
    """There is no silent NaN."""
    for array in numbers(result):
        assert not np.isnan(array).any(), f"there are NaNs: {result}"
