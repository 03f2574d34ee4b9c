"""Check an installed divlearn in seconds: its core, and the extras that must be there.

    python smoke.py [EXTRA ...]

Extras that are not named, and whose packages are not installed, must say how to install them.
"""

import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import divlearn
from divlearn.datasets import load_japanese_vowels, load_spd, load_textures, make_wishart_clusters
from divlearn.engines import cuda_problem

X, y = make_wishart_clusters(3, 20, 4, separation=3, random_state=0)


def check_core(folder: Path) -> None:
    a, b = np.array([1.0, 2.0, 5.0]), np.array([3.0, 1.0, 4.0])
    t = np.log(a / b)
    expected = np.log((0.7 * np.exp(1.2 * t) + 1.2 * np.exp(-0.7 * t)) / 1.9).sum() / (0.7 * 1.2)
    np.testing.assert_allclose(divlearn.abld(np.diag(a), np.diag(b), 0.7, 1.2), expected, 1e-13)
    mean = divlearn.mean_abld(np.stack([np.diag(a), np.diag(b)]), 0, 0).mean
    np.testing.assert_allclose(mean, np.diag(np.sqrt(a * b)), rtol=1e-12, atol=1e-12)
    model = divlearn.IDDLClassifier(cv=2, max_iter=2, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    divlearn.save(model, folder / "model.divlearn")
    loaded = divlearn.load(folder / "model.divlearn")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert set(divlearn.ABKMeans(3, random_state=0).fit_predict(X)) == {0, 1, 2}
    np.savez(folder / "data.npz", matrices=X, labels=y)
    for arguments in ("--version", "which data.npz", "predict model.divlearn data.npz"):
        command = [sys.executable, "-W", "ignore", "-m", "divlearn", *arguments.split()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"divlearn {arguments}: {done.stderr}"


def check_images(folder: Path) -> None:
    assert load_textures(patch=128).matrices.shape[1:] == (5, 5)


def check_files(folder: Path) -> None:
    if find_spec("h5py"):
        import h5py

        with h5py.File(folder / "data.h5", "w") as file:
            file["matrices"] = X
    else:
        (folder / "data.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    np.testing.assert_array_equal(load_spd(folder / "data.h5").matrices, X)


def check_series(folder: Path) -> None:
    assert load_japanese_vowels().matrices.shape == (640, 13, 13)


def check_plot(folder: Path) -> None:
    plane = divlearn.plane_map(X, y, [0, 1], [0, 1])
    divlearn.report.PlaneDisplay(plane).plot().figure_.savefig(folder / "plane.png")
    assert (folder / "plane.png").stat().st_size > 1000


def check_report(folder: Path) -> None:
    page = divlearn.report.page_of(divlearn.plane_map(X, y, [0, 1], [0, 1]))
    assert "<html" in page.html()


def check_riemann(folder: Path) -> None:
    from pyriemann.utils.distance import distance

    found = distance(X[0], X[1], metric=divlearn.get_divergence("stein"))
    logs = np.linalg.slogdet(np.stack([(X[0] + X[1]) / 2, X[0], X[1]])).logabsdet
    np.testing.assert_allclose(found**2, logs[0] - (logs[1] + logs[2]) / 2, rtol=1e-10)


def check_dask(folder: Path) -> None:
    from divlearn.engines import DaskEngine

    if not find_spec("distributed"):
        DaskEngine().connect()
    import dask.array
    from distributed import Client

    model = divlearn.ABKMeans(3, random_state=0, engine="dask")
    with Client(processes=False, dashboard_address=None):
        model.fit(dask.array.from_array(X, chunks=(20, 4, 4)))
    assert model.cluster_centers_.shape == (3, 4, 4)


def check_torch(folder: Path) -> None:
    import torch

    from divlearn.torch import encode

    found = encode(torch.from_numpy(X), torch.from_numpy(X[:2]), 0.7, 1.2)
    expected = divlearn.get_engine().encode(X, X[:2], 0.7, 1.2)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


def check_cuda(folder: Path) -> None:
    problem = cuda_problem()
    if not find_spec("cupy"):
        raise ImportError(problem)
    if problem is None:
        found = divlearn.get_engine("cuda").encode(X, X[:2], 0.7, 1.2)
        expected = divlearn.get_engine().encode(X, X[:2], 0.7, 1.2)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    else:
        print(f"cuda: {problem}")


EXTRAS = {
    name.removeprefix("check_"): check
    for name, check in globals().items()
    if name.startswith("check_") and name != "check_core"
}


def main(wanted: list[str]) -> None:
    """Run all checks."""
    with TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        check_core(folder)
        for extra, check in EXTRAS.items():
            try:
                check(folder)
            except ImportError as error:
                if extra in wanted or extra not in str(error):
                    sys.exit(f"{extra}: {error}")
    print(
        f"divlearn {divlearn.__version__}, Python {sys.version.split()[0]}, "
        f"NumPy {np.__version__}, engines {divlearn.available_engines()}, extras {wanted}: passed"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
