"""Heads against scikit-learn and scipy; gradients through the solved head against differences."""

from __future__ import annotations

import numpy as np
import pytest
from iddl_problems import here, solve, start_features
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge

from divlearn.heads.heads import scores_of
from divlearn.heads.losses import LOSSES, HingeLoss, RidgeLoss, SoftmaxLoss


def problem(seed=0, n=80, p=6, n_classes=3):
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=n)
    features = rng.standard_normal((n, p)) @ rng.standard_normal((p, p))
    features[:, :n_classes] += 2 * np.eye(n_classes)[labels]
    weights = rng.random(n)
    return features, np.eye(n_classes)[labels], weights / weights.sum(), labels


def objective(loss, head, features, targets, weights, gamma):
    losses = loss.expand(scores_of(head, features), targets).losses
    return weights @ losses + gamma * (head[0] ** 2).sum()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gamma", [1e-1, 1e-3])
def test_ridge_is_that_of_scikit_learn(bias, gamma):
    features, targets, weights, _ = problem()
    solved = solve(RidgeLoss(bias), features, targets, weights, gamma)
    # theirs: sum of squares + alpha |W|^2
    theirs = Ridge(alpha=2 * gamma, fit_intercept=bias).fit(
        features, targets, sample_weight=weights
    )
    np.testing.assert_allclose(solved.head[0], theirs.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(solved.head[1], theirs.intercept_, rtol=1e-8, atol=1e-10)


def test_ridge_is_the_corrected_closed_form_of_the_paper():
    features, targets, _, _ = problem()
    n, gamma = len(features), 0.01
    solved = solve(RidgeLoss(bias=False), features, targets, np.full(n, 1 / n), gamma)
    V = features.T
    expected = targets.T @ V.T @ np.linalg.inv(V @ V.T + 2 * n * gamma * np.eye(len(V)))
    np.testing.assert_allclose(solved.head[0], expected, rtol=1e-9)


def test_ridge_without_a_penalty_and_with_equal_columns():
    features, targets, weights, _ = problem()
    doubled = np.concatenate([features, features], axis=1)
    one = solve(RidgeLoss(), features, targets, weights, 0.0)
    two = solve(RidgeLoss(), doubled, targets, weights, 0.0)
    assert two.value == pytest.approx(one.value, rel=1e-8)


def test_softmax_is_that_of_scikit_learn():
    features, targets, weights, labels = problem()
    gamma = 1e-2
    solved = solve(SoftmaxLoss(), features, targets, weights, gamma)
    # theirs: C sum of losses + |W|^2 / 2
    theirs = LogisticRegression(C=1 / (2 * gamma), tol=1e-10, max_iter=5000).fit(
        features, labels, sample_weight=weights
    )
    np.testing.assert_allclose(solved.head[0], theirs.coef_, atol=1e-5)
    spread = solved.head[1] - solved.head[1].mean()
    np.testing.assert_allclose(spread, theirs.intercept_ - theirs.intercept_.mean(), atol=1e-5)


def hinge_by_scipy(features, targets, weights, gamma, bias):
    """The hinge without rounding, as a quadratic programme in the weights and the excesses."""
    p = features.shape[1]
    n_classes = targets.shape[1]

    def unpack(x):
        W = x[: n_classes * p].reshape(n_classes, p)
        return W, x[n_classes * p :] * bias

    def value(x):
        W, b = unpack(x)
        scores = features @ W.T + b
        true = (scores * targets).sum(axis=1, keepdims=True)
        excess = np.maximum(scores - true + 1, 0) * (1 - targets)
        return weights @ excess.sum(axis=1) + gamma * (W**2).sum()

    return value, unpack


@pytest.mark.parametrize(("bias", "gamma"), [(True, 1e-3), (False, 0.1)])
def test_hinge_is_close_to_the_sharp_one(bias, gamma):
    features, targets, weights, _ = problem(n=15, p=3)
    solved = solve(HingeLoss(bias), features, targets, weights, gamma)
    value, _ = hinge_by_scipy(features, targets, weights, gamma, bias)
    ours = value(np.concatenate([solved.head[0].ravel(), solved.head[1]]))
    # Rounding changes the loss of each of the n_classes - 1 comparisons by width / 2 at most.
    slack = 2 * 0.02 / 2
    assert solved.value <= ours <= solved.value + slack
    best = min(
        minimize(
            value, start, method="Powell", options={"maxiter": 20000, "xtol": 1e-4, "ftol": 1e-5}
        ).fun
        for start in (
            np.concatenate([solved.head[0].ravel(), solved.head[1]]),
            np.zeros(targets.shape[1] * (features.shape[1] + 1)),
        )
    )
    assert ours <= best + slack


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bias", [True, False])
def test_heads_are_minima(name, bias):
    features, targets, weights, _ = problem(3)
    loss = LOSSES[name](bias)
    solved = solve(loss, features, targets, weights, 1e-2)
    rng = np.random.default_rng(0)
    assert objective(loss, solved.head, features, targets, weights, 1e-2) == pytest.approx(
        solved.value
    )
    for _ in range(20):
        head = (
            solved.head[0] + 1e-3 * rng.standard_normal(solved.head[0].shape),
            solved.head[1] + bias * 1e-3 * rng.standard_normal(solved.head[1].shape),
        )
        assert objective(loss, head, features, targets, weights, 1e-2) >= solved.value


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gamma", [1e-1, 1e-3])
def test_gradients_through_the_solved_head(name, bias, gamma):
    features, targets, weights, _ = problem(4)
    loss = LOSSES[name](bias)
    solved = solve(loss, features, targets, weights, gamma)
    direction = np.random.default_rng(1).standard_normal(features.shape)
    step = 1e-6 if name == "hinge" else 1e-5  # a hinge bends in a narrow band
    values = [
        solve(loss, features + sign * step * direction, targets, weights, gamma, solved.head).value
        for sign in (1, -1)
    ]
    slope = (values[0] - values[1]) / (2 * step)
    assert np.vdot(direction, solved.cotangent) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_a_warm_start_changes_nothing_but_the_time(name):
    features, targets, weights, _ = problem(5)
    loss = LOSSES[name]()
    cold = solve(loss, features, targets, weights, 1e-2)
    other = solve(loss, features + 0.1, targets, weights, 1e-1)
    warm = solve(loss, features, targets, weights, 1e-2, other.head)
    assert warm.value == pytest.approx(cold.value, rel=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_are_those_of_the_losses(name):
    rng = np.random.default_rng(0)
    scores, targets = rng.standard_normal((30, 4)), np.eye(4)[rng.integers(4, size=30)]
    loss = LOSSES[name]()
    direction = rng.standard_normal(scores.shape)
    slope = (
        loss.expand(scores + 1e-6 * direction, targets).losses
        - loss.expand(scores - 1e-6 * direction, targets).losses
    ) / 2e-6
    np.testing.assert_allclose(
        (loss.expand(scores, targets).slopes * direction).sum(axis=1), slope, atol=1e-6
    )


def test_weights_count_samples():
    features, targets, _, _ = problem(6, n=30)
    counts = np.random.default_rng(0).integers(1, 4, 30)
    repeated = np.repeat(features, counts, axis=0), np.repeat(targets, counts, axis=0)
    for name in LOSSES:
        loss = LOSSES[name]()
        weighted = solve(loss, features, targets, counts / counts.sum(), 1e-2)
        plain = solve(loss, *repeated, np.full(counts.sum(), 1 / counts.sum()), 1e-2)
        np.testing.assert_allclose(weighted.head[0], plain.head[0], atol=1e-6)


def test_separable_classes_and_a_class_of_one_sample():
    features = np.concatenate([np.full((20, 1), -5.0), np.full((1, 1), 5.0)])
    targets = np.eye(2)[[0] * 20 + [1]]
    for name in LOSSES:
        solved = solve(LOSSES[name](), features, targets, np.full(21, 1 / 21), 1e-3)
        assert (scores_of(solved.head, features).argmax(axis=1) == targets.argmax(axis=1)).all()


# features


@pytest.mark.parametrize("plain", [True, False])
def test_feature_gradients(plain):
    rng = np.random.default_rng(0)
    V = rng.random((30, 5)) + 0.1
    weights = rng.random(30)
    weights /= weights.sum()
    feature_map = start_features(V, weights, plain=plain)
    cotangent, direction = rng.standard_normal((2, 30, 5))

    def compute(values):
        known = here(30), [(None, weights)], [values]
        return feature_map.standardize(*known).compute(values)

    features = compute(V)
    back = feature_map.pull(V, features, weights, cotangent)
    ahead, behind = (compute(V + s * 1e-6 * direction) for s in (1, -1))
    slope = np.vdot(cotangent, ahead - behind) / 2e-6
    assert np.vdot(direction, back) == pytest.approx(slope, rel=1e-7)
    if plain:
        np.testing.assert_array_equal(features, V)
    else:
        np.testing.assert_allclose(weights @ features, 0, atol=1e-12)
        np.testing.assert_allclose(weights @ features**2, 1, rtol=1e-12)
    again = feature_map.compute(V[:3])
    np.testing.assert_allclose(again, features[:3], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("value", [3.0, 0.0])
def test_constant_columns_are_zero(value):
    V = np.full((10, 2), value)
    feature_map = start_features(V, np.full(10, 0.1), plain=False)
    np.testing.assert_allclose(feature_map.compute(V), 0, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_second_derivatives_are_those_of_the_slopes(name):
    rng = np.random.default_rng(0)
    scores, targets = rng.standard_normal((30, 4)), np.eye(4)[rng.integers(4, size=30)]
    loss = LOSSES[name]()
    direction = rng.standard_normal(scores.shape)
    ahead, behind = (loss.expand(scores + s * 1e-7 * direction, targets).slopes for s in (1, -1))
    curvature = loss.expand(scores, targets).curvature
    np.testing.assert_allclose(
        loss.hessian_product(curvature, direction), (ahead - behind) / 2e-7, rtol=1e-5, atol=1e-6
    )


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", LOSSES)
def test_features_that_are_not_finite_have_no_head(name, value):
    features, targets, weights, _ = problem(6)
    features[3, 1] = value
    with pytest.raises(FloatingPointError, match="a product of features is nan that a head sees"):
        solve(LOSSES[name](), features, targets, weights, 1e-2)


@pytest.mark.parametrize("gamma", [1e-1, 1e-4])
@pytest.mark.parametrize("bias", [True, False])
def test_softmax_heads_do_not_depend_on_the_engine(bias, gamma):
    given = problem(n=150, p=8, n_classes=5)[:3]
    heads = [
        solve(SoftmaxLoss(bias=bias), *given, gamma, engine=engine).head
        for engine in ("auto", "reference")
    ]
    for first, second in zip(*heads, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-8)


def test_rough_heads_leave_out_what_the_penalty_suppresses():
    features, targets, weights, _ = problem(n=200)
    noise = 1e-3 * np.random.default_rng(1).standard_normal((200, 4))
    wide = np.concatenate([features, noise], axis=1)
    exact, rough = (
        solve(loss, wide, targets, weights, 1e-3)
        for loss in (SoftmaxLoss(), SoftmaxLoss().with_tolerance(1e-4))
    )
    scores = [scores_of(one.head, wide) for one in (exact, rough)]
    np.testing.assert_allclose(scores[1], scores[0], rtol=0, atol=2e-2)
    assert 0 <= rough.value - exact.value < 1e-4


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-4])
@pytest.mark.parametrize("gamma", [1e-2, 1e-4])
def test_rough_heads_of_many_classes_are_nearly_the_best(gamma, tolerance, engine):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 40
    features = (rng.standard_normal((40, 60))[y] + 2 * rng.standard_normal((400, 60))) / 2
    given = features @ rng.standard_normal((60, 60)), np.eye(40)[y], np.full(400, 1 / 400)
    exact, rough = (
        solve(loss, *given, gamma, engine=engine)
        for loss in (SoftmaxLoss(), SoftmaxLoss().with_tolerance(tolerance))
    )
    assert 0 <= rough.value - exact.value < tolerance


@pytest.mark.parametrize("name", ["softmax", "hinge"])
def test_sums_over_many_rows_do_not_depend_on_threads(name, monkeypatch):
    features, targets, weights, _ = problem(n=2100)
    whole = solve(LOSSES[name](), features, targets, weights, 1e-1)
    monkeypatch.setattr("divlearn.heads.heads._THREADED_WORK", 0)
    heads = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        heads.append(solve(LOSSES[name](), features, targets, weights, 1e-1).head)
    np.testing.assert_array_equal(heads[0][0], heads[1][0])
    np.testing.assert_allclose(heads[0][0], whole.head[0], rtol=1e-6, atol=1e-8)
