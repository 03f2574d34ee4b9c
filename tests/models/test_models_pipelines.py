"""Pipelines and searches of scikit-learn, pyRiemann and divlearn in files, as pickles keep them."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType

import numpy as np
import pytest
from pyriemann.classification import MDM
from pyriemann.classification import SVC as RiemannianSVC
from pyriemann.estimation import Covariances, XdawnCovariances
from pyriemann.tangentspace import TangentSpace
from same import assert_same
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

from divlearn import SPDClassifier, get_divergence, load, save
from divlearn.divergence import for_pyriemann
from divlearn.files.variables import Damage
from divlearn.models.storage import Recordings
from divlearn.models.tree import TreeReader
from divlearn.nearest import DivergenceMDM


@pytest.fixture(scope="module")
def data():
    """Series of two classes, one with a louder channel, and words for the classes."""
    series = np.random.default_rng(0).standard_normal((24, 3, 30))
    codes = np.arange(24) % 2
    series[codes == 1, 0] *= 2
    return series, np.array(["quiet", "loud"], dtype=object)[codes]


def tangent(*steps):
    return make_pipeline(Covariances("scm"), TangentSpace(), StandardScaler(), *steps)


PAIRS = [("svm", SVC()), ("linear", LogisticRegression())]
COMPOSED = {
    "committee": make_pipeline(
        Covariances("scm"), SPDClassifier(("kernel", "tangent lda"), cv=2, random_state=0)
    ),
    "MDM": make_pipeline(XdawnCovariances(1, estimator="oas"), MDM()),
    "kernel of pyRiemann": make_pipeline(Covariances("scm"), RiemannianSVC()),
    "logistic regression": tangent(LogisticRegression()),
    "SVC": tangent(SVC(class_weight={"quiet": 2, "loud": 1})),
    "chosen features": tangent(SelectKBest(f_classif, k=3), SVC()),
    "ufunc": tangent(FunctionTransformer(np.arctan), LinearSVC(random_state=0)),
    "vote": tangent(VotingClassifier(PAIRS)),
    "calibrated": tangent(CalibratedClassifierCV(SVC(), cv=2)),
    "neighbours": tangent(KNeighborsClassifier(algorithm="brute")),
    "search": GridSearchCV(tangent(SVC()), {"svc__C": [1], "svc__kernel": ["rbf", "linear"]}, cv=2),
    "search by score": GridSearchCV(
        make_pipeline(Covariances(), DivergenceMDM()),
        [{"covariances__estimator": ["scm"]}, {"divergencemdm__divergence": ["stein", "airm"]}],
        scoring="balanced_accuracy",
        cv=StratifiedKFold(2, shuffle=True, random_state=0),
    ),
}


def there_and_back(model, folder, **options):
    save(model, folder / "model")
    return load(folder / "model", **options)


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")  # of pyRiemann
@pytest.mark.parametrize("name", COMPOSED)
def test_as_a_pickle_keeps_it(data, tmp_path, name):
    X, y = data
    model = COMPOSED[name].fit(X, y)
    again, pickled = there_and_back(model, tmp_path), pickle.loads(pickle.dumps(model))
    assert type(again) is type(model)
    if hasattr(again, "steps"):
        (name, step), *again.steps = again.steps
        assert (name, type(step)) == ("recordings", Recordings)
    assert repr(again) == repr(pickled)
    for method in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, method):
            expected, found = getattr(pickled, method)(X), getattr(again, method)(X)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    assert_same(again.fit(X, y).predict(X), pickled.fit(X, y).predict(X))


def test_a_search_and_what_it_found(data, tmp_path):
    search = COMPOSED["search by score"].fit(*data)
    again = there_and_back(search, tmp_path)
    assert_same(again.cv_results_, search.cv_results_)
    assert again.cv_results_["param_divergencemdm__divergence"].mask.any()
    assert again.score(*data) == search.score(*data)
    best = there_and_back(search.best_estimator_, tmp_path)
    np.testing.assert_array_equal(best.predict(data[0]), search.predict(data[0]))


def test_parameters_of_all_kinds(tmp_path):
    given = [slice(1, None, 2), {"a", "b"}, np.dtype("f4"), np.float32, np.float32(2), (1, [None])]
    encoder = OneHotEncoder(categories=given, dtype=np.float64, min_frequency=np.inf)
    again = there_and_back(encoder, tmp_path)
    assert again.get_params() == encoder.get_params()
    assert [type(one) for one in again.categories] == [type(one) for one in given]


TREE = "sklearn.tree._tree.Tree"
PREDICTOR = "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"
COMPILED = {
    "forest": (RandomForestClassifier(3, random_state=0), TREE),
    "boosting": (GradientBoostingClassifier(n_estimators=3, random_state=0), TREE),
    "histograms": (HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2), PREDICTOR),
}


@pytest.mark.parametrize(
    ("name", "n_classes"), [*((name, 3) for name in COMPILED), ("boosting", 2)]
)
def test_trees_come_back_if_they_are_trusted(data, tmp_path, name, n_classes):
    """A forged tree crashes Python, since nobody checks where its nodes point."""
    step, needed = COMPILED[name]
    X, y = data[0], np.array(["a", "b", "c"])[np.arange(24) % n_classes]
    model = tangent(step).fit(X, y)
    with pytest.raises(ValueError, match=rf"'{needed}', which is not trusted; if you trust whoev"):
        there_and_back(model, tmp_path)
    again = there_and_back(model, tmp_path, trusted=[needed])
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert (again.predict(X) == y).mean() > 0.6
    np.testing.assert_array_equal(again.fit(X, y).predict(X), model.fit(X, y).predict(X))


def test_k_d_trees_are_refused(data, tmp_path):
    message = (
        r"^Pipeline cannot be saved: model\.steps.*\._tree is sklearn\..*KDTree, which cannot be"
    )
    with pytest.raises(TypeError, match=message):
        save(tangent(KNeighborsClassifier(algorithm="kd_tree")).fit(*data), tmp_path / "model")


def test_requests_for_metadata(tmp_path):
    with config_context(enable_metadata_routing=True):
        model = LogisticRegression().set_fit_request(sample_weight="weight")
        again = there_and_back(model, tmp_path)
        assert repr(again.get_metadata_routing()) == repr(model.get_metadata_routing())
        assert "'sample_weight': 'weight'" in repr(again.get_metadata_routing())


# ------------------------------------------------------------------ trust


class Louder(TransformerMixin, BaseEstimator):
    """A step of somebody else's."""

    def __init__(self, factor=2.0, function=None):
        self.factor = factor
        self.function = function

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return self.factor * X

    def __sklearn_is_fitted__(self):
        return True


def louder(X):
    return 2 * X


@pytest.fixture
def module(monkeypatch):
    """A package that users have and divlearn does not know."""
    found = ModuleType("somebody")
    found.Louder, found.louder = Louder, louder
    monkeypatch.setitem(sys.modules, "somebody", found)
    for one in (Louder, louder):
        monkeypatch.setattr(one, "__module__", "somebody")


@pytest.mark.usefixtures("module")
def test_untrusted_types_are_refused_by_name(data, tmp_path):
    X, y = data
    model = make_pipeline(Louder(3.0), Covariances("scm"), MDM()).fit(X, y)
    message = (
        r"model: it needs 'somebody.Louder', which is not trusted; if you trust whoever wrote "
        r"the file, pass trusted=\['somebody.Louder'\]$"
    )
    with pytest.raises(ValueError, match=message):
        there_and_back(model, tmp_path)
    again = there_and_back(model, tmp_path, trusted=["somebody.Louder"])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.usefixtures("module")
def test_untrusted_functions_too(tmp_path):
    model = FunctionTransformer(louder)
    with pytest.raises(ValueError, match=r"trusted=\['somebody.louder'\]"):
        there_and_back(model, tmp_path)
    assert there_and_back(model, tmp_path, trusted=["somebody.louder"]).func is louder


def test_what_is_not_trusted_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "harm.py").write_text("class Harm: pass\nraise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "harm", ModuleType("harm"))
    sys.modules["harm"].Harm = type("Harm", (Louder,), {"__module__": "harm"})
    save(sys.modules["harm"].Harm(), tmp_path / "model")
    monkeypatch.delitem(sys.modules, "harm")
    with pytest.raises(ValueError, match=r"trusted=\['harm.Harm'\]"):
        load(tmp_path / "model")
    with pytest.raises(SystemExit, match="imported"):
        load(tmp_path / "model", trusted=["harm.Harm"])


def test_trusted_is_a_list(tmp_path):
    with pytest.raises(TypeError, match=r"trusted='a.B' must be a list of names; pass \['a.B'\]"):
        there_and_back(MDM(), tmp_path, trusted="a.B")


def test_a_package_that_is_not_there(data, tmp_path, monkeypatch):
    save(COMPOSED["MDM"], tmp_path / "model")
    monkeypatch.setitem(sys.modules, "pyriemann.estimation", None)
    with pytest.raises(ValueError, match=r"it needs 'pyriemann.*, which cannot be .*; install the"):
        load(tmp_path / "model")


@pytest.mark.parametrize("divergence", ["stein", (0.3, 0.7), "wasserstein"])
@pytest.mark.parametrize("classifier", [DivergenceMDM, MDM])
def test_metrics_for_pyriemann_are_kept(data, tmp_path, classifier, divergence):
    X = Covariances().fit_transform(data[0])
    model = classifier(metric=for_pyriemann(divergence)).fit(X, data[1])
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    fitted = clone(again).fit(X, data[1])
    np.testing.assert_array_equal(fitted.transform(X), model.transform(X))
    if classifier is DivergenceMDM:
        assert again.set_params(engine="reference").fit(X, data[1]).divergence_ == get_divergence(
            divergence
        )


@pytest.mark.parametrize("unit", ["D", "ns"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_days_are_classes_as_before(data, tmp_path, unit, order):
    X = Covariances().fit_transform(data[0])
    days = np.array(["2026-01-01", "2026-02-01"], f"{order}M8[{unit}]")
    codes = np.unique(data[1], return_inverse=True)[1]
    model = DivergenceMDM().fit(X, days[codes])
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_times_of_a_file_are_times(data, tmp_path):
    """Not pointers to objects, which a forged file could ask for."""
    numbers = np.arange(3)
    reader = TreeReader({"0": numbers}, (), False)
    np.testing.assert_array_equal(
        reader.read({"times": ["<M8[D]", {"array": "0"}]}), numbers.astype("M8[D]")
    )
    for kind in ("O", "<f8", "V8"):
        with pytest.raises(Damage, match=f"its tree has times of type '{kind}'"):
            reader.read({"times": [kind, {"array": "0"}]})
    with pytest.raises(Damage, match="its tree has str in place of ndarray"):
        reader.read({"times": ["<M8[D]", "0"]})
