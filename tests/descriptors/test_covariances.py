"""Covariances over boxes: integral images and the direct way against numpy.cov."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import native_names
from engine_problems import has_native
from hypothesis import given, settings
from hypothesis import strategies as st

from divlearn.descriptors import covariances as module
from divlearn.descriptors.covariances import (
    _grams_by_numpy,
    box_covariances,
    box_grams,
    check_boxes,
    check_sides,
    covariances,
    grid_boxes,
)

INSTRUCTION_SETS = [name.removeprefix("native-") for name in native_names() if has_native]


def random_boxes(rng, shape, count, smallest=2):
    sides = [rng.integers(smallest, size + 1, count) for size in shape]
    top, left = (rng.integers(0, size - side + 1) for size, side in zip(shape, sides, strict=True))
    return np.stack([top, left, top + sides[0], left + sides[1]], axis=1)


def naive(maps, boxes):
    return np.stack(
        [
            np.cov(maps[:, top:bottom, left:right].reshape(len(maps), -1))
            for top, left, bottom, right in boxes
        ]
    )


def relative_error(computed, expected):
    """Entries relative to the standard deviations they belong to."""
    scale = np.sqrt(np.diagonal(expected, axis1=1, axis2=2))
    return (np.abs(computed - expected) / (scale[:, :, None] * scale[:, None, :])).max()


@pytest.mark.parametrize("features", [1, 7, 8, 33])
@pytest.mark.parametrize("shape", [(40, 50), (3, 90), (90, 2)])
def test_integral_images_sum_over_boxes(features, shape):
    rng = np.random.default_rng(features)
    # Small integers: every sum is exact, so the answer must be, too.
    maps = rng.integers(-9, 10, (features, *shape)).astype(float)
    boxes = random_boxes(rng, shape, 200, smallest=1)
    offset = rng.integers(-3, 4, features).astype(float)
    pixels = np.concatenate([maps - offset[:, None, None], np.ones((1, *shape))])
    parts = [pixels[:, top:bottom, left:right] for top, left, bottom, right in boxes]
    expected = np.stack([np.einsum("fyx,gyx->fg", part, part) for part in parts])
    np.testing.assert_array_equal(box_grams(maps, offset, boxes), expected)
    np.testing.assert_array_equal(_grams_by_numpy(maps, offset, boxes), expected)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS, indirect=True)
@pytest.mark.usefixtures("instruction_set")
def test_every_instruction_set():
    rng = np.random.default_rng(0)
    maps = rng.integers(-9, 10, (11, 30, 31)).astype(float)
    boxes = random_boxes(rng, (30, 31), 50)
    offset = np.arange(11.0)
    expected = _grams_by_numpy(maps, offset, boxes)
    np.testing.assert_array_equal(box_grams(maps, offset, boxes), expected)


@pytest.mark.skipif(not INSTRUCTION_SETS, reason="the native engine is not installed")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"right": [9]}, "a box leaves the image"),
        ({"left": [-1]}, "a box leaves the image"),
        ({"edge": [0, 2]}, "an edge has no box"),
        ({"edge_start": [0, 1, 2, 2, 2]}, "wrong size of edge_start"),
        ({"edge_start": [0, 2, 1, 2, 2, 2]}, "edges are not sorted"),
        ({"edge_start": [0, 1, 1, 1, 1, 9]}, "edges leave the image"),
    ],
)
def test_the_kernel_never_reads_elsewhere(change, message):
    from divlearn.engines import _native

    arguments = {
        "left": [0],
        "right": [4],
        "edge_start": [0, 1, 1, 1, 1, 2],
        "edge": [0, 1],
    } | change
    with pytest.raises(ValueError, match=message):
        _native.box_grams(
            INSTRUCTION_SETS[0],
            np.ones((2, 4, 4)),
            np.zeros(2),
            *(np.array(values) for values in arguments.values()),
            np.zeros((1, 3, 3)),
        )


@given(seed=st.integers(0, 2**32 - 1), offset=st.sampled_from([0.0, 100.0, -1e6]))
@settings(max_examples=12, deadline=None)
def test_box_covariances_agree_with_numpy(seed, offset):
    rng = np.random.default_rng(seed)
    shape = rng.integers(4, 60, 2)
    maps = rng.standard_normal((4, *shape)) + offset
    boxes = random_boxes(rng, shape, 100)
    expected = naive(maps, boxes)
    assert relative_error(box_covariances(maps, boxes, {}), expected) < 1e-9


def test_boxes_much_flatter_than_the_image_keep_their_digits():
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((3, 80, 80))
    maps[:, 20:60, 20:60] = 1000 + 1e-5 * rng.standard_normal((3, 40, 40))
    inside = random_boxes(rng, (40, 40), 300) + 20
    boxes = np.concatenate([random_boxes(rng, (80, 80), 300), inside])
    computed, expected = box_covariances(maps, boxes, {}), naive(maps, boxes)
    assert relative_error(computed[300:], expected[300:]) < 1e-7  # what 1000 + 1e-5 z can hold
    assert relative_error(computed[:300], expected[:300]) < 1e-9
    # The same by integral images alone is lost: the guard did its work.
    raw, bound = module._by_integral_images(
        maps, inside, np.prod(inside[:, 2:] - inside[:, :2], axis=1), {}
    )
    assert relative_error(raw, naive(maps, inside)) > 1e-4
    assert bound.min() > 1e-9


def test_coordinates_are_known():
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:300, :300].astype(float)
    maps = np.stack([x, rng.standard_normal((300, 300)), y, rng.random((300, 300))])
    corners = rng.integers(0, 280, (5000, 2))
    boxes = np.concatenate([corners, corners + rng.integers(12, 20, (5000, 2))], axis=1)
    expected = naive(maps, boxes[::50])
    computed = box_covariances(maps, boxes, {0: 1, 2: 0})
    assert relative_error(computed[::50], expected) < 1e-11
    only = box_covariances(maps[[0, 2]], boxes, {0: 1, 1: 0})
    np.testing.assert_allclose(only[::50], expected[:, ::2, ::2], rtol=1e-9, atol=1e-9)


def test_features_constant_in_a_box_have_exactly_no_variance():
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((3, 40, 40))
    maps[1] = 0.1
    maps[2, :, 20:] = 1 / 3
    boxes = np.concatenate(
        [random_boxes(rng, (40, 20), 200) + np.array([0, 20, 0, 20]), [[0, 0, 40, 40]]]
    )
    computed = box_covariances(maps, boxes, {})
    assert (computed[:, 1] == 0).all()
    assert (computed[:-1, 2] == 0).all()
    assert computed[-1, 2, 2] > 0


def test_covariances_are_those_of_numpy_for_large_offsets():
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 256, (5, 4, 300)) + 2.0**40
    expected = np.stack([np.cov(one - 2.0**40) for one in samples])
    np.testing.assert_allclose(covariances(samples), expected, rtol=1e-13, atol=1e-10)
    computed = covariances(samples)
    np.testing.assert_array_equal(computed, computed.mT)


def test_grid_boxes_cover_what_fits():
    boxes = grid_boxes((10, 13), (4, 5), (3, 4))
    assert len(boxes) == 3 * 3
    assert boxes.max(axis=0).tolist() == [6, 8, 10, 13]
    assert ((boxes[:, 2:] - boxes[:, :2]) == [4, 5]).all()


@pytest.mark.parametrize(
    ("boxes", "error", "message"),
    [
        ([[0, 0, 5]], ValueError, r"shape \(1, 3\), but must be \(n_boxes, 4\)"),
        ([0, 0, 5, 5], ValueError, r"shape \(4,\)"),
        (np.zeros((0, 4), int), ValueError, r"shape \(0, 4\)"),
        ([[0, 0, 5.0, 5]], TypeError, "dtype float64, but must be integers"),
        ([[0, 0, 5, 5], [3, 0, 3, 5]], ValueError, r"box 1 is \(3, 0, 3, 5\)"),
        ([[-1, 0, 5, 5]], ValueError, r"box 0 is \(-1, 0, 5, 5\)"),
        ([[0, 0, 9, 5]], ValueError, "must lie in an image of 8 x 8 pixels"),
    ],
)
def test_bad_boxes(boxes, error, message):
    with pytest.raises(error, match=message):
        check_boxes(boxes, (8, 8))


@pytest.mark.parametrize("value", [3.0, (1, 2, 3), "32", (3, True), None])
def test_sides_must_be_integers(value):
    with pytest.raises(TypeError, match="must be an integer or a pair"):
        check_sides(value, "patch", 2)
