"""Learning from minibatches: descent, invariance, undone epochs, and what it costs."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import partial
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from failing_engine import FailingEngine
from test_iddl_objective import make

from divlearn.heads.losses import LOSSES
from divlearn.iddl import stochastic
from divlearn.iddl.atoms import Dictionary
from divlearn.iddl.objective import Objective
from divlearn.iddl.solvers import solve_joint
from divlearn.iddl.stochastic import Learner, Moments, solve_stochastic, take_rows
from divlearn.spd import check_spd


def solve(objective, start, *, max_iter=4, tol=0.0, batch_size=8, **options):
    with patch.object(stochastic, "_BATCH", batch_size):
        return solve_stochastic(objective, start, max_iter=max_iter, tol=tol, **options)


def take(objective, rows):
    """The objective of some matrices."""
    make = partial(
        Objective,
        variant=objective.variant,
        feature_map=objective.feature_map,
        settings=replace(objective.settings, tether=0.0),
    )
    return take_rows(objective.shards.whole, objective.targets[0], rows, make)


def trial_with(objective, point, head):
    return objective.hold_head(point, objective.encode(point.atoms, point.parameters), head)


# the moments


def test_directions_are_never_longer_than_one():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [9, 1, 4])
    moments = Moments.start(groups)
    for scale in rng.lognormal(sigma=3, size=50):
        moments = moments.learn(scale * rng.standard_normal(14))
        lengths = np.sqrt(np.bincount(groups, weights=moments.direction() ** 2))
        assert (lengths <= 1 + 1e-12).all()
    assert moments.count == 50


def test_directions_turn_with_the_frame_and_know_no_scale():
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    plain, turned = Moments.start(np.zeros(4, int)), Moments.start(np.zeros(4, int))
    for gradient in rng.standard_normal((5, 4)):
        plain, turned = plain.learn(gradient), turned.learn(1e-7 * Q @ gradient)
    np.testing.assert_allclose(turned.direction(), Q @ plain.direction(), rtol=1e-12)


def test_no_gradient_gives_no_direction():
    moments = Moments.start(np.array([0, 1, 1]))
    assert (moments.learn(np.zeros(3)).direction() == 0).all()
    # What is rounding beside another group's gradient is not blown up to a step.
    direction = moments.learn(np.array([1.0, 1e-12, 0.0])).direction()
    np.testing.assert_array_equal(direction, [-1, 0, 0])


# one minibatch


@pytest.mark.parametrize("loss", LOSSES)
def test_a_minibatch_of_everything_has_the_gradient_of_the_objective(loss):
    objective, start = make(loss=loss, plain=False)
    trial = objective.trial(start)
    rows = np.random.default_rng(0).permutation(40)
    batch = take(objective, rows)
    looked_at = trial_with(batch, start, trial.memo.head)
    assert looked_at.value == pytest.approx(trial.value, rel=1e-12)
    np.testing.assert_allclose(
        batch.gradient(looked_at), objective.gradient(trial), rtol=1e-8, atol=1e-10
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("plain", [True, False])
def test_the_head_stays_where_it_is_best_and_returns_there(loss, plain):
    """With the dictionary held and all data in the batch, steps solve for the head."""
    objective, start = make(loss=loss, plain=plain, gamma=0.1)
    trial = objective.trial(start)
    learner = Learner.start(objective, trial)
    best = trial.memo.head
    stayed = learner.step(objective, 0.0)
    np.testing.assert_allclose(stayed.head[0], best[0], atol=1e-6)
    push = np.random.default_rng(0).standard_normal(best[0].shape)
    push -= push.mean(axis=0)  # what all classes share is held by the penalty alone, and slow
    away = Learner(start, (best[0] + push, best[1]), learner.spread, learner.moments)
    values = [trial_with(objective, start, away.head).value]
    for _ in range(40):
        away = away.step(objective, 0.0)
        values.append(trial_with(objective, start, away.head).value)
    assert values[-1] - trial.value < 0.05 * (values[0] - trial.value)


def test_learners_do_not_change_and_steps_are_as_long_as_they_say():
    objective, start = make()
    learner = Learner.start(objective, objective.trial(start))
    frames = learner.point.frames.copy()
    following = learner.step(objective, 0.1)
    assert np.array_equal(learner.point.frames, frames)
    assert learner.moments.count == 0
    relative = np.linalg.solve(frames, following.point.frames)
    values = 2 * np.log(np.linalg.svd(relative, compute_uv=False))
    np.testing.assert_allclose(np.linalg.norm(values, axis=1), 0.1, rtol=1e-8)


def test_a_learner_that_went_astray_says_so():
    objective, start = make()
    learner = Learner.start(objective, objective.trial(start))
    lost = Dictionary(np.full_like(start.frames, np.nan), start.parameters)
    with pytest.raises(FloatingPointError, match="steps were too long"):
        Learner(lost, learner.head, learner.spread, learner.moments).step(objective, 0.1)


@pytest.mark.parametrize(
    ("part", "first", "message"),
    [
        ("encode", 3, "a divergence is nan on a minibatch, must be finite"),
        ("whitened", 1, "the gradient is nan on a minibatch, must be finite"),
    ],
)
def test_numbers_that_are_none_before_any_step(part, first, message):
    """Shorter steps would not help."""
    with pytest.raises(FloatingPointError, match=message):
        solve(*make(engine=FailingEngine(part, first)), max_iter=50)


def test_an_objective_that_is_no_number_after_all_epochs():
    objective, start = make()
    trials, true = [], objective.trial

    def trial(point):
        trials.append(point)
        return true(point) if len(trials) == 1 else replace(true(point), value=np.nan)

    objective.trial = trial
    with pytest.raises(FloatingPointError, match="objective is nan after an epoch of steps of"):
        solve(objective, start, max_iter=50)


# epochs


@pytest.mark.parametrize(
    ("loss", "variant", "plain"),
    [*product(LOSSES, "N", [False]), ("ridge", "N", True), *product(["ridge"], "SVA", [False])],
)
def test_descent_is_monotone_and_history_is_whole(loss, variant, plain):
    objective, start = make(loss=loss, variant=variant, plain=plain)
    fit = solve(objective, start)
    history = fit.history
    assert (np.diff(history["objective"]) <= 0).all()
    assert history["objective"][-1] == fit.trial.value < history["objective"][0]
    assert {len(column) for column in history.values()} == {5}
    assert history["block"].tolist() == ["start"] + 4 * ["stochastic"]
    assert np.isnan(history["gradient_norm"][0])
    assert (history["gradient_norm"][1:] > 0).all()
    # One on all data, then three per epoch: two in the minibatches, one on all data.
    np.testing.assert_array_equal(history["eigenproblems"], 160 * (1 + 3 * np.arange(5)))
    assert (history["alpha"] >= 0).all()
    check_spd(fit.trial.point.atoms)
    assert (fit.n_iter, fit.message) == (4, "max_iter=4 reached")
    # The value is that of the whole objective, not of minibatches.
    assert objective.trial(fit.trial.point).value == pytest.approx(fit.trial.value, rel=1e-6)


def test_congruence_changes_nothing():
    objective, start = make(loss="softmax", plain=False)
    A = np.random.default_rng(3).standard_normal((4, 4))
    moved, _ = make(loss="softmax", plain=False, moved=A)
    there = Dictionary(A @ start.frames, start.parameters)
    first, second = solve(objective, start), solve(moved, there)
    np.testing.assert_allclose(second.history["objective"], first.history["objective"], rtol=1e-6)
    np.testing.assert_allclose(
        second.trial.point.atoms, A @ first.trial.point.atoms @ A.T, rtol=1e-4, atol=1e-4
    )


def test_rotations_of_the_frames_change_nothing():
    Q = np.linalg.qr(np.random.default_rng(3).standard_normal((4, 4)))[0]
    objective, start = make(plain=False)
    first = solve(objective, start)
    second = solve(objective, Dictionary(start.frames @ Q, start.parameters))
    np.testing.assert_allclose(second.history["objective"], first.history["objective"], rtol=1e-8)


def test_the_seed_decides():
    values = [solve(*make(), seed=seed).trial.value for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize(("atoms", "parameters"), [(True, False), (False, True)])
def test_what_is_not_learned_does_not_move(atoms, parameters):
    objective, start = make(learn_atoms=atoms, learn_parameters=parameters)
    fit = solve(objective, start)
    assert np.array_equal(fit.trial.point.frames, start.frames) != atoms
    assert np.array_equal(fit.trial.point.parameters, start.parameters) != parameters


def test_where_nothing_is_learned_it_stops_at_once():
    objective, start = make(learn_atoms=False, learn_parameters=False)
    fit = solve(objective, start)
    assert (fit.n_iter, fit.message[:30]) == (1, "an epoch lowered the objective")
    assert solve(objective, start, max_iter=0).n_iter == 0


def test_matrices_of_no_weight_are_not_looked_at():
    objective, start = make()
    weights = objective.targets[0][1]
    weights[::2] = 0
    weights /= weights.sum()
    fit = solve(objective, start, max_iter=1, batch_size=2)
    assert objective.eigenproblems == 160 + 2 * 80 + 160
    assert np.isfinite(fit.trial.value)


def test_epochs_that_rise_are_undone_and_steps_halved(monkeypatch):
    monkeypatch.setattr(stochastic, "_FIRST_STEP", 3.0)  # the length of a step that is too long
    objective, start = make(plain=False)
    fit = solve(objective, start, max_iter=12)
    values = fit.history["objective"]
    assert (np.diff(values) <= 0).all()
    undone = np.diff(values) == 0
    assert undone.any()
    assert not undone[-1]
    assert fit.trial.value < values[0]
    assert len(values) == 13


def test_where_no_epoch_lowers_the_objective_it_says_so():
    fit = solve(*make(), max_iter=50)
    assert fit.message.startswith("no epoch lowers the objective, with steps down to 0.0002")
    assert fit.n_iter < 50
    assert fit.trial.value == fit.history["objective"].min()


def test_small_changes_are_the_end():
    objective, start = make(plain=False)
    fit = solve(objective, start, max_iter=50, tol=0.5)
    assert "<= tol=0.5" in fit.message
    assert fit.n_iter < 50


def test_a_minibatch_of_more_than_there_are_is_all_of_them():
    assert solve(*make(), batch_size=1000, max_iter=2).n_iter == 2


# what it costs


def test_many_matrices_need_fewer_eigenproblems_than_all_at_once():
    """To where L-BFGS gets in ten iterations, 22 eigenproblems per matrix and atom."""
    options = {"n": 2000, "d": 4, "n_atoms": 6, "loss": "ridge", "gamma": 1e-3}
    objective, start = make(**options, plain=False)
    joint = solve_joint(objective, start, max_iter=10, tol=0.0)
    objective, start = make(**options, plain=False)
    goal = joint.trial.value
    fit = solve_stochastic(objective, start, max_iter=5, tol=0.0)
    there = int(np.argmax(fit.history["objective"] <= goal))
    assert fit.history["objective"][there] <= goal
    assert fit.history["eigenproblems"][there] < 0.6 * joint.history["eigenproblems"][-1]


def test_no_more_than_one_encoding_of_all_data_is_held():
    objective, start = make(plain=False)
    encode, kept = objective.encode, []

    def watched(*arguments):
        assert all(reference() is None for reference in kept)
        V = encode(*arguments)
        kept.append(weakref.ref(V[0]))
        return V

    objective.encode = watched
    fit = solve(objective, start, max_iter=3)
    assert len(kept) == 4
    assert fit.trial.memo.V == ()
