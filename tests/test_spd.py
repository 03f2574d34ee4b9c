"""Validation and regularization: every verdict, every message, every promise."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divlearn import tolerances
from divlearn.spd import check_spd, find_not_definite

pytestmark = pytest.mark.filterwarnings("error")
HINT = 'pass regularize="shrink", here or to check_spd$'


def random_spd(n: int, d: int, seed: int = 0) -> np.ndarray:
    factors = np.random.default_rng(seed).standard_normal((n, d, 2 * d))
    product = factors @ factors.mT
    return (product + product.mT) / 2


def singular(d: int, rank: int, seed: int = 0) -> np.ndarray:
    factor = np.random.default_rng(seed).standard_normal((d, rank))
    return factor @ factor.T


def batch_with(bad: np.ndarray, *positions: int, n: int = 5) -> np.ndarray:
    batch = random_spd(n, len(bad), seed=1)
    batch[list(positions)] = bad
    return batch


INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])


# --- what is accepted, and what comes back


@pytest.mark.parametrize("shape", [(3, 3), (4, 3, 3), (2, 4, 3, 3)])
def test_good_matrices_come_back_unchanged(shape):
    X = np.broadcast_to(random_spd(1, 3)[0], shape).copy()
    checked = check_spd(X)
    np.testing.assert_array_equal(checked, X)
    assert not np.shares_memory(checked, X)


@pytest.mark.parametrize(
    ("given_dtype", "requested", "expected"),
    [
        ("float64", None, "float64"),
        ("float32", None, "float32"),
        ("float16", None, "float32"),
        ("int8", None, "float64"),
        ("uint64", None, "float64"),
        ("bool", None, "float64"),
        ("longdouble", None, "float64"),
        (">f8", None, "float64"),
        (">f4", None, "float32"),
        ("float64", "float32", "float32"),
        ("float32", np.float64, "float64"),
    ],
)
def test_dtype_rules(given_dtype, requested, expected):
    checked = check_spd(np.eye(3).astype(given_dtype), dtype=requested)
    assert checked.dtype == np.dtype(expected)
    assert checked.dtype.isnative


@pytest.mark.parametrize("dtype", ["float16", "int32", "complex128"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match=f"dtype='{dtype}' must be float32 or float64"):
        check_spd(np.eye(2), dtype=dtype)


def test_result_is_contiguous_symmetric_and_the_input_untouched():
    X = random_spd(6, 4)
    X[2, 0, 1] *= 1 + 1e-12
    strided = np.asfortranarray(X)[::2]
    strided.flags.writeable = False
    before = strided.copy()
    checked = check_spd(strided)
    assert checked.flags.c_contiguous
    assert checked.flags.writeable
    np.testing.assert_array_equal(checked, checked.mT)
    np.testing.assert_array_equal(strided, before)
    assert checked[1, 0, 1] == 0.5 * X[2, 0, 1] + 0.5 * X[2, 1, 0] != X[2, 0, 1]
    np.testing.assert_array_equal(checked[[0, 2]], X[[0, 4]])


@pytest.mark.parametrize("exponent", [-300, -150, -100, 0, 100, 150, 300])
def test_verdicts_do_not_depend_on_scale(exponent):
    scale = 10.0**exponent
    check_spd(scale * random_spd(3, 4))
    with pytest.raises(ValueError, match="indefinite"):
        check_spd(scale * INDEFINITE)
    with pytest.raises(ValueError, match="rank-deficient: numerical rank 2 of 4"):
        check_spd(scale * singular(4, 2))


@pytest.mark.parametrize(
    "units", [[1e-10, 1.0, 1e10], [1e-5, 1.0, 1e5], [1e-75, 1.0, 1e75], [1e-150, 1.0, 1e150]]
)
def test_graded_matrices_are_judged_without_their_units(units):
    units = np.array(units)
    check_spd(np.diag(units**2))
    check_spd(units[:, None] * random_spd(1, 3)[0] * units)
    with pytest.raises(ValueError, match="rank-deficient: numerical rank 2 of 3"):
        check_spd(units[:, None] * singular(3, 2) * units)
    with pytest.raises(ValueError, match="indefinite"):
        check_spd(units[:, None] * (3 * np.ones((3, 3)) - 2 * np.eye(3)) * units)


def test_off_diagonal_far_beyond_the_diagonal_is_indefinite_without_overflow():
    with pytest.raises(ValueError, match="indefinite"):
        check_spd([[1e-300, 1e300], [1e300, 1e-300]])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("d", [2, 3, 5, 18])
def test_matrices_singular_up_to_rounding_are_always_found(d, dtype):
    factors = np.random.default_rng(d).standard_normal((300, d, d - 1)).astype(dtype)
    products = factors @ factors.mT
    with pytest.raises(ValueError, match=r"^X\[0\] .*\(300 of 300 matrices"):
        check_spd(products)
    clear = products + products.max() * 100 * tolerances.positive_definite(d, dtype) * np.eye(
        d, dtype=dtype
    )
    check_spd(clear)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 7),
    log_condition=st.floats(0, 13),
    log_scale=st.floats(-140, 140),
)
def test_any_clearly_positive_spectrum_is_accepted_and_its_mirror_is_not(
    seed, d, log_condition, log_scale
):
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    spectrum = 10.0 ** (log_scale - np.linspace(0, log_condition, d))
    X = (rotation * spectrum) @ rotation.T
    np.testing.assert_allclose(check_spd(X), X, rtol=0, atol=1e-15 * spectrum[0])
    spectrum[-1] *= -1
    with pytest.raises(ValueError, match=r"indefinite|diagonal"):
        check_spd((rotation * spectrum) @ rotation.T)


def test_verdict_does_not_depend_on_the_batch():
    # On the border, where only rounding decides, alone and in company must still agree.
    shifts = np.linspace(-3, 6, 60) * tolerances.positive_definite(4)
    border = singular(4, 3) + shifts[:, None, None] * np.eye(4)
    border = (border + border.mT) / 2
    together = find_not_definite(border, tolerances.positive_definite(4))
    assert 0 < len(together) < 60
    for i, X in enumerate(border):
        refused = pytest.raises(ValueError, match=r"definite|deficient")
        with refused if i in together else nullcontext():
            check_spd(X)


# --- errors


@pytest.mark.parametrize(
    "X",
    [
        np.eye(2) * 1j,
        np.eye(2).astype(object),
        np.array([["a", "b"], ["c", "d"]]),
        np.array([[b"a", b"b"], [b"c", b"d"]]),
        [[None, 1.0], [1.0, None]],
    ],
)
def test_what_is_not_real_numbers_is_a_type_error(X):
    fix = "pass complex matrices to" if np.iscomplexobj(X) else "convert"
    with pytest.raises(TypeError, match=rf"data has dtype .* must be real numbers; {fix}"):
        check_spd(X, name="data")


@pytest.mark.parametrize("X", [[[1.0, 0.0], [0.0]], [np.eye(2), np.eye(3)]])
def test_ragged_lists(X):
    with pytest.raises(ValueError, match=r"X is ragged: .* pass matrices of one size"):
        check_spd(X)


@pytest.mark.parametrize(
    ("shape", "ndim", "message"),
    [
        ((), None, r"shape \(\), expected \(\.\.\., d, d\); reshape"),
        ((3,), None, r"shape \(3,\), expected \(\.\.\., d, d\); reshape"),
        ((3, 3), 3, r"expected \(n_matrices, d, d\); for a single matrix pass X\[np.newaxis\]"),
        ((2, 3, 3), 2, r"shape \(2, 3, 3\), expected \(d, d\); reshape"),
        ((2, 3, 3), 4, r"expected \(\.\.\., d, d\) with 4 dimensions; reshape"),
        ((2, 3, 4), None, r"3 by 4, not square; compute covariances"),
        ((0, 3, 3), None, r"X is empty, shape \(0, 3, 3\); pass at least one"),
        ((2, 0, 0), None, r"X is empty, shape \(2, 0, 0\); pass at least one"),
    ],
)
def test_shapes(shape, ndim, message):
    with pytest.raises(ValueError, match=message):
        check_spd(np.ones(shape), ndim=ndim)


@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (-np.inf, "infinite")])
@pytest.mark.parametrize("regularize", ["raise", "shrink", 0.5])
def test_nan_and_infinity_are_named_and_always_refused(value, kind, regularize):
    X = random_spd(5, 3)
    X[2, 0, 1] = X[4, 1, 1] = value
    message = rf"^covs\[2\] has a {kind} entry at \(0, 1\) \(2 of 5 matrices .*drop"
    with pytest.raises(ValueError, match=message):
        check_spd(X, regularize=regularize, name="covs")


@pytest.mark.parametrize("regularize", ["raise", "shrink", 0.5])
def test_asymmetry_is_named_and_always_refused(regularize):
    X = random_spd(5, 3)
    X[3] = 4 * np.eye(3)
    X[3, 2, 0] += 0.5
    message = (
        r"^X\[3\] is not symmetric: \|x_ij - x_ji\| = 0.5 at \(0, 2\), must be <= 1.5e-08 times "
        r"sqrt\(x_ii x_jj\) = 4 \(1 of 5 matrices are not symmetric\); .*\(X \+ X.mT\) / 2"
    )
    with pytest.raises(ValueError, match=message):
        check_spd(X, regularize=regularize)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_border_of_asymmetry(dtype):
    tolerance = tolerances.asymmetry(dtype)
    X = np.array([[1, 0], [0, 1]], dtype=dtype)
    X[0, 1] = 0.9 * tolerance
    check_spd(X)
    X[0, 1] = 1.1 * tolerance
    with pytest.raises(ValueError, match="not symmetric"):
        check_spd(X)


def test_indefinite():
    message = (
        r"^X\[1\] is indefinite: smallest eigenvalue -1 \(-1 after scaling .* must be > 0 "
        rf"\(2 of 5 matrices are not positive definite\); check how .* {HINT}"
    )
    with pytest.raises(ValueError, match=message):
        check_spd(batch_with(INDEFINITE, 1, 3))


def test_rank_deficient():
    message = (
        r"^X\[3\] is rank-deficient: numerical rank 1 of 3, eigenvalues from \S+ to 3 .*"
        rf"\(1 of 5 matrices .*use more samples than variables or {HINT}"
    )
    with pytest.raises(ValueError, match=message):
        check_spd(batch_with(np.ones((3, 3)), 3))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("d", "n"), [(2, 50), (8, 200), (64, 500)])
def test_an_average_reference_needs_no_more_samples(d, n, dtype):
    """Only the constant vector tells it: copies of a channel have the same rank."""
    rng = np.random.default_rng(d)
    channels = rng.uniform(1, 3, (d, 1)) * rng.standard_normal((5, d, n))
    copied = channels.astype(dtype)
    copied[:, 0] = copied[:, 1]
    with pytest.raises(ValueError, match=rf"rank {d - 1} of {d}.*; use more samples than var"):
        check_spd(copied @ copied.mT)
    referenced = channels.astype(dtype)
    referenced -= referenced.mean(axis=1, keepdims=True)
    covariances = referenced @ referenced.mT
    message = rf"rank {d - 1} of {d}.*average reference.* drop one channel, project .* or {HINT}"
    with pytest.raises(ValueError, match=message) as caught:
        check_spd(covariances)
    assert "use more samples" not in str(caught.value)
    check_spd(covariances[:, 1:, 1:])  # the advice helps
    basis = np.linalg.qr(np.eye(d, dtype=dtype) - 1 / d)[0][:, : d - 1]
    check_spd(basis.T @ covariances @ basis)


def test_a_rejected_matrix_is_never_said_to_have_full_rank():
    # Rounding may leave a singular matrix with eigenvalues just above the tolerance.
    factors = np.random.default_rng(0).standard_normal((500, 3, 2))
    for X in factors @ factors.mT:
        with pytest.raises(ValueError, match=r"numerical rank 2 of 3|indefinite"):
            check_spd(X)


@pytest.mark.parametrize("value", [0.0, -2.0])
def test_non_positive_diagonal(value):
    message = rf"^X\[0\] has a diagonal entry {value:.3g} at \(1, 1\), must be > 0 .*{HINT}"
    with pytest.raises(ValueError, match=message):
        check_spd(batch_with(np.diag([1.0, value, 3.0]), 0))


def test_index_of_several_leading_dimensions():
    X = np.broadcast_to(np.eye(2), (2, 3, 2, 2)).copy()
    X[1, 2] = INDEFINITE
    with pytest.raises(ValueError, match=r"^X\[1, 2\] is indefinite.*\(1 of 6 matrices"):
        check_spd(X)


@pytest.mark.parametrize(
    "X", [INDEFINITE, np.ones((2, 2)), np.diag([1.0, 0.0]), [[1, 1], [0, 1]], [[np.nan, 0], [0, 1]]]
)
def test_a_single_matrix_has_no_index(X):
    with pytest.raises(ValueError, match=r"^X (is|has)") as caught:
        check_spd(X)
    assert "X[" not in str(caught.value)
    assert "matrices are" not in str(caught.value)


@pytest.mark.parametrize("value", [1e60, 1e-60])
def test_what_does_not_fit_float32(value):
    X = np.stack([np.eye(2), value * np.eye(2)])
    check_spd(X)
    with pytest.raises(ValueError, match=r"^X\[1\] does not fit the range of float32 .*rescale X"):
        check_spd(X, dtype="float32")


# --- regularize


def shrunk(X, weight, mean=None):
    """The map in plain words, in the precision of the matrices."""
    mean = X.mean(axis=0) if mean is None else mean
    return (1 - weight) * X + weight * np.trace(mean) / len(mean) * np.eye(len(mean), dtype=X.dtype)


@pytest.mark.parametrize(
    "regularize", ["fix", "", 0, 1, -0.1, 1.5, np.nan, np.inf, True, [0.1], np.array([0.1, 0.2])]
)
def test_other_values_are_refused(regularize):
    with pytest.raises(ValueError, match=r'^regularize=.* must be "raise", "shrink" or a number'):
        check_spd(np.eye(2), regularize=regularize)


@pytest.mark.parametrize("regularize", ["shrink", 0.2, np.float32(0.5)])
@pytest.mark.parametrize(
    ("dtype", "scale"), [("float64", 1e-30), ("float64", 1e30), ("float32", 1.0), ("float32", 1e30)]
)
@pytest.mark.parametrize(
    "bad", [np.zeros((2, 2)), np.ones((2, 2)), np.diag([0.0, 2.0]), singular(4, 2)]
)
def test_all_are_shrunk_towards_the_mean_variance(regularize, dtype, scale, bad):
    X = (scale * batch_with(bad, 1, 4)).astype(dtype)
    before = X.copy()
    found = check_spd(X, regularize=regularize)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(check_spd(found), found)
    assert found.dtype == dtype
    expected = shrunk(X.astype("float64"), 0.01 if regularize == "shrink" else float(regularize))
    rounding = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding * scale)


def test_eigenvalues_move_towards_the_mean_and_the_mean_stays():
    X = np.stack([singular(5, rank, rank) for rank in (1, 2, 3, 4)])
    found = check_spd(X, regularize=0.05)
    np.testing.assert_allclose(np.trace(found.mean(axis=0)), np.trace(X.mean(axis=0)))
    level = np.trace(X.mean(axis=0)) / 5
    eigenvalues = 0.95 * np.linalg.eigvalsh(X) + 0.05 * level
    np.testing.assert_allclose(np.linalg.eigvalsh(found), eigenvalues, rtol=1e-9)


@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 4, 4)])
def test_any_number_of_leading_dimensions(shape):
    X = np.broadcast_to(singular(4, 2), shape)
    np.testing.assert_allclose(
        check_spd(X, regularize=0.1)[0, 0],
        shrunk(X, 0.1, X[0, 0])[0, 0] if len(shape) == 4 else shrunk(X, 0.1, X)[0, 0],
    )


def test_a_rotation_and_a_unit_commute_with_the_map():
    X = batch_with(singular(4, 2), 2)
    rotation = np.linalg.qr(random_spd(1, 4)[0])[0]
    turned = check_spd(7 * rotation @ X @ rotation.T, regularize="shrink")
    expected = 7 * rotation @ check_spd(X, regularize="shrink") @ rotation.T
    np.testing.assert_allclose(turned, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e306])
def test_near_the_ends_of_the_range(scale):
    found = check_spd(scale * np.ones((3, 4, 4)), regularize=0.1)
    np.testing.assert_allclose(found / scale, check_spd(np.ones((3, 4, 4)), regularize=0.1))


@pytest.mark.parametrize("X", [np.zeros((3, 2, 2)), -np.ones((3, 2, 2))])
def test_without_variance_there_is_nothing_to_shrink_towards(X):
    with pytest.raises(ValueError, match=r"mean of all eigenvalues, which is \S+ but must be > 0"):
        check_spd(X, regularize="shrink")


def test_too_little_is_said_where_it_is():
    X = batch_with(-3 * np.eye(2), 3)
    with pytest.raises(ValueError, match=r"^X\[3\] has a diagonal entry .* raise regularize=0.01$"):
        check_spd(X, regularize="shrink")
    faint = np.ones((2, 3, 3), "float32")
    with pytest.raises(ValueError, match=r"rank-deficient.* or raise regularize=1e-09$"):
        check_spd(faint, regularize=1e-9)
