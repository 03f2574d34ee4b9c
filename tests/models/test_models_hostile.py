"""Files of models that are damaged, of other makers or of ill will: refused, with a sentence."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hostile_files import damaged, npy_bytes, npy_claim, npz_bytes
from sklearn.base import clone
from sklearn.svm import SVC, SVR, OneClassSVM

import divlearn
from divlearn import IDDLClassifier, load, save
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import Recipe
from divlearn.nearest import DivergenceMDM

COUNT = int(os.environ.get("DIVLEARN_MUTATIONS", 100))


@pytest.fixture(scope="module")
def model():
    X, _ = make_wishart_clusters(2, 6, 2, separation=4, random_state=0)
    return divlearn.ABKMeans(2, random_state=0).fit(X)


@pytest.fixture(scope="module")
def content(model, tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("models") / "model"
    save(model, path)
    return path.read_bytes()


def load_or_refuse(path: Path, content: bytes):
    """The model, or None; anything but a ValueError that names the file is raised."""
    path.write_bytes(content)
    try:
        return load(path, limit=2**20)
    except ValueError as error:
        if str(error).startswith(f"{path}: "):
            return None
        raise


@cache
def members_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(content: bytes, change, arrays=None, *, forged: bool = True) -> bytes:
    """The same file with another page or arrays; one who forges it takes care of the digest."""
    members = dict(members_of(content))
    for name, array in (arrays or {}).items():
        members[f"{name}.npy"] = npy_bytes(array)
    page = json.loads(members["model.json"])
    if forged:
        del page["digest"]
    change(page)
    members["model.json"] = json.dumps(page).encode()
    return npz_bytes(members, zipfile.ZIP_STORED)


def same(first, second) -> bool:
    return first.get_params() == second.get_params() and np.array_equal(
        first.cluster_centers_, second.cluster_centers_
    )


def test_damage_is_refused_or_harmless(model, content, tmp_path):
    generator, outcomes = random.Random(0), []
    for _ in range(COUNT):
        found = load_or_refuse(tmp_path / "model", damaged(content, generator))
        assert found is None or same(found, model)
        outcomes.append(found is not None)
    assert sum(outcomes) < 0.5 * COUNT


def test_every_truncated_file_is_refused(content, tmp_path):
    for length in {0, 1, 3, 4, 30, len(content) - 1, *range(0, len(content), 97)}:
        assert load_or_refuse(tmp_path / "model", content[:length]) is None


def put(**values):
    return lambda page: page.update(values)


def set_state(**values):
    return lambda page: page["model"]["state"].update(values)


NUMBERS = {name: {"array": "1"} for name in ("weights", "means", "densities")}


RECORD = "divlearn.cluster.em.Mixture"


def make(name, **state):
    return {"object": name, "state": state}


def requests(method, alias):
    return {"requests": ["x", {"dict": [[method, {"dict": [["groups", alias]]}]]}]}


HOSTILE = {
    "a later format": (put(version=5), "version 5, must be 3 or 4; install a later"),
    "the format before": (put(version=2), "version 2, must be 3 or 4; fit the model again"),
    "another format": (put(format="x"), "not a model of divlearn"),
    "no model": (lambda page: page.pop("model"), "damaged"),
    "a number": (put(model=3), "holds int, must hold an estimator"),
    "a list": (put(model=[]), "holds list, must hold an estimator"),
    "an unknown class": (put(model=make("os.system")), r"pass trusted=\['os.system'\]"),
    "a class that is no text": (put(model=make([1])), "means nothing"),
    "a class of a module": (put(model=make("__init__")), "'__init__', which is not trusted"),
    "an import of ours": (put(model=make("divlearn.models.storage.Path")), "Path', which is not"),
    "a module": (put(model=make("divlearn.models.storage")), "storage', which is not trusted"),
    "an engine": (put(model=make("divlearn.engines.Engine")), "Engine', which is not trusted"),
    "the program": (put(model=make("divlearn.__main__.main")), "main', which is not trusted"),
    "tests": (put(model=make("sklearn.tests.test_base.K")), "K', which is not trusted"),
    "a class that is gone": (put(model=make("sklearn.svm.X")), "cannot be imported .*; install"),
    "a module that is gone": (put(model=make("sklearn.x.X")), "cannot be imported .*; install"),
    "a function of numpy": (set_state(init={"name": "numpy.save"}), "numpy.save', which is not tr"),
    "a function of a module": (set_state(init={"name": "divlearn.save"}), "save', which is not tr"),
    "a function as a model": (put(model=make("numpy.log")), "damaged"),
    "a type as a model": (put(model=make("numpy.float64")), "damaged"),
    "a record in place of a model": (
        put(model=make(RECORD, **NUMBERS)),
        "holds Mixture",
    ),
    "a record that lacks a field": (set_state(init=make("divlearn.iddl.Model")), "in alpha, atoms"),
    "a record with one more": (
        set_state(init=make(RECORD, **NUMBERS, x=3)),
        "differs from its class in x",
    ),
    "an array that is not there": (set_state(init={"array": "99"}), "'99'}, which means nothing"),
    "an array by number": (set_state(init={"array": 0}), "0}, which means nothing"),
    "an array by list": (set_state(init={"array": ["0"]}), "damaged"),
    "a node of no kind": (set_state(init={"call": "os.system"}), "means nothing"),
    "a node of two kinds": (set_state(init={"array": 0, "tuple": []}), "means nothing"),
    "a state of the wrong type": (
        put(model={"object": "divlearn.ABKMeans", "state": []}),
        "means nothing",
    ),
    "a generator of nothing": (set_state(init={"random state": [1]}), "damaged"),
    "requests of what is no method": (set_state(init=requests("__class__", True)), "damaged"),
    "requests of what has no name": (set_state(init=requests("fit", "no name")), "damaged"),
    "an engine of nothing": (set_state(init={"engine": ["x"]}), "damaged"),
    "an engine by name": (set_state(init={"engine": {"name": "x"}}), "means nothing"),
    "a key that cannot be one": (set_state(init={"dict": [[[], 1]]}), "damaged"),
    "objects of no shape": (set_state(init={"objects": [[2**40], 1]}), "damaged"),
    "a call of a function": (
        set_state(init={"compiled": [{"name": "sklearn.metrics.accuracy_score"}, []]}),
        "it calls <function accuracy_score.*, which is no compiled",
    ),
    "a call of an estimator": (
        set_state(init={"compiled": [{"name": "divlearn.ABKMeans"}, [3]]}),
        "it calls <class .*ABKMeans'>, which is no compiled",
    ),
    "a call of a compiled function": (
        set_state(init={"compiled": [{"name": "sklearn.linear_model._sgd_fast._plain_sgd64"}, []]}),
        "it calls <.*_plain_sgd64.*, which is no compiled class",
    ),
    "a tree": (
        set_state(init={"compiled": [{"name": "sklearn.tree._tree.Tree"}, [2**40, 1, 2**40]]}),
        r"pass trusted=\['sklearn.tree._tree.Tree'\]",
    ),
    "records of objects": (
        set_state(init={"records": [[{"tuple": ["a", "|O"]}], {"array": "0"}]}),
        "damaged",
    ),
    "records of an engine": (
        set_state(init=make("divlearn.engines.data.Prepared")),
        "Prepared', which is not trusted",
    ),
    "another generator": (set_state(init={"generator": [{"dict": []}]}), "damaged"),
    "a call inside": (
        set_state(init={"partial": [{"name": "os.getcwd"}, [], {}]}),
        "is not trusted",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_trees_of_ill_will(content, tmp_path, name):
    change, message = HOSTILE[name]
    (tmp_path / "model").write_bytes(rewritten(content, change))
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model")


def test_deep_trees(content, tmp_path):
    path, deep = tmp_path / "model", []
    for _ in range(500):
        deep = [deep]
    path.write_bytes(rewritten(content, set_state(init=deep)))
    with pytest.raises(ValueError, match="deeper than"):
        load(path)
    page = b'{"format": "divlearn model", "model": ' + 100_000 * b"[" + 100_000 * b"]" + b"}"
    path.write_bytes(npz_bytes({"model.json": page}, zipfile.ZIP_STORED))
    with pytest.raises(ValueError, match="damaged"):
        load(path)


def test_archives_of_ill_will(content, tmp_path):
    path, members = tmp_path / "model", members_of(content)
    path.write_bytes(npz_bytes(members | {"model.json": b" " * 2**24}))
    with pytest.raises(ValueError, match="compressed"):
        load(path)
    path.write_bytes(npz_bytes(members | {"0.npy": npy_claim("(2**40,)")}, zipfile.ZIP_STORED))
    with pytest.raises(ValueError, match="damaged"):
        load(path)
    members = {"model.json": members["model.json"]}
    big, objects = (npy_bytes(array) for array in (np.zeros(10**6), np.array([None])))
    path.write_bytes(npz_bytes(members | {"0.npy": big}, zipfile.ZIP_STORED))
    with pytest.raises(
        ValueError, match=r"its arrays would take 8000000 bytes, more than the 1000 that"
    ):
        load(path, limit=1000)
    path.write_bytes(npz_bytes(members | {"0.npy": objects}, zipfile.ZIP_STORED))
    with pytest.raises(ValueError, match="the array '0' "):
        load(path)
    path.write_bytes(npz_bytes({"X.npy": npy_bytes(np.zeros(3))}))
    with pytest.raises(ValueError, match="not a model of divlearn"):
        load(path)


def test_two_members_of_one_name(content, tmp_path):
    path, members = tmp_path / "model", members_of(content)
    content = npz_bytes({"model.json": members["model.json"], "model_json": b""})
    path.write_bytes(content.replace(b"model_json", b"model.json"))
    with pytest.raises(ValueError, match="two members of the same name"):
        load(path)


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        load(tmp_path)
    with pytest.raises(ValueError, match="device, pipe or socket"):
        load("/dev/zero")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="not a model of divlearn"):
        load(tmp_path / "text")


def test_nothing_runs(content, tmp_path, monkeypatch):
    """Not even a constructor or a hook of the classes that files may name."""

    def never(*given, **named):
        raise AssertionError("called")

    hooks = dict.fromkeys(("__new__", "__init__", "__setstate__", "__setattr__"), never)
    watched = type("Watched", (divlearn.ABKMeans,), hooks | {"__module__": "divlearn"})
    monkeypatch.setattr(divlearn, "ABKMeans", watched)
    (tmp_path / "model").write_bytes(content)
    assert type(load(tmp_path / "model")) is watched


# --- values of the wrong type ---------------------------------------------------------------------

WRONG = [2**70, None, "x", make("divlearn.ABKMeans")]
FORGED = {
    "IDDLClassifier": IDDLClassifier(
        n_atoms=2,
        max_iter=1,
        cv=None,
        recipe=Recipe(loss="softmax"),
        random_state=0,
        engine=divlearn.get_engine("reference", 1),
    ),
    "ABKMeans": divlearn.ABKMeans(2, random_state=0),
    "DivergenceMDM": DivergenceMDM(),
}
MACHINES = (SVC(), SVC(kernel="precomputed"))


def find_states(node):
    """All states of objects in a tree."""
    if isinstance(node, dict) and node.keys() == {"object", "state"}:
        yield node["state"]
        node = node["state"]
    if isinstance(node, dict | list):
        for part in node.values() if isinstance(node, dict) else node:
            yield from find_states(part)


@pytest.mark.parametrize("name", FORGED)
def test_every_attribute_replaced(tmp_path, name):
    """A forged model is refused, or it answers, or it says what is wrong: nothing else."""
    X, y = make_wishart_clusters(2, 6, 2, separation=4, random_state=0)
    path, outcomes = tmp_path / "model", []
    save(clone(FORGED[name]).fit(X, y), path)
    content = path.read_bytes()
    tree = json.loads(members_of(content)["model.json"])["model"]
    places = [(i, key) for i, state in enumerate(find_states(tree)) for key in state]
    for (number, key), value in itertools.product(places, WRONG):

        def change(page, number=number, key=key, value=value):
            list(find_states(page["model"]))[number][key] = value

        forged = load_or_refuse(path, rewritten(content, change))
        outcomes.append(forged is None)
        if forged is not None:
            with contextlib.suppress(ValueError, TypeError):
                forged.predict(X)
    assert 0 < sum(outcomes) < len(outcomes)


def find_arrays(node, place=""):
    """Names of all arrays of a tree, and the class and the attribute that they are of."""
    if isinstance(node, dict) and node.keys() == {"object", "state"}:
        for key, value in node["state"].items():
            yield from find_arrays(value, f"{node['object'].rpartition('.')[2]}.{key}")
    elif isinstance(node, dict) and list(node) == ["array"]:
        yield node["array"], place
    elif isinstance(node, dict | list):
        for part in node.values() if isinstance(node, dict) else node:
            yield from find_arrays(part, place)


def saved(name, path):
    """A small fitted model in a file, its content, and its arrays with their places."""
    X, y = make_wishart_clusters(3, 6, 2, separation=4, random_state=0)
    save(clone(FORGED[name]).fit(X, y), path)
    content = path.read_bytes()
    tree = json.loads(members_of(content)["model.json"])["model"]
    with np.load(path) as stored:
        return content, [(key, place, stored[key]) for key, place in find_arrays(tree)]


@pytest.mark.parametrize("name", FORGED)
def test_nan_is_refused_except_in_what_was_measured(tmp_path, name):
    path = tmp_path / "model"
    content, arrays = saved(name, path)
    refused = set()
    for key, place, array in arrays:
        if array.dtype.kind != "f":
            continue
        wrong = array.copy()
        wrong.flat[-1:] = np.nan
        path.write_bytes(rewritten(content, put(), {key: wrong}))
        kind, _, attribute = place.partition(".")
        if attribute in ("_optimistic_proba", "held_out_losses_", "history_", "oof_proba_"):
            load(path)
            continue
        refused.add(attribute)
        with pytest.raises(ValueError, match=f"its {kind} has NaN in {attribute}, must have numb"):
            load(path)
    assert len(refused) > 0


def test_nan_is_not_saved(model, tmp_path):
    bad = clone(model)
    vars(bad).update(vars(model), cluster_centers_=np.full((2, 2, 2), np.nan))
    with pytest.raises(
        ValueError, match=r"^model.cluster_centers_ has NaN, must have numbers; fit"
    ):
        save(bad, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def other_shapes(array):
    """Arrays that many computations take in place of one, since they broadcast."""
    yield array[..., None]
    if array.ndim:
        yield array[:1, ...]
        yield array[..., :1]
        yield array.ravel()[0]


# As many rows as there were iterations, matrices or clusters: nothing else in the file says so.
FREE = {"cluster_centers_", "held_out_losses_", "labels_", "oof_proba_", "weights_"}


@pytest.mark.parametrize("name", FORGED)
def test_arrays_that_broadcast_are_refused(tmp_path, name):
    path = tmp_path / "model"
    content, arrays = saved(name, path)
    tried = set()
    for key, place, array in arrays:
        kind, _, attribute = place.partition(".")
        for other in other_shapes(array):
            free = attribute.partition("[")[0] in FREE and other.ndim == array.ndim
            if other.shape == array.shape or free or "history_" in place or "oof_" in place:
                continue
            tried.add(attribute)
            path.write_bytes(rewritten(content, put(), {key: other}))
            said = rf"(?s)its {kind} has \w+ .*, must be of (shape|another type)"
            with pytest.raises(ValueError, match=said):
                load(path)
    assert {
        "ABKMeans": {"cluster_centers_"},
        "DivergenceMDM": {"means_", "weights_"},
        "IDDLClassifier": {"atoms", "alpha", "beta", "offset", "units", "head"},
    }[name] <= tried


EXCHANGED = {
    "divlearn.KarcherKMeans": "it was changed since it was written; copy or write it again",
    "divlearn.transfer.Recenter": "it was changed since it was written",
    "sklearn.cluster.KMeans": "it was changed since it was written",
    "divlearn.ABMixture": r"alpha_ 0\.5, must be of shape n_components",
    "divlearn.IDDLClassifier": "value for alpha_, which is not an attribute",
}


@pytest.mark.parametrize("other", EXCHANGED)
def test_a_class_in_place_of_another_is_refused(content, tmp_path, other):
    path = tmp_path / "model"
    path.write_bytes(
        rewritten(content, lambda page: page["model"].update(object=other), forged=False)
    )
    with pytest.raises(ValueError, match=EXCHANGED[other]):
        load(path)


def test_files_without_a_digest(model, content, tmp_path):
    """Version 0.2 wrote none."""
    (tmp_path / "model").write_bytes(rewritten(content, put()))
    assert same(load(tmp_path / "model"), model)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_support_vector_machines_of_wrong_sizes(tmp_path, machine):
    """Compiled code would read past the end of their arrays."""
    X = np.random.default_rng(0).standard_normal((9, 9))
    path, outcomes = tmp_path / "model", []
    save(machine.fit(X, np.arange(9) % 3), path)
    np.testing.assert_array_equal(load(path).predict(X), machine.predict(X))
    content = path.read_bytes()
    state = json.loads(members_of(content)["model.json"])["model"]["state"]
    keys = [key for key, node in state.items() if isinstance(node, dict)]
    # One array of every type and shape: what its values are makes no difference.
    names = {
        member.split(b"\n")[0]: name.removesuffix(".npy")
        for name, member in members_of(content).items()
        if name.endswith(".npy")
    }
    others = ["c_svc", None, *({"array": name} for name in names.values())]
    for key, value in itertools.product([*keys, "_impl"], others):
        forged = load_or_refuse(path, rewritten(content, set_state(**{key: value})))
        outcomes.append(forged is None)
        if forged is not None:
            with contextlib.suppress(Exception):
                forged.predict(X)
    assert 0 < sum(outcomes) < len(outcomes)


def test_a_support_vector_machine_without_vectors(tmp_path):
    """Compiled code would look for as many as it counts."""
    X = np.random.default_rng(0).standard_normal((12, 3))
    path = tmp_path / "model"
    save(SVC().fit(X, np.arange(12) % 2), path)
    change = set_state(support_vectors_={"array": "none"})
    path.write_bytes(rewritten(path.read_bytes(), change, {"none": np.empty((0, 3))}))
    with pytest.raises(ValueError, match="its SVC has arrays of sizes that differ"):
        load(path)


@pytest.mark.parametrize("machine", [SVR(), OneClassSVM()], ids=str)
def test_machines_whose_sizes_are_private_need_trust(tmp_path, machine):
    X = np.random.default_rng(0).standard_normal((12, 3))
    save(machine.fit(X, X[:, 0]), tmp_path / "model")
    name = f"sklearn.svm.{type(machine).__name__}"
    with pytest.raises(ValueError, match=rf"it needs '{name}', which is not trusted"):
        load(tmp_path / "model")
    found = load(tmp_path / "model", trusted=[name])
    np.testing.assert_array_equal(found.predict(X), machine.predict(X))


@pytest.mark.parametrize("name", ["predict", "fit", "__class__", "__dict__", "_repr_html_"])
def test_values_in_place_of_methods(content, tmp_path, name):
    for value in (3, None, "x"):
        (tmp_path / "model").write_bytes(rewritten(content, set_state(**{name: value})))
        with pytest.raises(ValueError, match=f"value for {name}, which is not an attribute"):
            load(tmp_path / "model")


@pytest.mark.parametrize("n_threads", [2**70, 2**20, 0, -1, "2", 1.5, True])
def test_engines_of_too_many_threads(content, tmp_path, n_threads):
    state = ["reference", n_threads, "auto"]
    (tmp_path / "model").write_bytes(rewritten(content, set_state(engine={"engine": state})))
    with pytest.raises(ValueError, match=r"n_threads=.* must be"):
        load(tmp_path / "model")


def test_parameters_are_kept_as_they_were_given(tmp_path):
    """Whoever fits checks them."""
    save(divlearn.ABKMeans("many", tol="low", verbose=1.5), tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.n_clusters, again.tol, again.verbose) == ("many", "low", 1.5)
