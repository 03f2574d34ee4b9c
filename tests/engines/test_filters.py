"""Filters, atoms of a rank below their size: against mpmath, finite differences and full rank."""

from functools import cache

import mpmath
import numpy as np
import pytest
from conftest import every_instruction_set, make_engine, wishart
from numpy.testing import assert_allclose, assert_array_equal

from divlearn.arrays import to_host

LINE = np.array([[0.5, 0.5], [0.0, 1.0], [1.0, 0.0], [0.25, 0.75]])
OTHERS = np.array([[1.0, 1.0], [0.0, 0.0], [0.5, 0.5]])


def problem(n=21, d=7, n_filters=5, p=3, pairs=LINE, seed=0):
    rng = np.random.default_rng(seed)
    X = wishart(rng, n, d)
    filters = 0.5 * rng.standard_normal((n_filters, d, p))
    alpha, beta = (np.tile(one, (n_filters, 1)) for one in pairs.T)
    return X, filters, alpha, beta


def scalar(eigenvalue, a, b):
    """The function of the definition, at 50 digits."""
    t = mpmath.log(eigenvalue)
    a, b = mpmath.mpf(a), mpmath.mpf(b)
    if a == b == 0:
        return t**2 / 2
    if a == 0:
        return (mpmath.exp(b * t) - 1 - b * t) / b**2
    if b == 0:
        return (mpmath.exp(-a * t) - 1 + a * t) / a**2
    return mpmath.log((a * mpmath.exp(b * t) + b * mpmath.exp(-a * t)) / (a + b)) / (a * b)


@cache
def few(p: int, line: bool) -> tuple[tuple, np.ndarray]:
    """A small problem and its values, from 50 digits."""
    pairs = LINE if line else OTHERS
    X, filters, *_ = given = problem(n=3, n_filters=2, p=p, pairs=pairs)
    values = np.empty((3, 2, len(pairs) + 1))
    with mpmath.workdps(50):
        for i, k in np.ndindex(3, 2):
            V = mpmath.matrix(filters[k].tolist())
            small = V.T * mpmath.matrix(X[i].tolist()) * V
            eigenvalues = mpmath.eigsy(small, eigvals_only=True)
            right = [sum(scalar(one, a, b) for one in eigenvalues) for a, b in pairs.tolist()]
            values[i, k] = [*right, mpmath.det(small) ** (mpmath.mpf(1) / p)]
    return given, values


@every_instruction_set
@pytest.mark.parametrize("line", [True, False])
@pytest.mark.parametrize("p", [1, 2, 5])
def test_values_are_those_of_the_definition(engine, line, p):
    (X, *others), right = few(p, line)
    assert_allclose(to_host(engine.encode_filters(engine.keep(X), *others)), right, rtol=1e-12)


@every_instruction_set
def test_square_filters_are_atoms_of_full_rank(engine):
    X, filters, alpha, beta = problem(d=6, p=6)
    atoms = np.linalg.inv(filters @ filters.mT)
    data = engine.keep(X)
    values = to_host(engine.encode_filters(data, filters, alpha, beta))[..., :-1]
    assert_allclose(values, to_host(engine.encode(data, atoms, alpha, beta)), rtol=1e-9)


@every_instruction_set
@pytest.mark.parametrize(
    ("pairs", "p"), [(LINE, 1), (OTHERS, 1), (LINE, 4), (OTHERS, 4), (LINE, 9), (OTHERS, 17)]
)
def test_gradients_are_differences(engine, pairs, p):
    X, filters, alpha, beta = problem(d=20, p=p, pairs=pairs)
    alpha, beta = alpha + (pairs is OTHERS), beta + (pairs is OTHERS)  # off the axes
    data, rng = engine.keep(X), np.random.default_rng(1)
    shape = len(X), len(filters), len(pairs) + 1
    cotangent, step = rng.standard_normal(shape), rng.standard_normal(filters.shape)
    found, *slopes = engine.pull_filters(data, filters, alpha, beta, cotangent, parameters=True)
    without, *none = engine.pull_filters(data, filters, alpha, beta, cotangent)
    assert_allclose(to_host(without), to_host(found), rtol=1e-9, atol=1e-9)
    assert none == [None, None]

    def total(moved, a=alpha, b=beta):
        return float((cotangent * to_host(engine.encode_filters(data, moved, a, b))).sum())

    h = 1e-6
    slope = (total(filters + h * step) - total(filters - h * step)) / (2 * h)
    assert_allclose((to_host(found) * step).sum(), slope, rtol=1e-6)
    one = np.zeros_like(alpha)
    one[2, -1] = h  # off the axes for both kinds
    in_alpha = (total(filters, alpha + one) - total(filters, alpha - one)) / (2 * h)
    in_beta = (total(filters, b=beta + one) - total(filters, b=beta - one)) / (2 * h)
    assert_allclose([one[2, -1] for one in slopes], [in_alpha, in_beta], rtol=1e-5)


@every_instruction_set
def test_variables_of_other_units_change_nothing(engine):
    """Engines reorder variables of very different size, and scale matrices by powers of two."""
    X, filters, alpha, beta = problem()
    units = np.geomspace(1e-9, 1e9, X.shape[-1])[::-1]
    cotangent = np.random.default_rng(2).standard_normal((len(X), len(filters), len(LINE) + 1))
    plain = engine.keep(X), filters
    scaled = engine.keep(units[:, None] * X * units), filters / units[:, None]
    values = [to_host(engine.encode_filters(*one, alpha, beta)) for one in (plain, scaled)]
    assert_allclose(values[1], values[0], rtol=1e-9)
    pulled = [
        to_host(engine.pull_filters(*one, alpha, beta, cotangent)[0]) for one in (plain, scaled)
    ]
    assert_allclose(pulled[1] / units[:, None], pulled[0], rtol=1e-7)


@every_instruction_set
@pytest.mark.parametrize("p", [1, 2, 3])
def test_values_do_not_depend_on_other_filters(engine, p):
    X, filters, alpha, beta = problem(n_filters=23, d=9, p=p)
    data = engine.keep(X)
    values = to_host(engine.encode_filters(data, filters, alpha, beta))
    for k in range(len(filters)):
        alone = engine.encode_filters(data, *(array[k : k + 1] for array in (filters, alpha, beta)))
        assert_allclose(to_host(alone)[:, 0], values[:, k], rtol=1e-12, atol=1e-14)


@every_instruction_set
def test_threads_change_no_bit(engine_name):
    X, filters, alpha, beta = problem(n=300, n_filters=40)
    cotangent = np.random.default_rng(2).standard_normal((len(X), len(filters), len(LINE) + 1))
    results = []
    for n_threads in (1, 2):
        engine = make_engine(engine_name, n_threads)
        data = engine.keep(X)
        values = engine.encode_filters(data, filters, alpha, beta)
        pulled = engine.pull_filters(data, filters, alpha, beta, cotangent)[0]
        results.append((to_host(values), to_host(pulled)))
    for one, other in zip(*results, strict=True):
        assert_array_equal(one, other)


def test_what_is_no_number_is_refused(engine):
    X, filters, alpha, beta = problem()
    filters[1, 0, 0] = np.nan
    with pytest.raises(FloatingPointError, match="found no divergence of"):
        engine.encode_filters(engine.keep(X), filters, alpha, beta)


def test_a_gradient_that_is_no_number_is_refused(engine):
    X, filters, alpha, beta = problem()
    cotangent = np.ones((len(X), len(filters), len(LINE) + 1))
    filters[1, 0, 0] = np.nan
    with pytest.raises(FloatingPointError, match="no finite gradient of 1 of 5 atoms"):
        engine.pull_filters(engine.keep(X), filters, alpha, beta, cotangent)
