"""Gabor magnitudes: how much of a frequency and a direction there is around each pixel."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import fft

from divlearn.arrays import RealArray
from divlearn.checks import check_count

_MOST_SCALES, _MOST_ORIENTATIONS = 12, 64  # envelopes grow: that of scale 11 has 58 pixels
_SPREADS = 3.0  # of the largest envelope: as far as a pixel is seen


@dataclass(frozen=True)
class GaborBank:
    r"""Bank of Gabor filters without response to constants.

    Scale s and orientation o have the wave vector :math:`k`, of length
    :math:`k_s = \pi / (2 \cdot 2^{s/2})` and angle :math:`\pi o / n_o`, and the filter

    .. math:: g(p) = \frac{|k|^2}{2 \pi \sigma^2} e^{-|k|^2 |p|^2 / (2 \sigma^2)}
              \left( e^{i k \cdot p} - c \right) ,

    a wave under a Gaussian envelope of :math:`\sigma / |k|` pixels, where c, about
    :math:`e^{-\sigma^2 / 2}`, makes its sum vanish. Images are continued by reflection.

    Parameters
    ----------
    scales : int, default=4
    orientations : int, default=6
        An even number makes a rotation by 90 degrees permute the responses.
    sigma : float, default=2
        Width of the envelope in units of :math:`1 / |k|`. Small images want few waves under it.

    Examples
    --------
    >>> bank = GaborBank(scales=2, orientations=3)
    >>> bank.names
    ('gabor 0 0', 'gabor 0 60', 'gabor 0 120', 'gabor 1 0', 'gabor 1 60', 'gabor 1 120')
    >>> bank.magnitudes(np.ones((1, 32, 32))).max() < 1e-12
    np.True_
    """

    scales: int = 4
    orientations: int = 6
    sigma: float = 2.0

    def __post_init__(self) -> None:
        check_count(self.scales, "scales", most=_MOST_SCALES)
        check_count(self.orientations, "orientations", most=_MOST_ORIENTATIONS)
        if not 0 < self.sigma < math.inf:
            raise ValueError(f"sigma={self.sigma!r} must be > 0 and finite")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Scale and angle in degrees of every filter."""
        return tuple(
            f"gabor {scale} {180 * orientation / self.orientations:g}"
            for scale in range(self.scales)
            for orientation in range(self.orientations)
        )

    def magnitudes(self, images: RealArray) -> RealArray:
        """Moduli of responses, (n, n_filters, height, width), to images (n, height, width)."""
        n_images, height, width = images.shape
        top, left = self._margin(height), self._margin(width)
        padded = np.pad(images, ((0, 0), (top, top), (left, left)), mode="symmetric")
        spectrum = fft.fft2(padded)
        result = np.empty((n_images, len(self.names), height, width))
        for index, transfer in enumerate(self._transfers(*padded.shape[1:])):
            response = fft.ifft2(spectrum * transfer, overwrite_x=True)
            np.abs(response[:, top : top + height, left : left + width], out=result[:, index])
        return result

    def _margin(self, size: int) -> int:
        """Pixels to add on either side of an axis: as many, so that no direction is preferred."""
        margin = math.ceil(_SPREADS * self.sigma / _frequency(self.scales - 1))
        while fft.next_fast_len(size + 2 * margin) != size + 2 * margin:
            margin += 1
        return margin

    def _transfers(self, rows: int, columns: int) -> list[RealArray]:
        transfers = []
        for scale in range(self.scales):
            length = _frequency(scale)
            spread = length / self.sigma
            envelope = np.outer(_gaussian(rows, 0, spread), _gaussian(columns, 0, spread))
            for orientation in range(self.orientations):
                angle = np.pi * orientation / self.orientations
                y, x = length * np.sin(angle), length * np.cos(angle)
                wave = np.outer(_gaussian(rows, y, spread), _gaussian(columns, x, spread))
                transfers.append(wave - wave[0, 0] / envelope[0, 0] * envelope)
        return transfers


def _gaussian(size: int, centre: float, spread: float) -> RealArray:
    """Gaussian on the frequencies of an axis, with what sampling folds back from beyond pi."""
    frequencies = 2 * np.pi * (fft.fftfreq(size)[:, None] + np.arange(-2, 3))
    return np.exp(-((frequencies - centre) ** 2) / (2 * spread**2)).sum(axis=1)


def _frequency(scale: int) -> float:
    return math.pi / 2 / 2 ** (scale / 2)
