"""Maps of the plane: accuracies against a plain loop, and what is said about them."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from divlearn.divergence import abld
from divlearn.engines import available_engines
from divlearn.judge import NAMED, PlaneMap, plane_map
from divlearn.report import PlaneDisplay

ALPHAS, BETAS = np.array([0.0, 0.5, 1.75]), np.array([0.0, 1.0])


def random_data(n: int = 18, d: int = 3, n_classes: int = 3, seed: int = 0):
    """Overlapping classes, so that accuracies differ from point to point."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    factors = rng.standard_normal((n, d, d + 1)) * (1 + 0.6 * labels[:, None, None])
    return factors @ factors.mT, labels


@pytest.fixture(scope="module")
def plain_loop() -> np.ndarray:
    X, y = random_data()
    correct = np.zeros((len(ALPHAS), len(BETAS), len(X)), dtype=bool)
    for row, alpha in enumerate(ALPHAS):
        for column, beta in enumerate(BETAS):
            for query in range(len(X)):
                others = [j for j in range(len(X)) if j != query]
                divergences = abld(X[query], X[others], alpha, beta)
                correct[row, column, query] = y[others[np.argmin(divergences)]] == y[query]
    return correct


def synthetic(share_right, alphas=(0.0, 0.5, 1.0), betas=(0.0, 0.5, 1.0), n: int = 100) -> PlaneMap:
    """A map with given numbers of matrices right, the first ones at every point."""
    counts = np.broadcast_to(share_right, (len(alphas), len(betas)))
    return PlaneMap(np.array(alphas), np.array(betas), np.arange(n) < counts[..., None])


@pytest.mark.parametrize("engine", available_engines())
def test_accuracy_of_a_plain_loop(engine, plain_loop):
    plane = plane_map(*random_data(), ALPHAS, BETAS, engine=engine)
    np.testing.assert_array_equal(plane.correct, plain_loop)
    np.testing.assert_array_equal(plane.accuracy, plain_loop.mean(axis=-1))
    assert len(np.unique(plane.accuracy)) > 2  # the points differ, or the test says nothing
    assert plane.n_matrices == plain_loop.shape[-1]


def test_turning_the_signs_turns_the_direction():
    X, y = random_data()
    plane, turned = plane_map(X, y, ALPHAS, BETAS), plane_map(X, y, -BETAS[::-1], -ALPHAS[::-1])
    # D^(-a,-b) = D^(b,a)
    np.testing.assert_array_equal(turned.correct[::-1, ::-1], plane.correct.transpose(1, 0, 2))


def test_labels_of_any_kind_and_order():
    X, y = random_data()
    order = np.random.default_rng(1).permutation(len(X))
    names = np.array(["pear", "apple", "fig"])[y]
    expected = plane_map(X, y, [0], [1]).correct[0, 0]
    np.testing.assert_array_equal(
        plane_map(X[order], names[order], [0], [1]).correct[0, 0], expected[order]
    )
    assert (
        plane_map(X.tolist(), names.tolist(), [0], [1]).correct[0, 0].tolist() == expected.tolist()
    )


def test_as_near_to_another_class_as_to_its_own_is_wrong():
    X, y = [np.eye(2)] * 4, [0, 0, 1, 1]
    assert not plane_map(X, y, [0], [0]).correct.any()


def test_the_default_grid_holds_every_named_divergence():
    X, y = random_data()
    plane = plane_map(X, y)
    assert plane.accuracy.shape == (17, 17)
    assert plane.alphas[0] == plane.betas[0] == 0
    assert plane.alphas[-1] == plane.betas[-1] == 2
    assert list(plane.named) == ["airm", "stein", "burg", "reverse-burg", "log-cosh"]
    for name, accuracy in plane.named.items():
        assert accuracy == plane.at(NAMED[name].alpha, NAMED[name].beta)


def test_standard_error_is_binomial():
    plane = synthetic([[50, 80, 100]] * 3)
    np.testing.assert_allclose(plane.standard_error[0], [0.05, 0.04, 0.0])


def test_points_are_found_despite_the_rounding_of_steps():
    axis = np.cumsum(np.full(10, 0.1)) - 0.1  # 0.5 and 0.8 are off by a rounding
    assert 0.8 not in axis
    plane = synthetic(50, axis, axis)
    assert plane.index(0.5, 0.8) == (5, 8)
    assert list(plane.named) == ["airm", "stein"]


def test_points_off_the_grid():
    plane = synthetic(50)
    with pytest.raises(ValueError, match=r"\(0.3, 2\) must be a point of the grid; .* \(0.5, 1\)"):
        plane.at(0.3, 2)


def test_ties_prefer_names_then_small_parameters():
    assert synthetic([[1, 1, 2], [1, 2, 2], [1, 1, 1]]).best_points == (
        (0, 1),
        (0.5, 0.5),
        (0.5, 1),
    )
    quarter = synthetic([[1, 2, 2], [2, 1, 1]], alphas=[0.1, 0.4], betas=[0.0, 0.1, 2.0])
    assert quarter.best_points == ((0.1, 0.1), (0.4, 0.0), (0.1, 2.0))
    assert quarter.best == (0.1, 0.1)


def test_paired_comparison_counts_what_differs():
    correct = np.zeros((1, 2, 20), dtype=bool)
    correct[0, 0, :12] = True
    correct[0, 1, 9:11] = correct[0, 1, 18:] = True  # 10 only first, 2 both, 2 only second
    paired = PlaneMap(np.array([0.0]), np.array([0.0, 1.0]), correct).compare((0, 0), (0, 1))
    assert (paired.first_only, paired.second_only, paired.difference) == (10, 2, 0.4)
    assert paired.p_value == pytest.approx(2 * sum(comb(12, k) for k in range(3)) / 2**12)
    scores = correct[0, 0].astype(float) - correct[0, 1]
    assert paired.standard_error == pytest.approx(scores.std() / np.sqrt(20))


def test_a_point_compared_with_itself():
    paired = synthetic(50).compare((0, 0), (1, 1))
    assert (paired.difference, paired.standard_error, paired.p_value) == (0, 0, 1)


@pytest.mark.parametrize(
    ("right", "betas", "expected"),
    [
        (50, (0, 0.5, 1), ["All 9 points of the grid have the accuracy 50.0%."]),
        (
            [[60, 62, 50]] + [[50] * 3] * 2,
            (0, 0.5, 1),
            [
                "over 9 points is from 50.0% to 62.0%, the highest at (0, 0.5).",
                "highest of the named divergences is 60.0% (airm)",
                "accuracies are optimistic",
            ],
        ),
        (
            [[60, 50, 60]] + [[50] * 3] * 2,
            (0, 0.5, 1),
            ["at (0, 0) (1 other tie).", "60.0% (airm, burg). These points were selected"],
        ),
        (
            [[60, 90, 90]] + [[50] * 3] * 2,
            (0.2, 0.3, 0.4),
            ["the highest at (0, 0.3) (1 other tie). These points", "which_divergence judges"],
        ),
    ],
)
def test_summary_says_what_was_found(right, betas, expected):
    summary = synthetic(right, betas=betas).summary()
    for part in expected:
        assert part in summary


X, Y = random_data(n=6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, Y[:5]), "y has 5 rows, but X has 6 matrices"),
        ((X, np.zeros(6)), "y holds the one class 0.0, must hold >= 2"),
        ((X, np.arange(6)), "class 0 has 1 matrix, must have >= 2"),
        ((X, ["a"] * 5 + ["b"]), "class b has 1 matrix"),
        ((X, [0, 0, 1, 1, 1, np.nan]), r"y\[5\] is nan, must be a number"),
        ((X[:, :2], Y), "square"),
        ((-X, Y), r"X\[0\]"),
        ((X, Y, []), r"alphas has shape \(0,\)"),
        ((X, Y, [0], [[1]]), r"betas has shape \(1, 1\)"),
        ((X, Y, [1, 0]), r"alphas=\[1.0, 0.0\] must be finite and ascending"),
        ((X, Y, [0], [0, 0]), r"betas=\[0.0, 0.0\] must be finite and ascending"),
        ((X, Y, [0], [np.nan]), "betas.* must be finite"),
        ((X, Y, [-1, 0], [0, 1]), "alphas from -1 to 0 and betas from 0 to 1 .* opposite signs"),
        ((X, Y, [1], [-1]), "opposite signs"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        plane_map(*arguments)


def test_bad_engine():
    with pytest.raises(ValueError, match="engine='fast'"):
        plane_map(X, Y, engine="fast")


# --- the picture


@pytest.fixture
def all_figures():
    """What pyplot knows of; forgotten in the end."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    yield lambda: [pyplot.figure(number) for number in pyplot.get_fignums()]
    pyplot.close("all")


def test_picture_marks_what_there_is_to_see(all_figures):
    plane = synthetic([[60, 62, 50]] + [[50] * 3] * 2)
    axes = PlaneDisplay(plane).plot(title="some data").ax_
    assert axes.figure in all_figures()
    labels = " ".join(text.get_text() for text in axes.texts)
    for name in ("AIRM  60.0%", "Stein", "Burg", "reverse Burg", "log-cosh", "100 matrices"):
        assert name in labels
    assert axes.get_title(loc="left") == "some data"
    assert axes.get_legend().get_texts()[0].get_text() == "best point (0, 0.5)  62.0%"


def test_picture_labels_do_not_overlap(all_figures):
    axis = np.arange(17) / 8
    for row, column in ((0, 0), (4, 5), (16, 16)):
        counts = np.full((17, 17), 50)
        counts[row, column] = 60
        axes = PlaneDisplay(synthetic(counts, axis, axis)).plot().ax_
        axes.figure.draw_without_rendering()
        assert axes.figure in all_figures()
        star = axes.transData.transform((axis[row], axis[column]))
        boxes = [text.get_window_extent() for text in axes.texts]
        assert len(boxes) == 6
        for index, one in enumerate(boxes):
            assert not any(one.overlaps(other) for other in boxes[index + 1 :])
            assert not one.contains(*star)


def test_picture_into_given_axes_and_of_one_point():
    matplotlib_figure = pytest.importorskip("matplotlib.figure", reason="no matplotlib")
    figure = matplotlib_figure.Figure()
    left, right = figure.subfigures(1, 2)
    for part, found in ((left, synthetic(50)), (right, synthetic(50, [0.0], [1.0]))):
        axes = part.add_subplot()
        assert PlaneDisplay(found).plot(axes).ax_ is axes
    figure.draw_without_rendering()


def test_without_matplotlib_the_extra_is_named(uninstall):
    uninstall("matplotlib")
    with pytest.raises(ImportError, match=r'pip install "divlearn\[plot\]"'):
        PlaneDisplay(synthetic(50)).plot()
