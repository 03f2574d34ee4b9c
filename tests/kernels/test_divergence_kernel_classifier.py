"""Support vector machines with kernels of divergences, chosen by cross-validation."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import wishart
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import (
    LeaveOneGroupOut,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.svm import SVC

from divlearn.fitting.calibration import calibrate, log_probabilities
from divlearn.kernels import POINTS, DivergenceKernel, DivergenceKernelClassifier
from divlearn.kernels.machines import SHARPNESSES, couple

SMALL = {"alphas": [0.5], "betas": [0.5], "scales": [0.5, 2], "C": [1, 10]}


def classes(seed: int, n: int = 60, d: int = 3, n_classes: int = 3, dof: int = 15):
    """Covariances, each class with a variable of its own that follows the first."""
    rng = np.random.default_rng(seed)
    samples = rng.standard_normal((n, d, dof))
    y = np.arange(n) % n_classes
    for label in range(1, n_classes):
        samples[y == label, label] += samples[y == label, 0]
    return samples @ samples.mT / dof, y


# --- the choice


@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_pass_is_a_plain_grid_search(n_classes):
    X, y = classes(0, n_classes=n_classes, dof=8)
    folds = list(StratifiedKFold(3, shuffle=True, random_state=1).split(X, y))
    model = DivergenceKernelClassifier([0, 1], [0, 1], scales=[0.5, 2], C=[0.3, 10], cv=folds).fit(
        X, y
    )
    table = model.cv_results_
    # Of four points one is another turned round; the best has two scales and two values of C.
    assert len(table["params"]) == 3 + 1 + 1
    assert sorted(table["param_C"]) == [0.3] + [10] * 4
    for k, tried in enumerate(table["params"]):
        kernel = DivergenceKernel((tried["alpha"], tried["beta"]), tried["scale"])
        scores = []
        for train, held in folds:
            machine = SVC(kernel="precomputed", C=tried["C"], decision_function_shape="ovo")
            machine.fit(kernel.fit_transform(X[train]), y[train])
            decisions = machine.decision_function(kernel.transform(X[held]))
            scores.append((couple(decisions)[..., 1].argmax(axis=1) == y[held]).mean())
        assert table["mean_test_score"][k] == pytest.approx(np.mean(scores))
        assert table["std_test_score"][k] == pytest.approx(np.std(scores))
        assert table["split2_test_score"][k] == pytest.approx(scores[2])
    assert model.best_score_ == table["mean_test_score"].max()
    assert table["rank_test_score"][table["params"].index(model.best_params_)] == 1
    assert model.best_params_ == table["params"][int(table["mean_test_score"].argmax())]


def test_scales_are_relative_to_the_median():
    X, y = classes(1)
    model = DivergenceKernelClassifier([0], [1], [0.5, 3], [1], random_state=0).fit(X, y)
    median = DivergenceKernel((0, 1)).fit(X).scale_
    tried = np.sort(model.cv_results_["param_scale"])
    np.testing.assert_allclose(tried, [0.5 * median, 3 * median])


def test_the_default_grid():
    X, y = classes(2)
    model = DivergenceKernelClassifier(random_state=0).fit(X, y)
    tried = model.cv_results_
    assert len(tried["params"]) == len(POINTS) + 4 + 2
    points = set(zip(tried["param_alpha"], tried["param_beta"], strict=True))
    assert points == set(POINTS) >= {(0, 0), (0.5, 0.5), (1, 1), (0, 1), (0.25, 0.25), (2, 2)}
    assert set(model.best_params_) == {"alpha", "beta", "scale", "C"}
    assert "over 4 folds; each has the best of 12 combinations on the other folds" in model.message_
    assert model.kernel_.divergence == (model.best_params_["alpha"], model.best_params_["beta"])
    assert model.kernel_.scale_ == model.best_params_["scale"]
    assert str(model.kernel_.definiteness())


def test_the_first_of_those_that_tie_is_taken():
    X, y = classes(3, dof=400)
    model = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X, y)
    assert model.best_score_ == 1
    first = int(np.argmax(model.cv_results_["mean_test_score"] == 1))
    assert model.best_params_ == model.cv_results_["params"][first]


def test_threads_and_engines_do_not_matter(engine):
    X, y = classes(4)
    one = DivergenceKernelClassifier(random_state=0, engine=engine, **SMALL).fit(X, y)
    other = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X, y)
    np.testing.assert_array_equal(
        one.cv_results_["mean_test_score"], other.cv_results_["mean_test_score"]
    )
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-6)


def test_a_random_state_makes_it_repeatable():
    X, y = classes(5, dof=6)
    first, second, third = (
        DivergenceKernelClassifier(random_state=seed, **SMALL).fit(X, y) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.oof_decision_, second.oof_decision_)
    assert (first.oof_decision_ != third.oof_decision_).any()


def test_progress(capsys):
    X, y = classes(6)
    grid = {"alphas": [0, 1], "betas": [0], "scales": [1], "C": [1, 10], "random_state": 0}
    DivergenceKernelClassifier(verbose=1, **grid).fit(X, y)
    assert "best of 3 combinations" in capsys.readouterr().out


# --- predictions


@pytest.mark.parametrize("n_classes", [2, 3])
def test_predictions(n_classes):
    X, y = classes(7, n=120, n_classes=n_classes)
    names = np.array(["amber", "blue", "coral"])[y]
    train, test = slice(None, 60), slice(60, None)
    model = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X[train], names[train])
    np.testing.assert_array_equal(model.classes_, np.unique(names))
    probabilities = model.predict_proba(X[test])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X[test])), probabilities)
    predicted = model.predict(X[test])
    np.testing.assert_array_equal(predicted, model.classes_[probabilities.argmax(axis=1)])
    scores = model.decision_function(X[test])
    assert scores.shape == ((60,) if n_classes == 2 else (60, 3))
    best = (scores > 0).astype(int) if n_classes == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(predicted, model.classes_[best])
    assert model.score(X[test], names[test]) == accuracy_score(names[test], predicted) > 0.85
    # Better calibrated than knowing nothing, and than being always sure.
    assert log_loss(names[test], probabilities) < 0.6 * np.log(n_classes)
    sure = np.clip((probabilities == probabilities.max(axis=1, keepdims=True)), 1e-3, None)
    sure = sure / sure.sum(axis=1, keepdims=True)
    assert log_loss(names[test], probabilities) < log_loss(names[test], sure)


def test_predictions_are_those_of_the_votes_almost_always():
    X, y = classes(8, n=200, d=6, n_classes=6, dof=12)
    model = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X[:120], y[:120])
    votes = model.svc_.predict(model.kernel_.transform(X[120:]))
    assert (votes == model.predict(X[120:])).mean() > 0.9
    assert accuracy_score(y[120:], model.predict(X[120:])) > accuracy_score(y[120:], votes) - 0.05


@pytest.mark.parametrize("n_classes", [2, 3])
def test_out_of_fold_decisions(n_classes):
    X, y = classes(9, n_classes=n_classes)
    folds = list(StratifiedKFold(4).split(X, y))
    model = DivergenceKernelClassifier([0.5], [0.5], [1], [10], cv=folds).fit(X, y)
    best = model.best_params_
    kernel = DivergenceKernel((0.5, 0.5), best["scale"])
    for train, test in folds:
        machine = SVC(kernel="precomputed", C=best["C"], decision_function_shape="ovo")
        machine.fit(kernel.fit_transform(X[train]), y[train])
        decisions = machine.decision_function(kernel.transform(X[test]))
        form = SHARPNESSES.index(model.coupling_[0])
        expected = decisions if n_classes == 2 else couple(decisions)[..., form]
        np.testing.assert_allclose(model.oof_decision_[test], expected, rtol=1e-6, atol=1e-9)
    accuracy = (model.classes_[model.oof_proba_.argmax(axis=1)] == y).mean()
    assert accuracy == pytest.approx(model.best_score_, abs=0.1)
    assert log_loss(y, model.oof_proba_) < np.log(n_classes)
    if n_classes == 2:  # a calibration keeps the order
        for _, test in folds:
            order = np.argsort(model.oof_decision_[test])
            assert (np.diff(model.oof_proba_[test, 1][order]) >= 0).all()


def test_what_is_tested_twice_or_never():
    X, y = classes(10)
    fold = np.where(np.arange(60) < 20, 0, -1)
    model = DivergenceKernelClassifier(cv=PredefinedSplit(fold), **SMALL).fit(X, y)
    np.testing.assert_array_equal(np.isnan(model.oof_proba_[:, 0]), fold == -1)
    np.testing.assert_array_equal(np.isnan(model.oof_decision_[:, 0]), fold == -1)
    assert np.isfinite(model.predict_proba(X)).all()
    often = ShuffleSplit(20, test_size=0.5, random_state=0)
    model = DivergenceKernelClassifier(cv=often, **SMALL).fit(X, y)
    assert np.isfinite(model.oof_decision_).all()
    assert "split19_test_score" in model.cv_results_


# --- weights and groups


def test_weights_are_repetitions():
    # As scikit-learn's check does for estimators with a parameter cv: weights and repetitions are
    # in one of three folds that are given. Weights are divided by their mean, so C is multiplied.
    rng = np.random.default_rng(0)
    X, y = classes(30, n=24, dof=5)
    weights, ones = rng.integers(0, 4, 24), np.ones(48)
    everything = np.concatenate([X, X, X]), np.tile(y, 3), np.r_[weights, ones].astype(int)
    group = np.repeat([0, 1, 2], 24)
    X_many, y_many, group_many = (
        np.repeat(one, everything[2], axis=0) for one in (*everything[:2], group)
    )
    weighted, repeated = (
        DivergenceKernelClassifier(cv=list(LeaveOneGroupOut().split(some, groups=of)), **SMALL)
        for some, of in ((everything[0], group), (X_many, group_many))
    )
    mean = len(X_many) / np.count_nonzero(everything[2])
    weighted.set_params(C=mean * np.array(SMALL["C"])).fit(*everything)
    repeated.fit(X_many, y_many)
    expected = repeated.best_params_ | {"C": mean * repeated.best_params_["C"]}
    assert weighted.best_params_ == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(
        weighted.cv_results_["mean_test_score"], repeated.cv_results_["mean_test_score"]
    )
    # The solver stops at a tolerance of 1e-3.
    scores = (model.predict_proba(X) for model in (weighted, repeated))
    np.testing.assert_allclose(*scores, atol=1e-2)
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


def test_weights_of_classes():
    X, y = classes(11, n=90, n_classes=2, dof=5)
    kept = np.flatnonzero((y == 0) | (np.arange(90) < 30))
    X, y = X[kept], y[kept]
    grid = {"alphas": [0.5], "betas": [0.5], "scales": [1], "C": [0.1], "random_state": 0}
    recalls = [
        DivergenceKernelClassifier(class_weight=weight, **grid).fit(X, y).predict(X)[y == 1].mean()
        for weight in (None, "balanced", {0: 1, 1: 30})
    ]
    assert recalls[0] < recalls[1] <= recalls[2]
    named = np.array(["rest", "rare"])[y]
    model = DivergenceKernelClassifier(class_weight={"rest": 1, "rare": 30}, **grid)
    assert (model.fit(X, named).predict(X)[y == 1] == "rare").mean() == recalls[2]


def test_no_weight_is_no_matrix():
    X, y = classes(12)
    weights = np.ones(60)
    weights[::4] = 0
    labels = y.astype(object).astype(str)
    labels[0] = "unknown"  # a class without a weight is none
    model = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X, labels, weights)
    kept = weights > 0
    plain = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X[kept], labels[kept])
    assert model.classes_.tolist() == ["0", "1", "2"]
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(np.isnan(model.oof_proba_[:, 0]), ~kept)
    np.testing.assert_array_equal(model.oof_proba_[kept], plain.oof_proba_)


def test_weights_pull_the_machine():
    X, y = classes(13, n_classes=2, dof=4)
    grid = {"alphas": [0.5], "betas": [0.5], "scales": [1], "C": [0.1], "random_state": 0}
    weights = np.where(y == 1, 20.0, 1.0)
    plain = DivergenceKernelClassifier(**grid).fit(X, y).predict(X).mean()
    assert DivergenceKernelClassifier(**grid).fit(X, y, weights).predict(X).mean() > plain


def test_groups_for_a_splitter_that_wants_them():
    X, y = classes(15)
    groups = np.repeat(["a", "b", "c"], 20)
    model = DivergenceKernelClassifier(cv=LeaveOneGroupOut(), **SMALL).fit(X, y, groups=groups)
    assert "split2_test_score" in model.cv_results_
    assert "split3_test_score" not in model.cv_results_
    # Fewer groups than folds.
    model = DivergenceKernelClassifier(cv=10, random_state=0, **SMALL).fit(X, y, groups=groups)
    assert "split3_test_score" not in model.cv_results_


# --- extremes


def test_numbers():
    rng = np.random.default_rng(16)
    X = np.exp(np.r_[rng.normal(-2, 0.3, 20), rng.normal(2, 0.3, 20)])[:, None, None]
    y = np.repeat([0, 1], 20)
    model = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X, y)
    assert model.score(X, y) == 1
    assert model.n_features_in_ == 1


def test_duplicates():
    X, y = classes(17)
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    model = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.score(X, y) > 0.9


def test_fewer_members_than_folds():
    X, y = classes(18, n=60, d=2, n_classes=1)
    y = np.arange(60) // 3  # twenty classes of three
    model = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X, y)
    assert model.predict_proba(X).shape == (60, 20)
    assert np.isfinite(model.oof_proba_).all()
    few = DivergenceKernelClassifier(cv=10, random_state=0, **SMALL).fit(X[:6], y[:6])
    assert "split2_test_score" in few.cv_results_
    assert "split3_test_score" not in few.cv_results_


def test_fewer_matrices_than_variables():
    X = wishart(np.random.default_rng(19), 8, 20)
    X[4:] *= 4
    y = np.repeat(["low", "high"], 4)
    assert DivergenceKernelClassifier(random_state=0, **SMALL).fit(X, y).score(X, y) == 1


def test_single_precision():
    X, y = classes(20)
    single = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X.astype("float32"), y)
    double = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X, y)
    np.testing.assert_allclose(
        single.predict_proba(X.astype("float32")), double.predict_proba(X), atol=1e-3
    )


def test_ill_conditioned_matrices():
    X, y = classes(21)
    units = np.array([1e-6, 1.0, 1e6])
    scaled = units[:, None] * X * units
    model = DivergenceKernelClassifier(random_state=0, **SMALL).fit(X, y)
    other = DivergenceKernelClassifier(random_state=0, **SMALL).fit(scaled, y)
    np.testing.assert_allclose(other.predict_proba(scaled), model.predict_proba(X), atol=1e-5)


# --- among other estimators


def test_one_penalty():
    X, y = classes(22)
    one, many = (
        DivergenceKernelClassifier(random_state=0, **SMALL | {"C": C}).fit(X, y) for C in (3, [3.0])
    )
    assert one.best_params_ == many.best_params_
    assert one.best_params_["C"] == 3.0


# --- what is wrong is said


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alphas": [1]}, r"^alphas is given, but betas is not; pass both, or neither$"),
        ({"betas": [1]}, r"^betas is given, but alphas is not"),
        ({"alphas": [1], "betas": [-1]}, r"\(1, -1\) must not have opposite signs"),
        ({"alphas": [[1]], "betas": [1]}, r"alphas has shape \(1, 1\), but must have shape \(n,\)"),
        ({"alphas": [np.nan], "betas": [1]}, r"alphas\[0\] = nan must be finite"),
        ({"scales": []}, r"scales has shape \(0,\), but must have shape \(n,\) with n >= 1"),
        ({"scales": [0.0, 1.0]}, r"scales=\[0.0, 1.0\] must be > 0"),
        ({"C": [-1.0]}, r"C=\[-1.0\] must be > 0"),
        ({"C": 0}, r"C=\[0.0\] must be > 0"),
        ({"cv": 1}, r"cv=1 must be an integer >= 2, a splitter or pairs of indices"),
        ({"cv": None}, r"cv=None must be an integer >= 2"),
        ({"cv": True}, r"cv=True must be an integer"),
        ({"cv": "four"}, r"cv='four' must be an integer"),
        ({"cv": []}, r"cv holds out no matrix"),
        ({"engine": "fast"}, r"engine='fast' must be"),
    ],
)
def test_wrong_parameters(parameters, message):
    X, y = classes(23)
    with pytest.raises(ValueError, match=message):
        DivergenceKernelClassifier(**parameters).fit(X, y)


def test_wrong_folds_and_groups():
    X, y = classes(25)
    with pytest.raises(ValueError, match=r"groups has 1 group, must have >= 2"):
        DivergenceKernelClassifier(**SMALL).fit(X, y, groups=np.zeros(60))
    with pytest.raises(ValueError, match=r"every class has 1 matrix or group"):
        DivergenceKernelClassifier(**SMALL).fit(X, y, groups=y)
    with pytest.raises(ValueError, match="groups has 59 entries, must have one for each"):
        DivergenceKernelClassifier(**SMALL).fit(X, y, groups=np.arange(59))


def test_nothing_to_compare():
    X, y = classes(26)
    model = DivergenceKernelClassifier(random_state=0, **SMALL)
    with pytest.raises(ValueError, match=r"every class has 1 matrix or group"):
        model.fit(X[:3], y[:3])
    with pytest.raises(ValueError, match=r"n_samples=60, all equal; pass other matrices"):
        model.fit(np.broadcast_to(X[0], X.shape), y)


def test_too_many_divergences_for_the_memory():
    grid = np.linspace(0.1, 3, 30)
    X = np.linspace(1, 2, 5000)[:, None, None]
    most = 1074  # whose pairs have 465 divergences of 8 bytes, 4 GiB in all
    message = rf"n_matrices=5000 with 465 divergences .* a random subset of at most {most} matrices"
    with pytest.raises(ValueError, match=message):
        DivergenceKernelClassifier(grid, grid).fit(X, np.arange(5000) % 2)
    assert 8 * 465 * most**2 <= 2**32 < 8 * 465 * (most + 1) ** 2


# --- coupling


def test_a_sharp_coupling_counts_votes():
    rng = np.random.default_rng(28)
    decisions = rng.standard_normal((50, 10))
    first, second = np.triu_indices(5, 1)
    votes = np.zeros((50, 5))
    for pair in range(10):
        winner = np.where(decisions[:, pair] > 0, first[pair], second[pair])
        votes[np.arange(50), winner] += 1
    naive = np.zeros((50, 5))
    for pair in range(10):
        naive[:, first[pair]] -= np.log1p(np.exp(-3 * decisions[:, pair]))
        naive[:, second[pair]] -= np.log1p(np.exp(3 * decisions[:, pair]))
    scores = couple(decisions)[..., SHARPNESSES.index(3.0)]
    np.testing.assert_allclose(scores, -np.log(1 - naive / 0.6), rtol=1e-10)
    sharp = couple(np.sign(decisions))[..., SHARPNESSES.index(30.0)]
    np.testing.assert_allclose(sharp, -np.log(1 + 5 * (4 - votes)), atol=1e-6)


def test_the_temperature_of_known_probabilities():
    rng = np.random.default_rng(29)
    decisions = rng.normal(0, 2, 20_000)
    codes = (rng.random(20_000) < 1 / (1 + np.exp(-decisions / 0.4))).astype(np.intp)
    _, temperature = calibrate(couple(decisions), codes, np.ones(20_000))
    assert temperature == pytest.approx(0.4, rel=0.05)


def test_decisions_that_are_all_right_leave_a_doubt():
    codes = np.arange(30) % 3
    first, second = np.triu_indices(3, 1)
    decisions = (codes[:, None] == first).astype(float) - (codes[:, None] == second)
    scores = couple(decisions)
    known = calibrate(scores, codes, np.ones(30))
    probabilities = np.exp(log_probabilities(scores, *known))
    assert probabilities[np.arange(30), codes].mean() == pytest.approx(1 - 1 / 32, rel=1e-3)
