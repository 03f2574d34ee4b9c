"""Positive definiteness of divergence kernels: theorems, and the eigenvalues on some data.

docs/maths.md has the theorems and their references.
"""

import math
from dataclasses import dataclass

import numpy as np

from divlearn import tolerances
from divlearn.arrays import RealArray
from divlearn.divergence import ABDivergence, Divergence, EmbeddedMetric
from divlearn.kernels.tables import symmetric_point
from divlearn.text import counted

_ROUNDING = 1e-12  # of a multiple of one half

Theory = tuple[bool | None, str]  # positive definite on every data set, None if unknown; the reason


@dataclass(frozen=True)
class Definiteness:
    """Positive definiteness of a kernel: on all SPD matrices of one size, and on some data.

    Attributes
    ----------
    proved : bool or None, whether the kernel is positive definite on every data set; None: unknown.
    reason : str, the fact and its reference.
    n_matrices : int, size of the data.
    smallest : float, smallest eigenvalue of the kernel matrix of the data, relative to the largest.
    smallest_centred : float, the same once rows and columns are centred, as support vector
        machines see a kernel.
    tolerance : float, size of a zero eigenvalue after rounding.
    """

    proved: bool | None
    reason: str
    n_matrices: int
    smallest: float
    smallest_centred: float
    tolerance: float

    @property
    def on_data(self) -> bool:
        """Whether the kernel is positive semi-definite on the data, up to rounding."""
        return self.smallest >= -self.tolerance

    def __str__(self) -> str:
        verdict = {
            True: "Positive definite on every data set",
            False: "Not positive definite on every data set",
            None: "Not proved to be positive definite, nor that it is not",
        }[self.proved]
        sizes = (
            f"smallest eigenvalue {self.smallest:.2g} of the largest, "
            f"{self.smallest_centred:.2g} after centring"
        )
        where = f"{verdict}: {self.reason}. On {counted(self.n_matrices, 'matrices')} it is"
        if self.on_data:
            return f"{where} positive semi-definite up to rounding ({sizes})."
        if self.smallest_centred >= -self.tolerance:
            return (
                f"{where} indefinite ({sizes}), but only before centring: a support vector machine "
                "does not notice, a Gaussian process would."
            )
        return (
            f"{where} indefinite ({sizes}). A support vector machine still stops, at a stationary "
            "point of a problem that is no longer convex; a Gaussian process needs more noise than "
            "the negative eigenvalue."
        )


def measure(theorem: Theory, kernel: RealArray) -> Definiteness:
    """Add the eigenvalues of the kernel matrix of some data to a theorem."""
    K = kernel.astype(np.float64)
    centred = K - K.mean(axis=0)
    centred = centred - centred.mean(axis=1)[:, None]
    values, centred_values = (np.linalg.eigvalsh(0.5 * (A + A.T)) for A in (K, centred))
    return Definiteness(
        *theorem,
        len(K),
        float(values[0] / values[-1]),
        float(min(centred_values[0], 0) / values[-1]),
        tolerances.repair_floor(kernel.dtype),
    )


def theory(divergence: Divergence, scale: float, d: int) -> Theory:
    """Return the theorem on the symmetrised kernel exp(-scale D) of matrices of size d."""
    if isinstance(divergence, EmbeddedMetric):
        return True, "a Gaussian kernel of vectors (Schoenberg 1938)"
    if not isinstance(divergence, ABDivergence):
        return None, "no theorem covers this divergence"
    alpha, beta = symmetric_point(divergence.alpha, divergence.beta)
    if alpha != beta:
        return False, (
            f"with alpha={alpha:g} and beta={beta:g} different it is not even on the matrices "
            "diag(x, 1, ..., 1), whatever the scale (Lukacs 1970, section 7.1)"
        )
    if d == 1:
        formula = f"cosh(a log(x/y))^(-s/a^2), a = {alpha:g}, whose Fourier transform is positive"
        if alpha == 0:
            formula = "exp(-s log(x/y)^2 / 2), a Gaussian"
        return True, f"numbers on a line with the kernel {formula}"
    if alpha == 0:
        return False, (
            f"Gaussian kernels of the affine-invariant distance are not for d={d} > 1, for the "
            "space is curved (Feragen et al. 2015), whatever the scale (Da Costa et al. 2023, in "
            "part by numerical evidence)"
        )
    if alpha == 0.5:
        return _stein(4 * divergence.scale * scale, d)
    return None, "no theorem covers this point"


def _stein(s: float, d: int) -> Theory:
    """Sra's theorem for exp(-s S), S the Stein divergence in its textbook form."""
    steps = f"s in {{1/2, ..., {d - 2}/2}} or " if d > 3 else "s = 1/2 or " if d == 3 else ""
    fact = f"exp(-s S), S the Stein divergence, is for d={d} exactly for {steps}s >= {d - 1}/2"
    on_step = round(2 * s) >= 1 and abs(2 * s - round(2 * s)) <= _ROUNDING * 2 * s
    if on_step or 2 * s >= d - 1:
        return True, f"{fact} (Sra 2012), and here s = {s:g}"
    following = math.ceil(2 * s) / 2
    return False, f"{fact} (Sra 2012), but here s = {s:g}; the next larger that is: {following:g}"
