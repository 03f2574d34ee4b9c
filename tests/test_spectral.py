"""f(t; alpha, beta) and its derivatives against mpmath, its symmetries, its domain, its manners."""

from __future__ import annotations

import itertools
from functools import cache

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divlearn.spectral import SpectralValues, abld_scalar, invert_f_t, log_generalized_domain

OUTPUTS = ("f", "f_t", "f_tt", "f_alpha", "f_beta")
EPS = np.finfo(np.float64).eps
PARAMETERS = (0.0, 1e-300, 1e-8, 1e-3, 0.1, 0.5, 1.0, 7.0, 50.0)
TIMES = (0.0, 1e-300, 1e-9, 1e-3, 0.5, 1.0, 2.0, 10.0, 100.0, 700.0)

ordinary = st.floats(-30, 30)
positive = st.floats(0, 20)
unhurried = settings(deadline=None, max_examples=25)  # shared machines stall now and then


# --- the oracle: the definition and its derivatives by the quotient rule, at hundreds of digits ---


@cache
def oracle(t: float, alpha: float, beta: float) -> dict[str, mpmath.mpf] | None:
    """All five values, or None outside the domain. Digits cover the cancellation near the axes."""
    lost = sum(-2 * np.log10(abs(x)) for x in (alpha, beta, alpha + beta) if 0 < abs(x) < 1)
    with mpmath.workdps(int(420 + lost)):
        t, alpha, beta = mpmath.mpf(t), mpmath.mpf(alpha), mpmath.mpf(beta)
        if alpha == 0 or beta == 0:
            values = boundary_oracle(t, alpha, beta)
        else:
            if alpha == -beta:  # beside the line, by much less than 50 digits can see
                mpmath.mp.dps += 500
                beta += mpmath.mpf(10) ** -150
            values = interior_oracle(t, alpha, beta)
    return None if values is None else dict(zip(OUTPUTS, values, strict=True))


def interior_oracle(t, alpha, beta):
    theta, rising, falling = alpha + beta, mpmath.exp(beta * t), mpmath.exp(-alpha * t)
    mixture = alpha * rising + beta * falling
    if mixture / theta <= 0:
        return None
    f = mpmath.log(mixture / theta) / (alpha * beta)
    return (
        f,
        (rising - falling) / mixture,
        (theta / mixture) ** 2 * rising * falling,
        ((rising - beta * t * falling) / mixture - 1 / theta) / (alpha * beta) - f / alpha,
        ((falling + alpha * t * rising) / mixture - 1 / theta) / (alpha * beta) - f / beta,
    )


def boundary_oracle(t, alpha, beta):
    if beta != 0 or alpha == 0:
        q, e = beta * t, mpmath.exp(beta * t)
        if beta == 0:
            return t**2 / 2, t, mpmath.mpf(1), -(t**3) / 6, t**3 / 6
        tail = e - 1 - q
        f_alpha = -(tail - q**2 / 2 + tail**2 / 2) / beta**3
        return tail / beta**2, (e - 1) / beta, e, f_alpha, (q * (e - 1) - 2 * tail) / beta**3
    f, f_t, f_tt, f_beta, f_alpha = boundary_oracle(-t, beta, alpha)
    return f, -f_t, f_tt, f_alpha, f_beta


def error_in_eps(computed: float, exact: mpmath.mpf, dtype: type = np.float64) -> float:
    """Relative error in units of eps; 0 if both overflow or if they differ by a subnormal."""
    info = np.finfo(dtype)
    if np.isnan(computed):
        return np.inf
    almost_largest = float(info.max) * (1 - 1e5 * float(info.eps))
    if abs(exact) > float(info.max) or np.isinf(computed):
        both_large = abs(exact) > almost_largest and abs(computed) > almost_largest
        return 0.0 if both_large and (computed > 0) == (exact > 0) else np.inf
    error = abs(mpmath.mpf(float(computed)) - exact)
    if error <= float(info.tiny):
        return 0.0
    return float(error / abs(exact) / float(info.eps))


def worst_ratio(points, scale=lambda t, a, b: 1 + abs(a * t) + abs(b * t), dtype=np.float64):
    """The largest error of each output in units of eps times scale, and where it occurs."""
    arguments = np.array(points, dtype=dtype)
    values = abld_scalar(*arguments.T)
    worst = dict.fromkeys(OUTPUTS, (0.0, None))
    for i, point in enumerate(arguments.astype(np.float64).tolist()):
        exact = oracle(*point)
        for name in OUTPUTS:
            ratio = error_in_eps(getattr(values, name)[i], exact[name], dtype) / scale(*point)
            worst[name] = max(worst[name], (ratio, point), key=lambda pair: pair[0])
    return worst


def assert_within(worst, bound):
    broken = {name: found for name, found in worst.items() if not found[0] <= bound}
    assert not broken, f"error above {bound} eps (1 + |alpha t| + |beta t|): {broken}"


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.7), (2.0, 5.0), (1e-5, 1.0), (-0.4, 1.5)])
@pytest.mark.parametrize("t", [-1.5, 0.25, 0.4])
def test_oracle_derivatives_are_those_of_the_definition(t, alpha, beta):
    def definition(t, alpha, beta):
        mixture = alpha * mpmath.exp(beta * t) + beta * mpmath.exp(-alpha * t)
        return mpmath.log(mixture / (alpha + beta)) / (alpha * beta)

    exact = oracle(t, alpha, beta)
    orders = {"f": (0, 0, 0), "f_t": (1, 0, 0), "f_tt": (2, 0, 0), "f_alpha": (0, 1, 0)}
    with mpmath.workdps(100):
        for name, order in (orders | {"f_beta": (0, 0, 1)}).items():
            numeric = mpmath.diff(definition, (t, alpha, beta), order)
            assert abs(numeric - exact[name]) < 1e-25 * abs(exact[name])


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (0.0, 1.5), (1.5, 0.0)])
@pytest.mark.parametrize("t", [-2.0, 0.3])
def test_oracle_on_the_axes_is_the_limit_of_the_interior(t, alpha, beta):
    exact = oracle(t, alpha, beta)
    near = oracle(t, alpha or 1e-40, beta or 1e-40)
    for name in OUTPUTS:
        assert abs(near[name] - exact[name]) < 1e-35 * abs(exact[name])


# --- accuracy for parameters of the same sign -----------------------------------------------------


def test_error_bound_on_the_adversarial_grid():
    """For t >= 0: f(t; alpha, beta) = f(-t; beta, alpha), and both pairs are on the grid."""
    assert_within(worst_ratio(list(itertools.product(TIMES, PARAMETERS, PARAMETERS))), 8)


@pytest.mark.parametrize("smallest_exponent", [-300, -12, -3, -1])
def test_error_bound_on_random_points(smallest_exponent):
    rng = np.random.default_rng(-smallest_exponent)
    size = 80
    alpha, beta = 10 ** rng.uniform(smallest_exponent, np.log10(50), (2, size))
    beta = np.where(rng.random(size) < 0.2, alpha, beta)
    alpha = np.where(rng.random(size) < 0.1, 0.0, alpha)
    t = 10 ** rng.uniform(-6, np.log10(700), size) * rng.choice([-1, 1], size)
    assert_within(worst_ratio(np.stack([t, alpha, beta], axis=1)), 8)


@pytest.mark.parametrize("alpha", [0.0, 1e-300, 1e-200, 1e-20, 1e-3, 1.0, 49.0])
def test_error_bound_up_to_the_overflow_of_the_exponential(alpha):
    exponents = (
        1.9,
        2.1,
        29.0,
        31.0,
        350.0,
        355.0,
        640.0,
        700.5,
        709.0,
        710.5,
        714.0,
        718.0,
        750.0,
    )
    points = [(q / beta, alpha, beta) for q in exponents for beta in (1.1, 50.0)]
    assert_within(worst_ratio(points), 8)


@pytest.mark.parametrize("edge", [2.0, 5.0, 30.0])
def test_error_bound_on_both_sides_of_every_switch(edge):
    rng = np.random.default_rng(0)
    near_edge = edge * (1 + rng.choice([-1e-9, 0, 1e-9], 100))
    other = near_edge * rng.choice([1e-9, 1e-3, 0.5, 1 - 1e-9, 1.0, 1 + 1e-9, 3.0, 50.0], 100)
    t = rng.choice([0.7, -3.0], 100)
    points = np.stack([t, near_edge / np.abs(t), other / np.abs(t)], axis=1)
    assert_within(worst_ratio(points), 8)
    assert_within(worst_ratio(points[:, [0, 2, 1]]), 8)


def test_error_bound_in_float32():
    grid = itertools.product((0.0, 1e-3, -0.5, 2.0, -10.0, 80.0), PARAMETERS[4:], PARAMETERS[4:])
    points = np.array([*grid, (0.5, 0.0, 2.0), (-3.0, 0.0, 0.0)])
    worst = worst_ratio(points, dtype=np.float32)
    assert_within(worst, 8)
    assert max(ratio for ratio, _ in worst.values()) <= 1, "float32 should be one final rounding"


@pytest.mark.parametrize("t", [-3.0, -1e-3, 0.0, 0.5, 2.5])
@pytest.mark.parametrize("c", [1e-3, 0.3])
def test_boundary_values(t, c):
    with mpmath.workdps(40):
        x = mpmath.mpf(c) * mpmath.mpf(t)
        expected = {
            (c, 0.0): (mpmath.exp(-x) - 1 + x) / mpmath.mpf(c) ** 2,
            (0.0, c): (mpmath.exp(x) - 1 - x) / mpmath.mpf(c) ** 2,
            (c, -c): (x - mpmath.log(1 + x)) / mpmath.mpf(c) ** 2,
            (0.0, 0.0): mpmath.mpf(t) ** 2 / 2,
        }
    for parameters, value in expected.items():
        computed = abld_scalar(t, *parameters, derivatives=()).f
        assert computed == pytest.approx(float(value), rel=1e-14, abs=0)


def test_third_order_terms_at_the_origin():
    values = abld_scalar(3.0, 0.0, 0.0)
    assert values.f_alpha == pytest.approx(-27 / 6, rel=1e-15)
    assert values.f_beta == pytest.approx(27 / 6, rel=1e-15)


def test_extreme_arguments_never_give_nan():
    tiny = (5e-324, 1e-310, 2.3e-308, 1e-200, 1e-100)
    large = (30.0, 700.0, 745.0, 1e20, 1e100, 1e150)
    values = np.array([0.0, *tiny, 1e-9, 0.5, 2.0, *large])
    values = np.concatenate([values, -values])
    t, alpha, beta = np.meshgrid(values, values, values, indexing="ij")
    result = abld_scalar(t, alpha, beta)
    for name in OUTPUTS:
        assert not np.isnan(getattr(result, name)).any(), name
    assert (result.f >= 0).all()
    assert (result.f_tt >= 0).all()
    for name, direction in (("f_t", 1), ("f_alpha", -1), ("f_beta", 1)):
        assert (direction * np.sign(getattr(result, name)) * np.sign(t) >= 0).all(), name


# --- identities -----------------------------------------------------------------------------------


def assert_close(left, right, scale=1.0, roundings=200):
    np.testing.assert_allclose(left, right, rtol=roundings * EPS * scale, atol=1e-290)


@unhurried
@given(ordinary, positive, positive)
def test_swapping_parameters_reverses_t(t, alpha, beta):
    here, there = abld_scalar(t, alpha, beta), abld_scalar(-t, beta, alpha)
    for name, other, sign in (
        ("f", "f", 1),
        ("f_t", "f_t", -1),
        ("f_tt", "f_tt", 1),
        ("f_alpha", "f_beta", 1),
    ):
        assert getattr(here, name) == sign * getattr(there, other)


@unhurried
@given(ordinary, positive, positive)
def test_negating_parameters_reverses_t(t, alpha, beta):
    here, there = abld_scalar(t, -alpha, -beta), abld_scalar(-t, alpha, beta)
    for name, sign in zip(OUTPUTS, (1, -1, 1, -1, -1), strict=True):
        assert getattr(here, name) == sign * getattr(there, name)


@unhurried
@given(st.floats(-5, 5), st.floats(1e-3, 9), st.floats(1e-3, 9), st.floats(0.1, 10))
def test_scaling_the_parameters_scales_t(t, alpha, beta, c):
    scale = 1 + c * (alpha + beta) * abs(t)
    assert_close(
        abld_scalar(t, c * alpha, c * beta).f, abld_scalar(c * t, alpha, beta).f / c**2, scale
    )


@unhurried
@given(st.floats(-20, 20), st.floats(0, 5), st.floats(0, 5))
def test_euler_relation(t, alpha, beta):
    v = abld_scalar(t, alpha, beta, derivatives=("f_t", "f_alpha", "f_beta"))
    left, right = alpha * v.f_alpha + beta * v.f_beta, t * v.f_t - 2 * v.f
    terms = abs(alpha * v.f_alpha) + abs(beta * v.f_beta) + abs(t * v.f_t) + 2 * v.f
    bound = 16 * EPS * (1 + (alpha + beta) * abs(t)) * terms
    assert abs(left - right) <= max(bound, 1e-300)


@unhurried
@given(ordinary, positive, positive)
def test_f_is_convex_with_its_minimum_zero_at_zero(t, alpha, beta):
    values = abld_scalar(t, alpha, beta)
    assert values.f >= 0
    assert values.f_tt >= 0
    assert values.f_t * t >= 0
    at_zero = abld_scalar(0.0, alpha, beta)
    assert at_zero.f == at_zero.f_t == at_zero.f_alpha == at_zero.f_beta == 0
    assert at_zero.f_tt == pytest.approx(1, rel=4 * EPS)


# --- opposite signs -------------------------------------------------------------------------------


def finite_end(alpha, beta):
    lower, upper = log_generalized_domain(alpha, beta)
    return np.where(np.isfinite(lower), lower, upper)


OPPOSITE = [
    (first * sign, -second * sign)
    for first, second in [
        (1, 1),
        (1, 1 - 1e-15),
        (1, 1 + 1e-6),
        (0.3, 2),
        (2, 0.3),
        (7, 7.00001),
        (7, 1e-8),
        (50, 49),
    ]
    for sign in (1, -1)
]


@pytest.mark.parametrize(("alpha", "beta"), OPPOSITE)
def test_opposite_signs_inside_the_domain(alpha, beta):
    end = float(finite_end(alpha, beta))
    towards = [
        end * part for part in (1e-9, 1e-3, 0.3, 0.9, 0.999, 1 - 1e-6) if abs(end * part) < 700
    ]
    away = [-np.sign(end) * t for t in (1e-300, 1e-9, 1e-3, 0.02, 0.5, 1.0, 3.0, 100.0, 700.0)]
    points = [(t, alpha, beta) for t in towards + away]

    def scale(t, alpha, beta):
        gap = min(1.0, 1 - t / end)
        return (1 + abs(alpha * t) + abs(beta * t)) / gap

    assert_within(worst_ratio(points, scale), 24)


@pytest.mark.parametrize("t", [-1e3, -1e6])
def test_opposite_signs_far_from_the_end_lose_nothing(t):
    values, exact = abld_scalar(t, -0.3, 2.0), oracle(t, -0.3, 2.0)
    for name in ("f", "f_t", "f_alpha", "f_beta"):
        assert error_in_eps(getattr(values, name), exact[name]) < 32, name


@pytest.mark.parametrize(("alpha", "beta"), OPPOSITE)
def test_domain_end_is_where_the_logarithm_vanishes(alpha, beta):
    with mpmath.workdps(60):
        a, b = mpmath.mpf(alpha), mpmath.mpf(beta)
        end = -1 / a if a + b == 0 else mpmath.log(abs(b / a)) / (a + b)
        lower, upper = log_generalized_domain(alpha, beta)
        assert (lower, upper)[alpha < 0] == pytest.approx(float(end), rel=8 * EPS)
        assert (upper, lower)[alpha < 0] == (np.inf, -np.inf)[alpha < 0]


@pytest.mark.parametrize(("alpha", "beta"), OPPOSITE)
def test_limits_at_the_end_of_the_domain_and_outside(alpha, beta):
    t = float(finite_end(alpha, beta)) * np.array([1.0, 1 + 1e-12, 1.5, 1e3])
    values = abld_scalar(t, alpha, beta)
    sign = np.sign(t)
    for name, limit in {"f": 1, "f_tt": 1, "f_t": sign, "f_beta": sign, "f_alpha": -sign}.items():
        assert (getattr(values, name) == limit * np.inf).all(), name


def test_domain_is_everything_for_same_signs():
    alpha, beta = (
        np.array([0.0, 0.0, 1.0, 2.0, -1.0, -3.0]),
        np.array([0.0, 1.0, 0.0, 3.0, 0.0, -1.0]),
    )
    lower, upper = log_generalized_domain(alpha, beta)
    assert (lower == -np.inf).all()
    assert (upper == np.inf).all()


@unhurried
@given(st.floats(-3, 3), st.floats(1e-3, 5), st.floats(1e-3, 5), st.booleans())
def test_opposite_signs_agree_with_the_definition_wherever_it_is_defined(t, first, second, flip):
    alpha, beta = (-first, second) if flip else (first, -second)
    f = abld_scalar(t, alpha, beta, derivatives=()).f
    distance = t / float(finite_end(alpha, beta))
    exact = oracle(t, alpha, beta)
    if distance > 1 + 1e-9:
        assert exact is None
        assert f == np.inf
    elif distance < 1 - 1e-9:
        assert float(f) == pytest.approx(float(exact["f"]), rel=1e-5, abs=1e-300)


def test_continuity_across_the_axes_into_opposite_signs():
    t = np.linspace(-2, 2, 9)
    same, opposite = abld_scalar(t, 1e-17, 0.8), abld_scalar(t, -1e-17, 0.8)
    for name in OUTPUTS:
        np.testing.assert_allclose(getattr(same, name), getattr(opposite, name), rtol=1e-14)


# --- arguments and results ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "derivatives", [(), "f_t", ("f_tt",), ["f_alpha"], ("f_beta", "f_t"), OUTPUTS[1:]]
)
@pytest.mark.parametrize("beta", [0.7, -0.7])
def test_only_what_is_asked_for_is_returned(derivatives, beta):
    asked = {derivatives} if isinstance(derivatives, str) else set(derivatives)
    values = abld_scalar([0.3, -0.2, 3.0, -40.0], 0.4, beta, derivatives=derivatives)
    everything = abld_scalar([0.3, -0.2, 3.0, -40.0], 0.4, beta)
    for name in OUTPUTS:
        if name in asked | {"f"}:
            np.testing.assert_array_equal(getattr(values, name), getattr(everything, name))
        else:
            assert getattr(values, name) is None


@pytest.mark.parametrize("derivatives", ["f_x", ("f_t", "gamma"), ("f",)])
def test_unknown_derivatives_are_named(derivatives):
    with pytest.raises(ValueError, match=r"derivatives='(f_x|gamma|f)' is unknown; .*'f_alpha'"):
        abld_scalar(1.0, 0.5, 0.5, derivatives=derivatives)


single = np.float32([0.5, 1.0])


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ((single, 0.5, 1), np.float32),
        ((single, single, single), np.float32),
        ((0.5, single, single[0]), np.float32),
        ((single, np.float64(0.5), 0.5), np.float64),
        ((single, np.array([0.5, 0.5]), 0.5), np.float64),
        ((single, np.array([1, 1]), 0.5), np.float64),
        ((single, np.array([1, 1], np.int8), 0.5), np.float64),
        ((np.array([1, 2]), 1, 1), np.float64),
        ((np.float16([1, 2]), 1, 1), np.float64),
        (([0.5, 1.0], 1, 1), np.float64),
        ((2, 1, 1), np.float64),
    ],
)
def test_dtype_of_the_result(arguments, dtype):
    values = abld_scalar(*arguments)
    assert {getattr(values, name).dtype for name in OUTPUTS} == {np.dtype(dtype)}


def test_dtype_of_the_other_functions():
    assert invert_f_t(single, 0.5, 0.5).dtype == np.float32
    assert invert_f_t(single, np.float64(0.5), 0.5).dtype == np.float64
    assert [end.dtype for end in log_generalized_domain(single, -1.0)] == [np.float32, np.float32]
    assert [end.dtype for end in log_generalized_domain(single, [-1, 1])] == [float, float]


def test_broadcasting():
    t, alpha, beta = np.linspace(-1, 1, 5), np.array([[0.0], [1.0], [-1.0]]), 0.5
    values = abld_scalar(t, alpha, beta)
    for i, j in np.ndindex(3, 5):
        single_value = abld_scalar(t[j], alpha[i, 0], beta)
        for name in OUTPUTS:
            assert getattr(values, name).shape == (3, 5)
            assert getattr(values, name)[i, j] == getattr(single_value, name)
    assert abld_scalar(np.empty((0, 3)), 1.0, 1.0).f_alpha.shape == (0, 3)


def test_scalars_give_scalars():
    values = abld_scalar(0.5, 1.0, 2)
    assert all(isinstance(getattr(values, name), np.float64) for name in OUTPUTS)
    assert isinstance(invert_f_t(0.1, 1.0, 1.0), np.float64)
    assert all(isinstance(end, np.float64) for end in log_generalized_domain(1.0, -2.0))


def test_arguments_are_left_alone_and_results_are_frozen():
    t, alpha, beta = np.array([-1.0, 2.0]), np.array([-1.0, 2.0]), np.array([-0.5, 0.0])
    values = abld_scalar(t, alpha, beta)
    np.testing.assert_array_equal([t, alpha, beta], [[-1.0, 2.0], [-1.0, 2.0], [-0.5, 0.0]])
    assert isinstance(values, SpectralValues)
    with pytest.raises(AttributeError):
        values.f = t


@pytest.mark.parametrize("name", ["t", "alpha", "beta"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_arguments_must_be_finite(name, bad):
    arguments = {"t": np.ones((2, 3)), "alpha": np.ones((2, 3)), "beta": np.ones((2, 3))}
    arguments[name][1, 2] = bad
    with pytest.raises(ValueError, match=rf"{name}=.* at index \[1, 2\]: must be finite"):
        abld_scalar(**arguments)
    with pytest.raises(ValueError, match=rf"{name}=\S+: must be finite"):
        abld_scalar(**(dict.fromkeys(arguments, 1.0) | {name: bad}))


@pytest.mark.parametrize("bad", [1j, [1 + 2j], "1", ["a"], None, np.array([1.0], object)])
def test_arguments_must_be_real_numbers(bad):
    with pytest.raises(TypeError, match=r"alpha has dtype .* must be real numbers"):
        abld_scalar(1.0, bad, 1.0)


# --- the inverse of f_t ---------------------------------------------------------------------------


@unhurried
@given(st.floats(-4, 4), st.floats(0, 2), st.floats(0, 2), st.sampled_from([1, -1]))
def test_inverse_of_the_slope_round_trip(t, alpha, beta, sign):
    v = abld_scalar(t, sign * alpha, sign * beta)
    solution = invert_f_t(v.f_t, sign * alpha, sign * beta)
    # An error of g becomes an error of t divided by f_tt.
    tolerance = 32 * EPS * (1 + (alpha + beta) * abs(t)) * (abs(t) + abs(v.f_t) / v.f_tt)
    assert abs(solution - t) <= tolerance


@pytest.mark.parametrize(
    ("alpha", "beta"), [(0, 0), (1e-300, 0), (0, 1e-200), (1e-20, 1e-20), (1e-9, 0)]
)
@pytest.mark.parametrize("g", [1e-300, -1e-9, 0.0, 0.5, -3.0])
def test_inverse_of_the_slope_near_the_origin(g, alpha, beta):
    with mpmath.workdps(700):
        if alpha or beta:
            fall, rise = mpmath.log(1 - alpha * mpmath.mpf(g)), mpmath.log(1 + beta * mpmath.mpf(g))
            expected = float((rise - fall) / (mpmath.mpf(alpha) + mpmath.mpf(beta)))
        else:
            expected = g
    assert invert_f_t(g, alpha, beta) == pytest.approx(expected, rel=4 * EPS, abs=0)


def test_inverse_of_the_slope_at_the_ends_of_its_range():
    np.testing.assert_array_equal(invert_f_t([-2.0, 4.0], 0.25, 0.5), [-np.inf, np.inf])
    np.testing.assert_array_equal(invert_f_t([-4.0, 2.0], -0.25, -0.5), [-np.inf, np.inf])
    alpha, beta = np.random.default_rng(0).uniform(0.1, 2, (2, 300))
    for t in (-5e3, 5e3):  # the slopes are equal to the ends up to rounding
        solution = invert_f_t(abld_scalar(t, alpha, beta).f_t, alpha, beta)
        assert (np.sign(t) * solution > 7).all()


def test_inverse_of_the_slope_rejects_what_is_no_slope():
    with pytest.raises(ValueError, match=r"g=4\.1, .* at index \[1\]: must satisfy 1 \+ beta g"):
        invert_f_t([0.0, 4.1], 0.25, 0.5)
    with pytest.raises(ValueError, match=r"alpha=1, beta=-1: alpha and beta must have the same"):
        invert_f_t(0.1, 1.0, -1.0)
    with pytest.raises(ValueError, match=r"g=nan at index \[0\]: must be finite"):
        invert_f_t([np.nan], 1.0, 1.0)
