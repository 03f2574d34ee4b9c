"""Kernels for coding: values, gradients, and the bandwidths that keep them positive definite."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import wishart
from scipy.linalg import logm

from divlearn.baselines.spd_kernels import EmbeddedKernel, SteinKernel, get_kernel
from divlearn.spd import expm

NAMES = ["log-euclidean", "stein"]


def symmetric(rng, n, d, size=1.0):
    S = size * rng.standard_normal((n, d, d))
    return 0.5 * (S + S.mT)


def gram(kernel, X, bandwidth):
    return np.exp(-bandwidth * kernel.divergences(kernel.prepare(X), X))


def test_values_are_those_of_the_formulas():
    rng = np.random.default_rng(0)
    X, Y = wishart(rng, 6, 4), wishart(rng, 3, 4)
    logarithms = [[logm(one) for one in matrices] for matrices in (X, Y)]
    expected = [[np.linalg.norm(x - y) ** 2 for y in logarithms[1]] for x in logarithms[0]]
    kernel = EmbeddedKernel()
    np.testing.assert_allclose(kernel.divergences(kernel.prepare(X), Y), expected, rtol=1e-8)
    expected = [
        [
            np.log(np.linalg.det((x + y) / 2)) - 0.5 * np.log(np.linalg.det(x) * np.linalg.det(y))
            for y in Y
        ]
        for x in X
    ]
    kernel = SteinKernel()
    np.testing.assert_allclose(kernel.divergences(kernel.prepare(X), Y), expected, rtol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_differences(name):
    rng = np.random.default_rng(1)
    kernel = get_kernel(name)
    data, atoms = kernel.prepare(wishart(rng, 7, 3)), wishart(rng, 4, 3)
    cotangent, between = rng.standard_normal((7, 4)), rng.standard_normal((4, 4))
    between = between + between.T
    point = kernel.point(atoms)

    def value(at):
        moved = kernel.atoms(at)
        return (cotangent * kernel.divergences(data, moved)).sum() + (
            between * kernel.divergences(kernel.prepare(moved), moved)
        ).sum()

    gradient = kernel.gradient(data, point, cotangent, between)
    assert gradient.shape == point.shape
    for _ in range(5):
        step = rng.standard_normal(point.shape)
        step = step + step.mT if name == "stein" else step
        h = 1e-5
        slope = (value(kernel.move(point, h * step)) - value(kernel.move(point, -h * step))) / 2 / h
        assert slope == pytest.approx(np.vdot(gradient, step), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_points_are_atoms(name):
    kernel = get_kernel(name)
    atoms = wishart(np.random.default_rng(0), 4, 3)
    np.testing.assert_allclose(kernel.atoms(kernel.point(atoms)), atoms, rtol=1e-9)
    far = kernel.move(kernel.point(atoms), np.full(kernel.point(atoms).shape, -1e3))
    assert kernel.atoms(far) is None


@pytest.mark.parametrize("bandwidth", [0.01, 0.3, 5.0])
def test_the_log_euclidean_kernel_is_positive_definite_for_every_bandwidth(bandwidth):
    kernel = EmbeddedKernel()
    X = expm(symmetric(np.random.default_rng(0), 200, 3))
    kernel.check_bandwidth(bandwidth, 3)
    assert kernel.nearest_bandwidth(bandwidth, 3) == bandwidth
    values = np.linalg.eigvalsh(gram(kernel, X, bandwidth))
    assert values[0] > -1e-12 * values[-1]


def test_the_stein_kernel_is_positive_definite_where_the_theorem_says_and_not_elsewhere():
    kernel = SteinKernel()
    X = expm(symmetric(np.random.default_rng(0), 300, 3, 0.3))
    for bandwidth in (0.5, 1.0, 1.25, 3.7):
        kernel.check_bandwidth(bandwidth, 3)
        values = np.linalg.eigvalsh(gram(kernel, X, bandwidth))
        assert values[0] > -1e-13 * values[-1]
    for bandwidth in (0.25, 0.75):
        with pytest.raises(ValueError, match=f"bandwidth={bandwidth} must make the Stein kernel"):
            kernel.check_bandwidth(bandwidth, 3)
        assert np.linalg.eigvalsh(gram(kernel, X, bandwidth))[0] < -1e-6


@pytest.mark.parametrize("d", [1, 2, 3, 4, 9, 29])
def test_the_nearest_bandwidth_is_allowed_and_the_nearest(d):
    kernel = SteinKernel()
    for bandwidth in np.random.default_rng(0).uniform(0.01, 20, 50):
        nearest = kernel.nearest_bandwidth(float(bandwidth), d)
        kernel.check_bandwidth(nearest, d)
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
        get_kernel(name).check_bandwidth(bandwidth, 3)


def test_the_message_names_value_set_and_what_to_do():
    with pytest.raises(
        ValueError,
        match=r"bandwidth=3\.3 .* d=10 exactly for s in \{1/2, \.\.\., "
        r"8/2\} or s >= 9/2 .*Pass 3\.5, which is the nearest",
    ):
        SteinKernel().check_bandwidth(3.3, 10)
