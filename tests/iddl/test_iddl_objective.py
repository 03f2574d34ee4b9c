"""The objective of IDDL and its solvers: gradients, invariances, monotone descent, interruption."""

from __future__ import annotations

import numpy as np
import pytest
from failing_engine import FailingEngine
from iddl_problems import start_features
from interrupting import stop_at
from pyriemann.geometry.distance import distance_riemann
from sklearn.cluster import KMeans

from divlearn.engines import ReferenceEngine, get_engine
from divlearn.fitting import listen
from divlearn.geometry import logm
from divlearn.heads.losses import LOSSES
from divlearn.iddl.atoms import Dictionary, initial_atoms, make_variant, share_atoms
from divlearn.iddl.objective import Objective, Settings
from divlearn.iddl.solvers import AtomBlock, ParameterBlock, solve_bcd, solve_joint
from divlearn.iddl.stochastic import solve_stochastic
from divlearn.optim import projected
from divlearn.sharded.opening import open_data
from divlearn.spd import check_spd

VARIANTS = ["S", "V", "N", "A", "burg", (0.3, 0.0), [(0.7, 1.2), (0.2, 0.4)]]
SOLVERS = [solve_joint, solve_bcd]


def make(
    seed=0,
    variant="N",
    loss="ridge",
    plain=True,
    n_atoms=4,
    d=4,
    n=40,
    engine="auto",
    gamma=1e-2,
    moved=None,
    **options,
):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    factors = rng.standard_normal((n, d, 3 * d))
    X = factors @ factors.mT / (3 * d) + labels[:, None, None] * np.diag(np.arange(d) / d)
    weights = rng.random(n) + 0.1
    made = make_variant(variant, n_atoms, (0.7, 1.2))
    A = np.eye(d) if moved is None else moved
    shards = open_data(A @ X @ A.T, engine=engine)
    start = Dictionary(np.linalg.cholesky(X[:n_atoms]) * 1.1, made.start.copy())
    alpha, beta = made.expand(made.start)
    V = get_engine(engine).encode(X, start.atoms, alpha, beta).reshape(n, -1)
    weights /= weights.sum()
    feature_map = start_features(V, weights, plain=plain)
    objective = Objective(
        shards,
        [(np.eye(3)[labels], weights)],
        made,
        feature_map,
        Settings(LOSSES[loss](bias=not plain), gamma, **options),
        anchors=X[-n_atoms:],
    )
    return objective, start


def directional(objective, point, seed=1):
    """Slope along a random direction: from the gradient, and by central differences."""
    trial = objective.trial(point)
    gradient = objective.gradient(trial)
    direction = np.random.default_rng(seed).standard_normal(len(gradient))
    steps = direction[: point.frames.size].reshape(point.frames.shape)
    direction[: point.frames.size] = (steps + steps.mT).ravel()
    h = 1e-6
    ahead, behind = (
        objective.trial(objective.move(point, s * h * direction)).value for s in (1, -1)
    )
    used = direction * np.concatenate(
        [
            np.full(point.frames.size, objective.learn_atoms),
            np.full(len(point.parameters), objective.learn_parameters),
        ]
    )
    return np.vdot(gradient, used), (ahead - behind) / (2 * h)


@pytest.mark.parametrize(
    ("loss", "variant"),
    [*(("ridge", variant) for variant in VARIANTS), ("softmax", "N"), ("hinge", VARIANTS[-1])],
)
@pytest.mark.parametrize("plain", [True, False])
def test_gradients_of_the_whole_objective(loss, variant, plain):
    """Through the eigenvalues, the features and the solved head, to 1e-6."""
    objective, start = make(variant=variant, loss=loss, plain=plain, tether=0.0 if plain else 0.1)
    computed, expected = directional(objective, start)
    assert computed == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_tether_is_the_mean_squared_distance_to_the_anchors():
    free, start = make()
    held, _ = make(tether=0.3)
    ways = [
        distance_riemann(*pair, squared=True)
        for pair in zip(start.atoms, held.anchors, strict=True)
    ]
    expected = free.trial(start).value + 0.3 * np.mean(ways)
    assert held.trial(start).value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("engine", ["reference", "auto"])
@pytest.mark.parametrize(("atoms", "parameters"), [(True, False), (False, True)])
def test_what_is_not_learned_has_no_gradient_and_does_not_move(engine, atoms, parameters):
    objective, start = make(engine=engine, learn_atoms=atoms, learn_parameters=parameters)
    computed, expected = directional(objective, start)
    assert computed == pytest.approx(expected, rel=1e-6)
    fit = solve_joint(objective, start, max_iter=3, tol=0.0)
    assert np.array_equal(fit.trial.point.frames, start.frames) != atoms
    assert np.array_equal(fit.trial.point.parameters, start.parameters) != parameters


def test_blocks_have_the_gradients_of_the_objective_with_the_head_held():
    objective, start = make(plain=False, loss="softmax")
    trial = objective.trial(start)
    whole = objective.gradient(trial)  # with the head solved it is the partial one
    n, d = start.frames.shape[:2]
    for atom in range(n):
        block = AtomBlock(objective, start, trial.memo, atom)
        first = block.trial(start.frames[atom])
        assert first.value == pytest.approx(trial.value, rel=1e-12)
        expected = whole[atom * d * d : (atom + 1) * d * d]
        np.testing.assert_allclose(block.gradient(first), expected, atol=1e-9)
    block = ParameterBlock(objective, start, trial.memo)
    first = block.trial(start.parameters)
    assert first.value == pytest.approx(trial.value, rel=1e-12)
    np.testing.assert_allclose(block.gradient(first), whole[n * d * d :], atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("loss", "variant"), [*((loss, "N") for loss in LOSSES), *(("ridge", one) for one in "SVA")]
)
def test_descent_is_monotone_and_history_is_whole(solver, loss, variant):
    objective, start = make(loss=loss, variant=variant, plain=False)
    fit = solver(objective, start, max_iter=2, tol=1e-9)
    history = fit.history
    assert (np.diff(history["objective"]) <= 1e-10).all()
    assert history["objective"][-1] == fit.trial.value < history["objective"][0]
    assert {len(column) for column in history.values()} == {len(history["objective"])}
    assert (np.diff(history["eigenproblems"]) >= 0).all()
    assert (np.diff(history["seconds"]) >= 0).all()
    assert (history["alpha"] >= 0).all()
    assert history["alpha"].shape[1:] == (4, 1)
    assert set(history["block"]) <= {"start", "joint", "atoms", "parameters", "head"}
    check_spd(fit.trial.point.atoms)
    assert fit.message


def test_both_solvers_approach_one_stationary_point():
    # Free parameters and standardised features have their infimum at infinity.
    objective, start = make(n_atoms=2, d=2, n=10, gamma=0.1, variant="B")
    best = solve_joint(objective, start, max_iter=100, tol=1e-9).trial
    first, last = (
        projected(objective.gradient(trial), objective.limits(trial.point))
        for trial in (objective.trial(start), best)
    )
    assert np.abs(last).max() < 1e-4 * np.abs(first).max()
    values = solve_bcd(objective, start, max_iter=20, tol=1e-9).history["objective"]
    assert 0 < values[-1] - best.value < 0.05 * (values[0] - best.value)


def test_congruence_changes_nothing():
    """The whole objective is invariant when data and atoms are transformed alike."""
    objective, start = make(loss="softmax", plain=False)
    A = np.random.default_rng(3).standard_normal((4, 4))
    moved, _ = make(loss="softmax", plain=False, moved=A)
    there = Dictionary(A @ start.frames, start.parameters)
    first, second = (
        solver.history["objective"]
        for solver in (
            solve_joint(objective, start, max_iter=5, tol=0.0),
            solve_joint(moved, there, max_iter=5, tol=0.0),
        )
    )
    np.testing.assert_allclose(second, first, rtol=1e-6)


@pytest.mark.parametrize("solver", [*SOLVERS, solve_stochastic])
def test_an_interrupt_keeps_the_best_so_far(solver):
    objective, start = make()
    with listen(stop_at("iterations", 2)):
        fit = solver(objective, start, max_iter=50, tol=0.0)
    assert "interrupted" in fit.message
    assert fit.trial.value < fit.history["objective"][0]
    assert fit.trial.value == fit.history["objective"][-1]


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_interrupt_before_the_first_step_keeps_the_start(solver):
    objective, start = make()
    value = objective.trial(start).value
    with listen(stop_at("iterations", 0)):
        fit = solver(objective, start, max_iter=50, tol=0.0)
    assert (fit.n_iter, fit.trial.value) == (0, value)
    assert fit.message == "interrupted by the user in iteration 1"
    np.testing.assert_array_equal(fit.history["objective"], [value])


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_start_that_is_no_number_is_refused(solver):
    objective, start = make(plain=False, engine=FailingEngine("encode", 2))
    with pytest.raises(ValueError, match=r"nothing to start from: .* pass regularize"):
        solver(objective, start, max_iter=2, tol=0.0)


class ShortSighted(ReferenceEngine):
    """Raise once, where a step has led to."""

    calls = 0

    def encode(self, *given, out=None):
        self.calls += 1
        if self.calls == 3:  # after the offsets of features and the start
            raise FloatingPointError("too far")
        return super().encode(*given, out=out)


def test_an_engine_that_fails_after_a_step_shortens_it():
    engine = ShortSighted(1)
    objective, start = make(plain=False, engine=engine)
    fit = solve_joint(objective, start, max_iter=3, tol=0.0)
    assert engine.calls > 4
    assert fit.n_iter == 3
    assert fit.trial.value < objective.trial(start).value


@pytest.mark.parametrize("solver", [*SOLVERS, solve_stochastic])
def test_every_iteration_is_told_once(solver):
    objective, start = make()
    told = []
    with listen(lambda *news: told.append(news)):
        fit = solver(objective, start, max_iter=2, tol=0.0)
    ends = ~np.isin(fit.history["block"], ["atoms", "parameters"])
    values = fit.history["objective"][ends]
    expected = [("iterations", i, 2, f"objective {value:.6g}") for i, value in enumerate(values)]
    assert told == expected
    assert len(told) == 3


def test_eigenproblems_are_counted():
    objective, start = make(n=40, n_atoms=4)
    trial = objective.trial(start)
    assert objective.eigenproblems == 160
    objective.gradient(trial)
    assert objective.eigenproblems == 320


# variants

FIXED = ("A", "B", "burg", (0.25, 4))


@pytest.mark.parametrize(
    ("variant", "alpha", "beta", "n_parameters"),
    [
        ("S", [[1], [1]], [[2], [2]], 2),
        ("V", [[1.5], [1.5]], [[1.5], [1.5]], 2),
        ("N", [[1], [1]], [[2], [2]], 4),
        ("learn", [[1, 0, 1], [1, 0, 1]], [[1, 1, 0], [1, 1, 0]], 12),
        ([(1, 2), (0, 3)], [[1, 0], [1, 0]], [[2, 3], [2, 3]], 8),
        ("A", [[0], [0]], [[0], [0]], 2),
        ("B", [[1], [1]], [[1], [1]], 2),
        ("burg", [[0], [0]], [[1], [1]], 2),
        ((0.25, 4), [[0.25], [0.25]], [[4], [4]], 2),
    ],
)
def test_variants(variant, alpha, beta, n_parameters):
    made = make_variant(variant, 2, (1.0, 2.0))
    assert made.learned == (variant not in FIXED)
    for computed, expected in zip(made.expand(made.start), (alpha, beta), strict=True):
        np.testing.assert_array_equal(computed, expected)
    assert len(made.start) == n_parameters
    gradient = made.pull(
        np.ones_like(made.expand(made.start)[0]), 2 * np.ones_like(made.expand(made.start)[0])
    )
    assert gradient.sum() == 3 * np.size(alpha)


@pytest.mark.parametrize("variant", ["X", "", (1.0,), (1.0, -1.0), (np.nan, 1.0)])
def test_unknown_variants(variant):
    with pytest.raises(ValueError, match=r"divergence=.* must"):
        make_variant(variant, 2)


# initialisation


@pytest.mark.parametrize("method", ["class-kmeans", "kmeans", "samples", "identity"])
def test_initial_atoms(method):
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((30, 3, 9))
    X, codes = factors @ factors.mT, np.repeat([0, 1, 2], 10)
    atoms = initial_atoms(X, codes, 7, method, np.random.RandomState(0))
    assert atoms.shape == (7, 3, 3)
    check_spd(atoms)
    np.testing.assert_array_equal(
        atoms, initial_atoms(X, codes, 7, method, np.random.RandomState(0))
    )
    if method == "samples":
        assert all(any(np.array_equal(atom, x) for x in X) for atom in atoms)


@pytest.mark.parametrize("n", [60, 4100])
def test_initial_atoms_are_those_of_kmeans(n):
    """Distances between few are computed in one go: the same seeds are drawn."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((n, 3, 9))
    X = factors @ factors.mT
    atoms = initial_atoms(X, None, 8, "kmeans", np.random.RandomState(5))
    rows = logm(X).reshape(len(X), -1)
    right = KMeans(8, n_init=1, random_state=np.random.RandomState(5)).fit(rows)
    np.testing.assert_allclose(logm(atoms).reshape(8, -1), right.cluster_centers_, atol=1e-12)


def test_fewer_different_matrices_than_atoms():
    X = np.tile(np.eye(2), (5, 1, 1))
    atoms = initial_atoms(X, np.zeros(5, int), 3, "kmeans", np.random.RandomState(0))
    np.testing.assert_allclose(atoms, X[:3], atol=1e-12)
    samples = initial_atoms(X, np.array([0, 0, 0, 0, 1]), 4, "samples", np.random.RandomState(0))
    assert samples.shape == (4, 2, 2)


def test_shares_of_fewer_atoms_than_classes():
    assert share_atoms(2, 3).tolist() == [1, 1, 0]
