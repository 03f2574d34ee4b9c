"""Models in files: every estimator comes back the same, and other formats are refused."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import sklearn
from same import assert_same
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.validation import has_fit_parameter

import divlearn
from divlearn import load, save
from divlearn.baselines import LEML, RSPDL, KernelLLC, KernelSparseCoding, LogEuclideanSVM
from divlearn.datasets import make_wishart_clusters
from divlearn.descriptors import (
    BlockDiagonal,
    CovarianceKernel,
    GaussianEmbedding,
    RBFKernelDescriptor,
    RegionCovariance,
)
from divlearn.heads.losses import LOSSES
from divlearn.iddl import Recipe
from divlearn.models import trust
from divlearn.nearest import DivergenceKNN, DivergenceMDM

OLD = Path(__file__).parent


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 6, 3, separation=4, random_state=0)


SMALL = {"n_atoms": 4, "cv": 2, "max_iter": 1, "random_state": 0}
FITTED = {
    "softmax": divlearn.IDDLClassifier(recipe=Recipe(loss="softmax"), **SMALL),
    "ridge": divlearn.IDDLClassifier(recipe=Recipe(loss="ridge"), rank="full", **SMALL),
    "hinge": divlearn.IDDLClassifier(recipe=Recipe(loss="hinge", penalty=1e-2), **SMALL),
    "paper": divlearn.IDDLClassifier.paper().set_params(n_atoms=4, max_iter=1, random_state=0),
    "regressor": divlearn.IDDLRegressor(rank="full", **SMALL),
    "transformer": divlearn.IDDLTransformer(**SMALL),
    "kernel": divlearn.DivergenceKernel("stein"),
    "kernel machine": divlearn.DivergenceKernelClassifier([0.5, 1], [0.5], cv=2, random_state=0),
    "committee": divlearn.SPDClassifier(cv=2, random_state=0),
    "committee of regressors": divlearn.SPDRegressor(cv=2, random_state=0),
    "k-means": divlearn.ABKMeans(3, "likelihood", n_init=1, tol=0.1, max_iter=1, random_state=0),
    "mixture": divlearn.ABMixture([1, 2], "wishart", share="none", random_state=0),
    "log-euclidean": divlearn.LogEuclideanKMeans(3, random_state=0),
    "karcher": divlearn.KarcherKMeans(3, random_state=np.random.RandomState(0)),
    "k-NN": DivergenceKNN(3, "jeffreys"),
    "nearest mean": DivergenceMDM("choose", cv=2, random_state=0),
    "filtered mean": DivergenceMDM("stein", filtering=True),
    "log-euclidean machine": LogEuclideanSVM("rbf", random_state=0),
    "metric learning": LEML(10, max_iter=2, random_state=0),
    "sparse codes": KernelSparseCoding(4, kernel="stein", max_iter=1, random_state=0),
    "local codes": KernelLLC(6, random_state=0),
    "conic codes": RSPDL(4, penalty=0.1, max_iter=1, random_state=0),
    "pipeline": make_pipeline(
        divlearn.IDDLTransformer(recipe=Recipe(loss="ridge"), **SMALL), StandardScaler(), SVC()
    ),
}


def there_and_back(model, folder):
    save(model, folder / "model.divlearn")
    return load(folder / "model.divlearn")


def answers(model, X):
    methods = ("predict", "predict_proba", "transform", "score_samples", "decision_function")
    return {name: getattr(model, name)(X) for name in methods if hasattr(model, name)}


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("name", FITTED)
def test_there_and_back(data, tmp_path, name):
    X, y = data
    # Matrices without weight are not held out: figures of them are missing.
    weights = {"sample_weight": np.repeat([1.0, 0.0], [16, 2])}
    weighted = has_fit_parameter(FITTED[name], "sample_weight")
    model = clone(FITTED[name]).fit(X, y, **weights if weighted else {})
    again = there_and_back(model, tmp_path)
    assert_same(model, again)
    expected, found = answers(model, X), answers(again, X)
    assert expected.keys() == found.keys()
    assert expected
    for method, values in expected.items():
        np.testing.assert_array_equal(found[method], values)
    assert clone(again).get_params().keys() == model.get_params().keys()


def test_every_estimator_is_trusted():
    packages = (
        "baselines",
        "cluster",
        "committee",
        "descriptors",
        "iddl",
        "kernels",
        "nearest",
        "tangent",
    )
    for package in packages:
        module = import_module(f"divlearn.{package}")
        for name in module.__all__:
            kind = getattr(module, name)
            if isinstance(kind, type) and issubclass(kind, BaseEstimator):
                assert trust.import_trusted(trust.get_name(kind)) is kind


@pytest.mark.parametrize(
    "model",
    [
        BlockDiagonal(),
        CovarianceKernel(),
        GaussianEmbedding(noise=0.01),
        RBFKernelDescriptor(),
        RegionCovariance("virus", patch=64),
        divlearn.ABKMeans(4, (0.25, np.float64(0.5))),
        divlearn.IDDLClassifier(cv=GroupKFold(3), engine=divlearn.get_engine("reference", 1)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_that_are_not_fitted(tmp_path, model):
    again = there_and_back(model, tmp_path)
    assert repr(again) == repr(model)


def test_numbers_that_are_none(tmp_path):
    model = divlearn.ABKMeans(3, tol=np.inf, max_iter=float("nan"), n_init=10**30, verbose=True)
    again = there_and_back(model, tmp_path)
    assert (again.tol, again.n_init, again.verbose) == (np.inf, 10**30, True)
    assert np.isnan(again.max_iter)


def test_what_has_no_place_in_a_file(tmp_path):
    class Local(divlearn.ABKMeans):
        pass

    path, circle = tmp_path / "model", []
    circle.append(circle)
    for model, message in (
        (divlearn.ABKMeans(3, lambda: None), r"model.divergence needs .*<lambda>, which cannot be"),
        (Local(3), r"model needs .*Local, which cannot be imported; define it at the top level"),
        (divlearn.ABKMeans(3, init=np.array([object()])), r"model.init\[1\] is builtins.object"),
        (divlearn.ABKMeans(3, init=np.zeros(1, "V4")), r"array of \|V4"),
        (divlearn.ABKMeans(3, init=Counter("a")), "is collections.Counter, which cannot be stored"),
        (
            divlearn.ABKMeans(3, init=np.random.Generator(np.random.Philox(0))),
            "_generator.Generator, which cannot be stored",
        ),
        (
            divlearn.ABKMeans(3, init=np.random.RandomState(np.random.PCG64(0))),
            "RandomState, which",
        ),
        (divlearn.ABKMeans(3, init=circle), "contains itself"),
        ({}, "model is dict, must be an estimator"),
    ):
        with pytest.raises(TypeError, match=message):
            save(model, path)
    assert not path.exists()


# ------------------------------------------------------------------ the file


def test_a_file_is_an_archive_of_plain_arrays(data, tmp_path):
    X, _ = data
    model = divlearn.ABKMeans(3, random_state=0).fit(X)
    save(model, tmp_path / "model")
    with np.load(tmp_path / "model", allow_pickle=False) as arrays:
        assert any(
            np.array_equal(arrays[name], model.cluster_centers_)
            for name in arrays.files
            if name.isdigit()
        )


def test_shared_arrays_are_kept_once(tmp_path):
    big = np.zeros(10_000)
    twice = make_pipeline(divlearn.ABKMeans(3, init=big), divlearn.ABKMeans(3, init=big))
    save(twice, tmp_path / "model")
    assert os.path.getsize(tmp_path / "model") < 1.5 * big.nbytes


def test_arrays_keep_their_layout(tmp_path):
    """Products of matrices round otherwise where columns are contiguous."""
    init = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    again = there_and_back(divlearn.ABKMeans(3, init=init), tmp_path).init
    np.testing.assert_array_equal(again, init)
    assert again.flags.f_contiguous


def test_an_old_file_outlives_an_interrupt(tmp_path, monkeypatch):
    path = tmp_path / "model"
    save(divlearn.ABKMeans(3), path)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(np.lib.format, "write_array", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(divlearn.ABKMeans(3, init=np.zeros(3)), path)
    assert load(path).n_clusters == 3
    assert os.listdir(tmp_path) == ["model"]


def test_permissions_and_links_stay(tmp_path):
    path, link = tmp_path / "model", tmp_path / "link"
    save(divlearn.ABKMeans(3), path)
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    path.chmod(0o640)
    link.symlink_to(path)
    save(divlearn.ABKMeans(5), link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert load(path).n_clusters == 5


def test_the_same_model_gives_the_same_page(data, tmp_path):
    X, _ = data
    model = divlearn.ABKMeans(3, random_state=0).fit(X)
    model.words_ = set("some words")
    pages = []
    for name in ("one", "two"):
        save(model, tmp_path / name)
        with zipfile.ZipFile(io.BytesIO((tmp_path / name).read_bytes())) as archive:
            pages.append(archive.read("model.json"))
    assert pages[0] == pages[1]


# ------------------------------------------------------------------ other versions


@pytest.mark.parametrize("name", ["iddl", "mixture"])
def test_files_of_the_first_format_are_refused(name):
    """Written by version 0.1.0."""
    message = (
        rf"{name}\.divlearn: its format has the version 1, must be 3 or 4; fit the model again$"
    )
    with pytest.raises(ValueError, match=message):
        load(OLD / f"{name}.divlearn")


@pytest.mark.filterwarnings("ignore:.*was saved with scikit-learn:UserWarning")
def test_files_of_the_third_format_are_read():
    """Written by version 0.2 after fitting to the matrices below."""
    X, y = make_wishart_clusters(2, 6, 2, separation=4, random_state=0)
    found = load(OLD / "nearest.divlearn")
    expected = DivergenceMDM("stein").fit(X, np.array(["a", "b"], dtype=object)[y])
    np.testing.assert_allclose(found.means_, expected.means_, rtol=1e-9)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))


def test_losses_are_found_by_their_earlier_names():
    """Files name them divlearn.iddl.HingeLoss, from where they moved."""
    for kind in LOSSES.values():
        assert trust.import_trusted(f"divlearn.iddl.{kind.__name__}") is kind


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("neighbour", "its DivergenceKNN lacks what the class has now"),
        ("kernel", "its DivergenceKernelClassifier lacks what the class has now"),
        ("log_euclidean", "its DivergenceMDM has _field [None], must be of another type"),
    ],
)
def test_what_changed_since_the_third_format_is_refused(name, changed):
    """Written by version 0.2 after fitting to the same matrices."""
    message = (
        f"{name}.divlearn: divlearn 0.2.0 wrote it, and {changed}; fit the model again, or use "
        "divlearn 0.2.0 for it"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        load(OLD / f"{name}.divlearn")


def test_first_files_of_nearest_means_are_refused(tmp_path):
    """Those of the first builds of version 0.2 had one divergence instead of a list of them."""
    with (
        zipfile.ZipFile(OLD / "nearest.divlearn") as old,
        zipfile.ZipFile(tmp_path / "first.divlearn", "w") as new,
    ):
        page = json.loads(old.read("model.json"))
        del page["model"]["state"]["_field"]
        new.writestr("model.json", json.dumps(page))
        for name in set(old.namelist()) - {"model.json"}:
            new.writestr(name, old.read(name))
    with pytest.raises(
        ValueError, match="wrote it, and its DivergenceMDM lacks what the class has"
    ):
        load(tmp_path / "first.divlearn")


def test_parameters_that_were_added_later_get_their_defaults(data, tmp_path):
    X, _ = data
    model = divlearn.ABKMeans(3, random_state=0).fit(X)
    del model.n_init
    again = there_and_back(model, tmp_path)
    assert again.n_init == 4
    np.testing.assert_array_equal(again.fit(X).labels_, model.labels_)


def test_another_scikit_learn_is_told_of(tmp_path, monkeypatch):
    save(divlearn.ABKMeans(3), tmp_path / "model")
    monkeypatch.setattr(sklearn, "__version__", "9.9")
    with pytest.warns(UserWarning, match=r"and 9.9 is installed"):
        load(tmp_path / "model")
