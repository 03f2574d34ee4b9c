"""The texture data: its covariances are those of np.cov, its labels and counts are right."""

from __future__ import annotations

import numpy as np
import pytest

from divlearn.datasets import Dataset, load_textures
from divlearn.spd import check_spd

data = pytest.importorskip("skimage.data", reason="scikit-image is not installed")


@pytest.fixture(scope="module")
def textures() -> Dataset:
    return load_textures()


def test_one_covariance_and_one_label_per_patch(textures):
    assert textures.matrices.shape == (768, 5, 5)
    assert textures.classes.tolist() == ["brick", "grass", "gravel"]
    assert textures.labels.tolist() == ["brick"] * 256 + ["grass"] * 256 + ["gravel"] * 256
    np.testing.assert_array_equal(check_spd(textures.matrices), textures.matrices)


def test_covariances_are_those_of_numpy(textures):
    rng = np.random.default_rng(0)
    for name, offset in zip(textures.classes, (0, 256, 512), strict=True):
        image = getattr(data, name)().astype(float)
        along_y, along_x = np.gradient(image)
        for index in rng.integers(256, size=10):
            top, left = 32 * (index // 16), 32 * (index % 16)
            pixels = [
                (x / 31, y / 31, image[y, x], abs(along_x[y, x]), abs(along_y[y, x]))
                for y in range(top, top + 32)
                for x in range(left, left + 32)
            ]
            expected = np.cov(np.transpose(pixels))
            np.testing.assert_allclose(
                textures.matrices[offset + index], expected, rtol=1e-10, atol=1e-10
            )


def test_pixels_that_fill_no_patch_are_left_out():
    textures = load_textures(100)
    assert textures.matrices.shape == (3 * 5 * 5, 5, 5)
    assert textures.labels.tolist() == ["brick"] * 25 + ["grass"] * 25 + ["gravel"] * 25


@pytest.mark.parametrize(
    ("patch", "error", "message"),
    [
        (1, ValueError, "patch=1 must be >= 2 and <= 512"),
        (513, ValueError, "patch=513 must be >= 2 and <= 512"),
        (4, ValueError, "patch=4 must be larger: .* 5 features"),
        (32.0, TypeError, "patch=32.0 must be an integer"),
        (True, TypeError, "patch=True must be an integer"),
    ],
)
def test_bad_patches(patch, error, message):
    with pytest.raises(error, match=message):
        load_textures(patch)


def test_without_scikit_image_the_extra_is_named(uninstall):
    uninstall("skimage")
    with pytest.raises(ImportError, match=r'pip install "divlearn\[images\]"'):
        load_textures()
