"""Engines to run every test on, and random SPD matrices of every temper."""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from contextlib import chdir
from importlib import import_module
from inspect import unwrap

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from scalar_slopes import change, slope, value
from short_fits import SHORT
from threadpoolctl import threadpool_limits

from divlearn import tangent
from divlearn.datasets import make_recordings
from divlearn.engines import ReferenceEngine, available_engines, cuda_problem, get_engine
from divlearn.iddl import IDDLClassifier

# What a shell starts in the background ignores Ctrl-C, and with it the tests of how it is answered.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where nothing compiled runs the library says so once, as a warning; here warnings are errors.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    get_engine()

# The same examples in every run: what fails is then what was changed. To look for new ones:
# pytest --hypothesis-profile=default. No example may fail because the machine is busy.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

EPS = float(np.finfo(np.float64).eps)


# "module:Class" of an engine from elsewhere, to be tested as those of the library are.
FOREIGN = os.environ.get("DIVLEARN_TEST_ENGINE", "")


def native_names() -> list[str]:
    """The native engine once for every instruction set it has here, the fastest first."""
    if "native" not in available_engines():
        return ["native"]
    from divlearn.engines.native import instruction_sets

    return [f"native-{name}" for name in instruction_sets()]


def engine_names() -> list[str]:
    """The reference engine, the native one with its fastest instruction set, and CUDA.

    CUDA needs a GPU; elsewhere tests/engines/test_cuda.py says once that it was left out.
    """
    others = [*(["cuda"] if cuda_problem() is None else []), *([FOREIGN] if FOREIGN else [])]
    return ["reference", native_names()[0], *others]


# For tests of the kernels themselves: the same source, compiled for lanes of other widths.
every_instruction_set = pytest.mark.parametrize(
    "engine_name", [*engine_names(), *native_names()[1:]]
)


def make_engine(name: str, n_threads: int | None = 1, accuracy: str = "auto"):
    """Engine by a name of `engine_names`. One thread: several would spin on a busy machine."""
    if name == "reference":
        return ReferenceEngine(n_threads, accuracy)
    if name == "cuda":
        return get_engine("cuda", n_threads, accuracy)
    if name == FOREIGN:
        module, _, kind = name.partition(":")
        return getattr(import_module(module), kind)(n_threads, accuracy)
    if "native" not in available_engines():
        pytest.skip("the native engine is not installed or switched off")
    from divlearn.engines.native import NativeEngine

    return NativeEngine(n_threads, accuracy, instruction_set=name.removeprefix("native-"))


def pytest_configure(config):
    """Doctests leave out the modules of the compiled engine where it does not run."""
    if "native" not in available_engines():
        engines = config.rootpath / "src" / "divlearn" / "engines"
        left_out = [str(engines / "native.py"), str(engines / "packing.py")]
        config.option.ignore = [*(config.option.ignore or []), *left_out]


def pytest_collection_finish():
    """Modules and tests stay to the end: the garbage collector need not look at them.

    Nor need it look often at what tests leave behind.
    """
    gc.freeze()
    gc.set_threshold(50_000)


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread():
    """Small matrices gain nothing from more, and idle ones spin on a busy machine."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(params=engine_names())
def engine_name(request) -> str:
    """Name of each engine, for tests that want several of one kind."""
    return request.param


@pytest.fixture
def engine(engine_name):
    """Each engine that is there."""
    return make_engine(engine_name)


# Modules that share tables of divergences at the same points.
TABLES = [f"{name}.POINTS" for name in ("kernels.classifier", "kernels.regressor")]
TABLES += [f"{name}.POINTS" for name in ("nearest.neighbors", "nearest.regressor")]


def shorten_grids(patch: pytest.MonkeyPatch) -> None:
    """Leave few candidates and steps, for tests of what is around the search."""
    for name, few in {
        "iddl.predictor._PENALTIES": (1e-3, 1e-2),
        "iddl.predictor._TRAINING_PENALTIES": (1e-2, 1e-1),
        "iddl.judging._CHOOSING_ITERATIONS": 1,
        "iddl.solvers._INNER_STEPS": 2,
        "iddl.predictor._RANKS": (),
        **{name: [(0.0, 0.0), (0.5, 0.5)] for name in TABLES},
        **SHORT,
        "outliers._STILL": 1e-2,
    }.items():
        patch.setattr(f"divlearn.{name}", few)
    for model, name, few in (("logistic", "C", 10.0), ("rda", "shrink", 0.1), ("rbf", "C", 10.0)):
        patch.setitem(tangent._METHODS[model][1], name, [few])


@pytest.fixture
def small_grids(monkeypatch):
    """Few candidates in one test."""
    shorten_grids(monkeypatch)


@pytest.fixture(scope="module")
def small_grids_everywhere():
    """Few candidates in all tests of a module, and in what they share."""
    with pytest.MonkeyPatch.context() as patch:
        shorten_grids(patch)
        yield


@pytest.fixture
def short_fits(monkeypatch, small_grids):
    """Defaults that make fits fast, for tests of what is around them, such as the program."""
    for name, short in {"max_iter": 1, "cv": 2}.items():
        monkeypatch.setitem(unwrap(IDDLClassifier.__init__).__kwdefaults__, name, short)


@pytest.fixture
def few_permutations(monkeypatch):
    """Compare clusters and classes with fewer orders of the labels."""
    monkeypatch.setattr("divlearn.cluster.agreement._PERMUTATIONS", 99)


@pytest.fixture
def few_recordings(monkeypatch):
    """Simulate fewer recordings, where their number is not given."""

    def simulate(n_recordings: int, n_subjects: int, n_channels: int = 8) -> None:
        monkeypatch.setattr(make_recordings, "__defaults__", (n_recordings, n_channels, 64))
        monkeypatch.setitem(make_recordings.__kwdefaults__, "n_subjects", n_subjects)

    return simulate


@pytest.fixture
def few_are_many(monkeypatch):
    """Sizes of data from which on estimators use landmarks, and the number of these."""
    for name, few in {
        "tables.LARGE": 50,
        "regressor._MOST": 50,
        "tables._LANDMARKS": 30,
    }.items():
        monkeypatch.setattr(f"divlearn.kernels.{name}", few)


@pytest.fixture
def small_samples(monkeypatch):
    """Calibrate models of shards on few matrices."""
    monkeypatch.setattr("divlearn.sharded.targets.SAMPLE", 30)


@pytest.fixture
def small_blocks(monkeypatch):
    """Judge few matrices of a map, and few pairs of them, at a time."""
    for name, few in {"_ROWS": 10, "_PAIRS": 50}.items():
        monkeypatch.setattr(f"divlearn.nearest.plane.{name}", few)


@pytest.fixture
def instruction_set(request, monkeypatch):
    """Let kernels that belong to no engine use the instruction set a test is parametrized with."""
    from divlearn.engines import _native

    monkeypatch.setattr(_native, "instruction_sets", lambda: [request.param])


@pytest.fixture
def working_folder(tmp_path):
    """An empty folder, where relative paths lead."""
    with chdir(tmp_path):
        yield tmp_path


@pytest.fixture
def temporary_folder(tmp_path, monkeypatch):
    """The folder of temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def set_tolerance(monkeypatch):
    """Set how exact means or mixtures are, where estimators have no parameter for it."""
    names = {"means": "nearest.class_means._TOLERANCE", "mixtures": "cluster.mixture.TOLERANCE"}
    return lambda what, value: monkeypatch.setattr(f"divlearn.{names[what]}", value)


@pytest.fixture
def uninstall(monkeypatch):
    """Let a module look as if it were not installed."""
    return lambda name: monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def limit_files():
    """Let this process write no larger files until the test ends, as ``ulimit -f`` does."""
    resource = pytest.importorskip("resource", reason="there are no such limits here")
    kind, limits = resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda n_bytes: resource.setrlimit(kind, (n_bytes, limits[1]))  # Python ignores SIGXFSZ
    resource.setrlimit(kind, limits)


@pytest.fixture
def coarse_maps(monkeypatch):
    """Few points of the plane, among them all named ones."""
    monkeypatch.setattr("divlearn.judge.maps._DEFAULT_GRID", np.arange(5) / 2)
    monkeypatch.setattr("divlearn.judge.which._LIKELIHOOD_GRID", np.arange(3.0))


# --- random SPD matrices, always from a seeded generator ------------------------------------------


def wishart(rng: np.random.Generator, n: int, d: int, dof: int | None = None) -> np.ndarray:
    """Sample covariances of ``dof`` standard normal vectors: ordinary data."""
    samples = rng.standard_normal((n, d, dof or 2 * d + 2))
    return samples @ samples.mT / samples.shape[-1]


def rotated(rng: np.random.Generator, n: int, d: int, condition: float) -> np.ndarray:
    """Random eigenvectors, eigenvalues log-spaced from 1/condition to 1."""
    vectors = np.linalg.qr(rng.standard_normal((n, d, d)))[0]
    product = (vectors * np.geomspace(1 / condition, 1, d)) @ vectors.mT
    return 0.5 * (product + product.mT)


def graded(
    rng: np.random.Generator, n: int, d: int, condition: float, ascending: bool = True
) -> np.ndarray:
    """D A D with A Wishart and D log-spaced: variables in very different units."""
    units = np.geomspace(1 / np.sqrt(condition), 1, d)[:: 1 if ascending else -1]
    return units[:, None] * wishart(rng, n, d, 4 * d) * units


# --- how accurate an answer can be ----------------------------------------------------------------


def scaled_condition(X: np.ndarray) -> np.ndarray:
    """Condition number of each matrix once its diagonal is one: what Cholesky factors see."""
    exponent = np.frexp(np.diagonal(X, axis1=-2, axis2=-1))[1] / 2
    units = np.exp2(-exponent)
    return np.linalg.cond(units[..., :, None] * X * units[..., None, :])


def log_eigenvalue_error(
    X: np.ndarray, B: np.ndarray, t: np.ndarray, limit: float = 1e5
) -> np.ndarray:
    """First-order bound on the error of every log-eigenvalue t (N, n, d) of the pencils (X, B).

    A Cholesky factor belongs to a matrix that is off by d eps in units of its diagonal, which
    moves an eigenvalue by d eps times the scaled condition number, relatively. A symmetric
    eigensolver adds eps times the ratio of the eigenvalues, up to the ``limit`` at which the
    accurate route takes over, which does not. Then t itself is rounded.
    """
    with np.errstate(over="ignore"):
        ratio = np.exp(t[..., -1] - t[..., 0])
        ratio = np.where(ratio <= 2 * limit, ratio, 1.0)
    condition = scaled_condition(X)[:, None] + scaled_condition(B)[None, :] + ratio
    return (X.shape[-1] * EPS * condition + EPS * np.abs(t).max(axis=-1))[..., None]


def propagated(
    name: str, t: np.ndarray, alpha, beta, t_error: np.ndarray, constant: float = 8
) -> np.ndarray:
    """Bound on the error of sum_i g(t_i) for g one of f, f_alpha, f_beta.

    What the error of t does to g, and the rounding of g itself, which `spectral` bounds by
    8 eps (1 + |alpha t| + |beta t|) relatively.
    """
    sides = [np.abs(change(name, t, t + sign * t_error, alpha, beta)) for sign in (-1, 1)]
    size = np.abs(value(name, t, alpha, beta))
    with np.errstate(invalid="ignore"):
        rounding = constant * EPS * (1 + np.abs(alpha * t) + np.abs(beta * t)) * size
    return (np.maximum(*sides) + rounding).sum(axis=-1)


def gradient_error(t: np.ndarray, alpha, beta, t_error: np.ndarray) -> np.ndarray:
    """Bound on the Frobenius norm of the error of V diag(f_t) V^T in a whitened frame.

    f_t is a function of the whitened matrix, which is known up to relative errors ``t_error``: a
    function of slope f_tt moves by f_tt times the error, up to the spread of t for what mixes
    distant eigenvectors, and rounding adds the error relative to f_t.
    """
    grid = np.linspace(t[..., 0], t[..., -1], 30, axis=-1)
    first, second = (np.abs(slope(name, grid, alpha, beta)).max(axis=-1) for name in ("f", "f_t"))
    size = (1 + t[..., -1] - t[..., 0]) * second + first
    return np.sqrt(t.shape[-1]) * t_error[..., 0] * size


def in_frame_of(B: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """L^T (gradient) L with the Cholesky factor L of B: free of the units and condition of B."""
    factor = np.linalg.cholesky(B)
    return factor.mT @ gradient @ factor


def frobenius(M: np.ndarray) -> np.ndarray:
    return np.sqrt((M**2).sum(axis=(-2, -1)))


def assert_within(error, allowed) -> None:
    """Assert ``error <= allowed`` everywhere, and say by how much it fails (NaN fails too)."""
    error, allowed = np.broadcast_arrays(error, allowed)
    bad = ~(error <= allowed)
    if bad.any():
        worst = np.unravel_index(np.argmax(np.where(bad, error / allowed, 0)), error.shape)
        index = [int(i) for i in worst]
        pytest.fail(
            f"{bad.sum()} of {bad.size} errors exceed their bound; the worst at {index}: "
            f"{error[worst]:.3g} > {allowed[worst]:.3g}"
        )
