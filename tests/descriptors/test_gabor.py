"""Gabor magnitudes against filters written out pixel by pixel, and their invariances."""

from __future__ import annotations

import numpy as np
import pytest

from divlearn.descriptors import GaborBank


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).standard_normal((2, 70, 60))


def kernel(length, angle, sigma, radius):
    """The filter in space: a wave under an envelope, less its mean under that envelope."""
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    spread = sigma / length
    envelope = np.exp(-(x**2 + y**2) / (2 * spread**2)) / (2 * np.pi * spread**2)
    wave = np.exp(1j * length * (np.cos(angle) * x + np.sin(angle) * y))
    return envelope * (wave - (envelope * wave).sum() / envelope.sum())


@pytest.mark.parametrize("sigma", [2.0, 3.0])
def test_against_convolution_in_space(images, sigma):
    bank = GaborBank(scales=2, orientations=3, sigma=sigma)
    computed = bank.magnitudes(images)
    assert computed.shape == (2, 6, 70, 60)
    middle = (slice(25, -25), slice(25, -25))  # untouched by how borders are continued
    for index, (scale, orientation) in enumerate(np.ndindex(2, 3)):
        wave = kernel(np.pi / 2 / 2 ** (scale / 2), np.pi * orientation / 3, sigma, 24)
        windows = np.lib.stride_tricks.sliding_window_view(images, (49, 49), axis=(1, 2))
        response = np.einsum("nyxab,ab->nyx", windows, wave[::-1, ::-1])  # around pixel (24, 24)
        np.testing.assert_allclose(
            computed[:, index, *middle], np.abs(response[:, 1:-1, 1:-1]), atol=1e-6
        )


def test_it_finds_the_wave_it_looks_for():
    y, x = np.mgrid[:64, :64]
    bank = GaborBank(scales=4, orientations=6)
    for index, (scale, orientation) in enumerate(np.ndindex(4, 6)):
        length, angle = np.pi / 2 / 2 ** (scale / 2), np.pi * orientation / 6
        wave = np.cos(length * (np.cos(angle) * x + np.sin(angle) * y))
        response = bank.magnitudes(wave[None])[0, :, 24:40, 24:40].mean(axis=(1, 2))
        assert response.argmax() == index


def test_constants_vanish_and_do_not_matter(images):
    bank = GaborBank()
    np.testing.assert_allclose(bank.magnitudes(np.full((1, 41, 41), 1e3)), 0, atol=1e-9)
    np.testing.assert_allclose(bank.magnitudes(images + 7), bank.magnitudes(images), atol=1e-12)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scales": 13}, ValueError, "scales=13 must be >= 1 and <= 12"),
        ({"scales": 0}, ValueError, "scales=0 must be >= 1"),
        ({"orientations": 2.0}, TypeError, "orientations=2.0 must be an integer >= 1"),
        ({"scales": True}, TypeError, "scales=True must be an integer"),
        ({"sigma": 0}, ValueError, "sigma=0 must be > 0"),
        ({"sigma": np.nan}, ValueError, "sigma=nan must be > 0"),
    ],
)
def test_bad_parameters(options, error, message):
    with pytest.raises(error, match=message):
        GaborBank(**options)
