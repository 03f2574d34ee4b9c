"""Which arrays of a file are loaded: names, the only stack, splits, and what leaves a doubt."""

from __future__ import annotations

import numpy as np
import pytest
from spd_files import each_format, load, random_spd

X = random_spd()
N = len(X)
CLASSES = np.arange(N) % 3


# --- names


@pytest.mark.parametrize("name", ["matrices", "X", "data", "covariances", "spd", "anything"])
@pytest.mark.parametrize("label", ["labels", "y", "label", "target"])
def test_usual_names_and_the_only_stack(tmp_path, name, label):
    other = {"weights": np.ones(N), "table": np.ones((3, 7)), label: CLASSES}
    data = load(tmp_path, {**other, name: X})
    np.testing.assert_array_equal(data.matrices, X)
    np.testing.assert_array_equal(data.labels, CLASSES)


def test_a_usual_name_goes_before_another_stack(tmp_path):
    data = load(tmp_path, {"noise": np.ones((9, 2, 2)), "X": X})
    np.testing.assert_array_equal(data.matrices, X)
    assert data.labels is None


@each_format
def test_names_can_be_given(tmp_path, write):
    arrays = {"X": np.ones((9, 2, 2)), "mine": X, "y": np.ones(9), "groups": CLASSES + 5}
    data = load(tmp_path, arrays, write, matrices="mine", labels="groups")
    np.testing.assert_array_equal(data.matrices, X)
    np.testing.assert_array_equal(data.labels, CLASSES + 5)


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"X": X, "data": X}, {}, "X, data could be the matrices; choose with matrices="),
        ({"a": X, "b": X}, {}, "a, b could be the matrices; choose with matrices="),
        ({"X": X, "X_train": X, "X_test": X}, {}, "X, X_train, X_test could be the matrices"),
        ({"X": X, "y": CLASSES, "labels": CLASSES}, {}, "labels, y could be the labels; choose"),
        ({"X": X}, {"matrices": "Z"}, r"matrices='Z' is not in it; it holds X \(6, 4, 4\) float64"),
        ({"X": X}, {"labels": "y"}, "labels='y' is not in it; it holds X"),
        ({"a": np.ones((2, 3, 4))}, {}, r"no stack of square .* holds a \(2, 3, 4\) float64; save"),
        ({"a b": np.array("x")}, {}, r"it holds 'a b' \(\) text"),
        ({}, {}, "no stack of square matrices.*it holds no arrays"),
        ({f"v{i}": 1 for i in range(14)}, {}, "v9 .* and 4 more; save one"),
        ({"X_train": X, "train_X": X, "X_test": X, "test_X": X}, {}, "are several splits; choose"),
        ({"X_train": X, "X_test": X, "y_train": CLASSES}, {}, "only y_train has labels"),
    ],
)
def test_names_that_leave_a_doubt(tmp_path, arrays, options, message):
    with pytest.raises(ValueError, match=f"^data: .*{message}"):
        load(tmp_path, arrays, **options)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((4, 4), {"matrices": "X"}),
        ((3, 5, 3), {"matrices": "X"}),
        ((2, 3, 4), {"matrices": "X"}),
        ((2, 2, 3, 3), {"matrices": "X"}),
        ((), {"matrices": "X"}),
    ],
)
def test_shapes_that_are_no_stack(tmp_path, shape, options):
    with pytest.raises(ValueError, match=r"^data: X \(.*is not a stack of square.*save it"):
        load(tmp_path, {"X": np.ones(shape)}, **options)


@pytest.mark.parametrize("shape", [(0, 3, 3), (3, 3, 0), (3, 0, 0), (0, 0, 0)])
def test_empty_stacks(tmp_path, shape):
    with pytest.raises(ValueError, match=r"^data: X is empty"):
        load(tmp_path, {"X": np.ones(shape)})


# --- splits


@pytest.mark.parametrize("suffix", ["{}_train {}_test", "train_{} test_{}"])
@pytest.mark.parametrize("label", ["labels", "y"])
@each_format
def test_train_and_test_are_joined(tmp_path, write, suffix, label):
    train, test = suffix.format("X", "X").split()
    train_labels, test_labels = suffix.format(label, label).split()
    arrays = {test: X[4:], train: X[:4], test_labels: CLASSES[4:], train_labels: CLASSES[:4]}
    data = load(tmp_path, arrays, write)
    np.testing.assert_array_equal(data.matrices, X)
    np.testing.assert_array_equal(data.labels, CLASSES)
    np.testing.assert_array_equal(data.splits[0], [0, 1, 2, 3])
    np.testing.assert_array_equal(data.splits[1], [4, 5])


def test_splits_with_common_labels_no_labels_and_one_part_only(tmp_path):
    split = {"X_train": X[:4], "X_test": X[4:]}
    np.testing.assert_array_equal(load(tmp_path, {**split, "y": CLASSES}).labels, CLASSES)
    assert load(tmp_path, split).labels is None
    labels = {"train_labels": CLASSES[:4], "test_labels": CLASSES[4:]}
    data = load(tmp_path, {**split, **labels}, matrices="X_test")
    np.testing.assert_array_equal(data.matrices, X[4:])
    np.testing.assert_array_equal(data.labels, CLASSES[4:])
    assert data.splits is None


def test_parts_that_do_not_fit_together(tmp_path):
    with pytest.raises(ValueError, match=r"^data: X_train .* and X_test .* differ in the size"):
        load(tmp_path, {"X_train": X, "X_test": random_spd(5, 3)})
    arrays = {"X_train": X, "X_test": X, "y_train": CLASSES, "y_test": np.array(list("abcdef"))}
    with pytest.raises(ValueError, match=r"^data: y_train .* are text and numbers; save both"):
        load(tmp_path, arrays)
    with pytest.raises(
        ValueError, match=r"^data: y_test \(2,\) int64 must have one label for each"
    ):
        load(tmp_path, {**arrays, "y_test": np.arange(2)})
