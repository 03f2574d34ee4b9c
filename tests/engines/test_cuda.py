"""What is special about the CUDA engine: arrays on a GPU, blocks, streams, sizes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import wishart
from engine_problems import POINTS, problem

from divlearn.engines import ReferenceEngine, cuda_problem, get_engine
from divlearn.iddl import Recipe

if reason := cuda_problem():
    pytest.skip(f"no test runs on CUDA: {reason}", allow_module_level=True)

FIELDS = ("atoms", "whitened", "alpha", "beta", "values")

# --- arrays on the GPU ----------------------------------------------------------------------------


@pytest.fixture
def cp():
    import cupy

    return cupy


@pytest.fixture(params=["cupy", "torch"])
def send(request, cp):
    """Send an array to the GPU, as an array of either library."""
    if request.param == "cupy":
        return cp.asarray
    torch = pytest.importorskip("torch")
    return lambda array: torch.as_tensor(array, device="cuda")


def host(array):
    return array.get() if hasattr(array, "get") else array.cpu().numpy()


@pytest.mark.parametrize("d", [3, 18, 33])
def test_arrays_on_the_gpu_give_arrays_there(send, d):
    engine = get_engine("cuda")
    X, B, cotangent = problem(d)
    values = engine.encode(X, B, *POINTS.T)
    right = engine.pullback(X, B, *POINTS.T, cotangent, values=True)
    prepared = engine.prepare(send(X))
    alpha, beta = (send(p) for p in POINTS.T)
    for data, atoms in ((send(X), B), (prepared, send(B))):
        found = engine.encode(data, atoms, alpha, beta)
        assert type(found) is type(send(X))
        assert np.array_equal(host(found), values)
        back = engine.pullback(data, atoms, alpha, beta, send(cotangent), values=True)
        for name in FIELDS:
            assert type(getattr(back, name)) is type(send(X))
            assert np.array_equal(host(getattr(back, name)), getattr(right, name)), name
    assert np.array_equal(host(engine.spectra(send(X), B)), engine.spectra(X, B))


def test_graded_variables_on_the_gpu(send):
    """Sorting the variables inside must not show outside."""
    rng = np.random.default_rng(12)
    scales = np.array([1.0, 1e4, 1e-3, 30.0, 1e2])
    X, B = wishart(rng, 7, 5) * np.outer(scales, scales), wishart(rng, 3, 5)
    weight = rng.standard_normal((7, 3))
    engine = get_engine("cuda")
    given, right = (
        engine.pullback(X, B, 0.7, 1.2, weight)
        for X, weight in ((send(X), send(weight)), (X, weight))
    )
    assert np.array_equal(host(given.atoms), right.atoms)
    assert np.array_equal(host(given.whitened), right.whitened)
    assert np.array_equal(engine.prepare(send(X)).matrices, X)


def test_float32_on_the_gpu(send):
    X, B, cotangent = problem(5)
    small = X.astype(np.float32)
    engine = get_engine("cuda")
    found = engine.encode(send(small), B.astype(np.float32), 0.7, 0.9)
    assert host(found).dtype == np.float32
    right = engine.encode(small, B.astype(np.float32), 0.7, 0.9)
    assert np.array_equal(host(found), right)
    back = engine.pullback(send(small), B, 0.7, 0.9, send(cotangent))
    assert host(back.atoms).dtype == np.float32


def test_opposite_signs_on_the_gpu(send):
    X, B = np.array([np.diag([1.0, 2.0]), np.diag([0.25, 3.0])]), np.eye(2)[None]
    engine = get_engine("cuda")
    right = ReferenceEngine(1).pullback(X[:1], B, 0.3, -0.2, np.ones((1, 1)), values=True)
    back = engine.pullback(send(X[:1]), B, 0.3, -0.2, send(np.ones((1, 1))), values=True)
    np.testing.assert_allclose(host(back.atoms), right.atoms, rtol=1e-14)
    np.testing.assert_allclose(host(engine.encode(send(X[:1]), B, 0.3, -0.2)), right.values)
    with pytest.raises(ValueError, match=r"data\[1\] and atoms\[0\] has the eigenvalue 0\.25"):
        engine.encode(send(X), B, 1.0, -0.5)


def test_errors_on_the_gpu(send):
    engine = get_engine("cuda")
    X, B, cotangent = problem(3)
    bad = X.copy()
    bad[4, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"X\[4\] has a NaN entry at \(0, 0\)"):
        engine.prepare(send(bad))
    bad = X.copy()
    bad[2, 0, 1] += 0.1
    with pytest.raises(ValueError, match=r"X\[2\] is not symmetric"):
        engine.prepare(send(bad))
    bad = X.copy()
    bad[3] = np.ones((3, 3))
    with pytest.raises(ValueError, match=r"X\[3\] is rank-deficient"):
        engine.prepare(send(bad))
    with pytest.raises(ValueError, match=r"X has shape \(3, 3\)"):
        engine.prepare(send(X[0]))
    with pytest.raises(ValueError, match=r"atoms are 5 by 5, but the data is 3 by 3"):
        engine.encode(send(X), problem(5)[1], 0.5, 0.5)
    with pytest.raises(ValueError, match=r"cotangent has shape \(37,\)"):
        engine.pullback(send(X), B, 0.5, 0.5, send(cotangent[:, 0]))
    cotangent = cotangent.copy()
    cotangent[1, 2] = np.inf
    with pytest.raises(ValueError, match=r"cotangent\[1, 2\] = inf must be finite"):
        engine.pullback(send(X), B, 0.5, 0.5, send(cotangent))
    with pytest.raises(ValueError, match=r"d=129 must be <= 128 for arrays on this GPU"):
        engine.prepare(send(np.eye(129)[None]))
    with pytest.raises(ValueError, match=r"out has shape \(2,\)"):
        engine.encode(send(X), B, 0.5, 0.5, out=send(np.zeros(2)))


def test_out_on_the_gpu(send):
    engine = get_engine("cuda")
    X, B, _ = problem(5)
    out = send(np.full((len(X), len(B)), np.nan))
    assert engine.encode(send(X), B, *POINTS.T, out=out) is out
    assert np.array_equal(host(out), engine.encode(X, B, *POINTS.T))


def test_other_streams(cp):
    engine = get_engine("cuda")
    X, B, cotangent = problem(18)
    right = engine.pullback(X, B, *POINTS.T, cotangent).atoms
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        back = engine.pullback(cp.asarray(X), B, *POINTS.T, cp.asarray(cotangent))
    stream.synchronize()
    assert np.array_equal(host(back.atoms), right)


# --- sizes ----------------------------------------------------------------------------------------


def test_data_in_blocks_is_the_same(cp, monkeypatch):
    """Data that does not fit is sent block by block."""
    from divlearn.engines.cuda import data

    engine = get_engine("cuda")
    X, B, cotangent = problem(8)
    values, right = engine.encode(X, B, 0.4, 0.9), engine.pullback(X, B, 0.4, 0.9, cotangent)
    monkeypatch.setattr(data, "_RESIDENT_SHARE", 0.0)
    monkeypatch.setattr(data, "_STREAMED_BYTES", 8 * 64 * 5)
    prepared = engine.prepare(X)
    assert prepared.resident is None
    assert len(list(prepared.blocks())) == 8
    assert np.array_equal(engine.encode(prepared, B, 0.4, 0.9), values)
    back = engine.pullback(prepared, B, 0.4, 0.9, cotangent)
    np.testing.assert_allclose(back.atoms, right.atoms, rtol=1e-11)


def test_results_in_blocks_are_the_same(cp, monkeypatch):
    from divlearn.engines.cuda import pipeline, routes

    engine = get_engine("cuda")
    for d in (8, 18, 33):
        X, B, cotangent = problem(d)
        values = engine.encode(X, B, *POINTS.T)
        right = engine.pullback(X, B, *POINTS.T, cotangent, values=True)
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_SCRATCH_BYTES", 40 * 8 * d * d)
            patch.setattr(routes, "_OUT_BYTES", 8 * len(B) * 4)
            # (0, 1) and (1, 0) are products, which round by their shapes.
            found = engine.encode(X, B, *POINTS.T)
            np.testing.assert_allclose(found, values, rtol=1e-9)
            back = engine.pullback(X, B, *POINTS.T, cotangent, values=True)
        for name in FIELDS:
            gap = np.abs(getattr(back, name) - getattr(right, name)).max()
            assert gap <= 1e-10 * np.abs(getattr(right, name)).max(), name


def test_ten_million_pairs(cp):
    """Libraries fail at batches of some 1e5; here a sample of rows must be right."""
    rng = np.random.default_rng(0)
    X, B = wishart(rng, 100_000, 4), wishart(rng, 100, 4)
    engine = get_engine("cuda")
    prepared = engine.prepare(cp.asarray(X))
    values = engine.encode(prepared, B, 0.7, 0.9)
    assert values.shape == (100_000, 100)
    rows = rng.choice(100_000, 50, replace=False)
    right = ReferenceEngine(1).encode(X[rows], B, 0.7, 0.9)
    np.testing.assert_allclose(values[cp.asarray(rows)].get(), right, rtol=1e-9)
    back = engine.pullback(prepared, B, 0.7, 0.9, cp.ones_like(values), values=True)
    np.testing.assert_allclose(back.values.get()[rows], right, rtol=1e-9)
    h = 1e-5  # the gradient of a sum over all the data, by differences
    S = wishart(rng, 100, 4)
    sides = [engine.encode(prepared, B + sign * h * S, 0.7, 0.9).sum(axis=0) for sign in (1, -1)]
    difference = (sides[0] - sides[1]).get() / (2 * h)
    slope = (back.atoms.get() * S).sum(axis=(1, 2))
    np.testing.assert_allclose(difference, slope, rtol=1e-5, atol=1e-4 * np.abs(slope).max())


@pytest.mark.parametrize("d", [6, 12, 20, 24, 31, 48, 52, 64, 96, 112, 128])
def test_dimensions_at_the_edges_of_layouts(d):
    rng = np.random.default_rng(d)
    X, B = wishart(rng, 21, d), wishart(rng, 3, d)
    cotangent = rng.standard_normal((21, 3))
    engine, reference = get_engine("cuda"), ReferenceEngine(1)
    point = np.array([0.7, 0.5, 1.1]), np.array([0.9, 0.5, 0.4])
    right = reference.pullback(X, B, *point, cotangent, values=True)
    back = engine.pullback(X, B, *point, cotangent, values=True)
    np.testing.assert_allclose(engine.encode(X, B, *point), right.values, rtol=1e-10)
    for name in FIELDS:
        gap = np.abs(getattr(back, name) - getattr(right, name)).max()
        assert gap <= 1e-10 * np.abs(getattr(right, name)).max(), name


def test_larger_dimensions_go_to_the_cpu():
    rng = np.random.default_rng(0)
    X, B = wishart(rng, 3, 130), wishart(rng, 2, 130)
    right = ReferenceEngine(1).encode(X, B, 0.7, 0.9)
    np.testing.assert_allclose(get_engine("cuda").encode(X, B, 0.7, 0.9), right, rtol=1e-10)


# --- what stands on engines -----------------------------------------------------------------------


def test_estimators_take_the_engine():
    """They find what they find on the CPU."""
    from divlearn import which_divergence
    from divlearn.cluster import ABKMeans, ABMixture
    from divlearn.iddl import IDDLClassifier
    from divlearn.nearest import DivergenceKNN

    rng = np.random.default_rng(0)
    X = np.concatenate([wishart(rng, 30, 4), 3 * wishart(rng, 30, 4)])
    y = np.repeat([0, 1], 30)
    for estimator in (
        IDDLClassifier(random_state=0),
        DivergenceKNN(),
        ABKMeans(2, random_state=0),
        ABMixture(2, random_state=0),
    ):
        found = [
            estimator.set_params(engine=engine).fit(X, y).predict(X) for engine in ("auto", "cuda")
        ]
        assert np.array_equal(*found), type(estimator).__name__
    for labels in (y, None):
        answers = [
            which_divergence(X, labels, engine=engine, random_state=0)
            for engine in ("auto", "cuda")
        ]
        assert answers[0].summary() == answers[1].summary()


# --- what stays on the GPU ------------------------------------------------------------------------


def test_kept_data_and_its_parts(cp):
    from divlearn.engines.data import Prepared

    engine = get_engine("cuda")
    X, B, cotangent = problem(5)
    scales = np.array([1.0, 1e4, 1e-3, 30.0, 1e2])
    for matrices in (X, X * np.outer(scales, scales)):
        right = engine.encode(matrices, B, *POINTS.T)
        atoms = Prepared.checked(cp.asarray(B))
        for kept in (engine.keep(matrices), engine.keep(Prepared.checked(matrices))):
            found = engine.encode(kept, atoms, *POINTS.T)
            assert isinstance(found, cp.ndarray)
            assert np.array_equal(host(found), right)
            back = engine.pullback(kept, atoms, *POINTS.T, engine.place(cotangent, kept))
            expected = engine.pullback(matrices, B, *POINTS.T, cotangent)
            assert np.array_equal(host(back.atoms), expected.atoms)
            assert np.array_equal(host(kept.device_matrices), matrices)
        rows = np.array([4, 0, 2])
        part = engine.take(kept, rows)
        assert np.array_equal(part.matrices, matrices[rows])
        np.testing.assert_allclose(
            host(engine.encode(part, B, 0.7, 0.9)), engine.encode(matrices[rows], B, 0.7, 0.9)
        )
    prepared = engine.prepare(X)
    assert isinstance(engine.encode(engine.take(prepared, rows), B, 0.7, 0.9), np.ndarray)
    assert isinstance(engine.place(cotangent, prepared), np.ndarray)
    large = engine.keep(np.eye(130)[None])  # the CPU takes over
    assert isinstance(engine.encode(large, np.eye(130)[None], 0.7, 0.9), np.ndarray)


def copies(work, folder) -> list[int]:
    """Bytes of every copy between host and GPU during some work, as the driver saw them."""
    torch = pytest.importorskip("torch")
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profile:
        work()
    profile.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    crossing = [e for e in events if e.get("cat") == "gpu_memcpy" and "DtoD" not in e["name"]]
    return [int(event["args"]["bytes"]) for event in crossing]


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
@pytest.mark.parametrize("solver", ["joint", "stochastic"])
@pytest.mark.parametrize("loss", ["ridge", "softmax", "hinge"])
def test_fits_stay_on_the_gpu(loss, solver, tmp_path, monkeypatch):
    from divlearn.datasets import make_wishart_clusters
    from divlearn.heads import samples
    from divlearn.iddl import IDDLClassifier

    monkeypatch.setattr(samples, "_HOST_SIZE", 0)  # as if there were more

    X, y = make_wishart_clusters(3, 300, 6, separation=3, random_state=0)
    classifier = IDDLClassifier(
        12,
        divergence=[(1.0, 1.0), (0.2, 0.9)],
        max_iter=3,
        random_state=0,
        recipe=Recipe(loss=loss, penalty=1e-3, solver=solver, init="samples"),
        cv=None,
        engine="cuda",
    )
    sizes = copies(lambda: classifier.fit(X, y), tmp_path)
    assert sizes.count(X.nbytes) == 1
    divergences = 8 * len(X) * 24
    assert max(size for size in sizes if size != X.nbytes) < divergences / 4
    right = IDDLClassifier(**classifier.get_params()).set_params(engine="auto").fit(X, y)
    found, expected = (one.history_["objective"][-1] for one in (classifier, right))
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_clusters_stay_on_the_gpu(tmp_path):
    from divlearn.cluster import ABKMeans
    from divlearn.datasets import make_wishart_clusters

    X, _ = make_wishart_clusters(8, 100, 6, separation=3, random_state=0)
    kmeans = ABKMeans(8, random_state=0, n_init=1, engine="cuda")
    sizes = copies(lambda: kmeans.fit(X), tmp_path)
    assert sizes.count(X.nbytes) == 1
    assert max(size for size in sizes if size != X.nbytes) < 8 * len(X) * 8
