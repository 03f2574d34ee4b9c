"""Kernels for coding: values, gradients, and the bandwidths that keep them positive definite."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import wishart
from scipy.linalg import logm

from divlearn.baselines.kernel_codes import check_bandwidth, nearest_bandwidth, view_by
from divlearn.divergence import get_divergence
from divlearn.spd import expm, usable

NAMES = ["log-euclidean", "stein"]
STEIN = get_divergence("stein")


def symmetric(rng, n, d, size=1.0):
    S = size * rng.standard_normal((n, d, d))
    return 0.5 * (S + S.mT)


def eigenvalues(name, X, bandwidth):
    return np.linalg.eigvalsh(view_by(name, X, X).kernels(bandwidth)[1])


def test_values_are_those_of_the_formulas():
    rng = np.random.default_rng(0)
    X, Y = wishart(rng, 6, 4), wishart(rng, 3, 4)
    logarithms = [[logm(one) for one in matrices] for matrices in (X, Y)]
    expected = [[np.linalg.norm(x - y) ** 2 for y in logarithms[1]] for x in logarithms[0]]
    np.testing.assert_allclose(view_by("log-euclidean", X, Y).to_atoms, expected, rtol=1e-8)
    expected = [
        [
            np.log(np.linalg.det((x + y) / 2)) - 0.5 * np.log(np.linalg.det(x) * np.linalg.det(y))
            for y in Y
        ]
        for x in X
    ]
    np.testing.assert_allclose(view_by("stein", X, Y).to_atoms, expected, rtol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_differences(name):
    rng = np.random.default_rng(1)
    atoms = wishart(rng, 4, 3)
    view = view_by(name, wishart(rng, 7, 3), atoms)
    cotangent, between = rng.standard_normal((7, 4)), rng.standard_normal((4, 4))
    between = between + between.T
    point = view.to_point(atoms)

    def value(at):
        moved = view.span(view.from_point(at))
        return (cotangent * moved.to_atoms).sum() + (between * moved.between).sum()

    gradient = view.pull(point, cotangent, between)
    assert gradient.shape == point.shape
    for _ in range(5):
        step = rng.standard_normal(point.shape)
        step = step + step.mT if name == "stein" else step
        h = 1e-5
        slope = (value(view.move(point, h * step)) - value(view.move(point, -h * step))) / 2 / h
        assert slope == pytest.approx(np.vdot(gradient, step), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_points_are_atoms(name):
    atoms = wishart(np.random.default_rng(0), 4, 3)
    view = view_by(name, atoms, atoms)
    point = view.to_point(atoms)
    np.testing.assert_allclose(view.from_point(point), atoms, rtol=1e-9)
    assert not usable(view.from_point(view.move(point, np.full(point.shape, -1e3))))


@pytest.mark.parametrize("bandwidth", [0.01, 0.3, 5.0])
def test_the_log_euclidean_kernel_is_positive_definite_for_every_bandwidth(bandwidth):
    X = expm(symmetric(np.random.default_rng(0), 200, 3))
    divergence = get_divergence("log-euclidean")
    assert check_bandwidth(bandwidth, divergence, 3) == bandwidth
    assert nearest_bandwidth(bandwidth, divergence, 3) == bandwidth
    values = eigenvalues("log-euclidean", X, bandwidth)
    assert values[0] > -1e-12 * values[-1]


def test_the_stein_kernel_is_positive_definite_where_the_theorem_says_and_not_elsewhere():
    X = expm(symmetric(np.random.default_rng(0), 300, 3, 0.3))
    for bandwidth in (0.5, 1.0, 1.25, 3.7):
        check_bandwidth(bandwidth, STEIN, 3)
        values = eigenvalues("stein", X, bandwidth)
        assert values[0] > -1e-13 * values[-1]
    for bandwidth in (0.25, 0.75):
        with pytest.raises(ValueError, match=f"bandwidth={bandwidth} must make the Stein kernel"):
            check_bandwidth(bandwidth, STEIN, 3)
        assert eigenvalues("stein", X, bandwidth)[0] < -1e-6


@pytest.mark.parametrize("d", [1, 2, 3, 4, 9, 29])
def test_the_nearest_bandwidth_is_allowed_and_the_nearest(d):
    for bandwidth in np.random.default_rng(0).uniform(0.01, 20, 50):
        nearest = nearest_bandwidth(float(bandwidth), STEIN, d)
        check_bandwidth(nearest, STEIN, d)
        steps = [j / 2 for j in range(1, d - 1)]
        if bandwidth >= (d - 1) / 2:
            assert nearest == bandwidth
        else:
            allowed = [*steps, (d - 1) / 2]
            distance = min(abs(bandwidth - one) for one in allowed)
            assert abs(nearest - bandwidth) == pytest.approx(distance)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bandwidth", [0, -1.0, np.inf, np.nan, "wide", True, None])
def test_bad_bandwidths(name, bandwidth):
    with pytest.raises(ValueError, match='must be "auto" or a finite number > 0'):
        check_bandwidth(bandwidth, get_divergence(name), 3)


def test_the_message_names_value_set_and_what_to_do():
    with pytest.raises(
        ValueError,
        match=r"bandwidth=3\.3 .* d=10 exactly for s in \{1/2, \.\.\., "
        r"8/2\} or s >= 9/2 .*Pass 3\.5, which is the nearest",
    ):
        check_bandwidth(3.3, STEIN, 10)
