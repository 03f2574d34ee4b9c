"""Covariances in place of recordings: refused by what is saved, in Python and by the program."""

from __future__ import annotations

import numpy as np
import pytest
from pyriemann.classification import MDM
from pyriemann.estimation import Covariances, Shrinkage, TimeDelayCovariances
from pyriemann.tangentspace import TangentSpace
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import divlearn
from divlearn.cli import main
from divlearn.datasets import make_recordings
from divlearn.descriptors import GaussianEmbedding
from divlearn.models.storage import Recordings, guarded
from divlearn.models.trust import import_trusted
from divlearn.nearest import DivergenceMDM


@pytest.fixture(scope="module")
def data():
    """Recordings of 8 channels, their covariances and labels."""
    X, y, _ = make_recordings(24, random_state=0)
    return X, X @ X.mT / X.shape[-1], y


def there_and_back(model, folder, **options):
    divlearn.save(model, folder / "model", **options)
    return divlearn.load(folder / "model")


MODELS = {
    "pyRiemann": make_pipeline(Covariances("scm"), MDM()),
    "tangent": make_pipeline(Covariances("scm"), TangentSpace(), LogisticRegression()),
    "divlearn at the end": make_pipeline(Covariances("scm"), DivergenceMDM()),
    "delays": make_pipeline(TimeDelayCovariances(2, estimator="scm"), DivergenceMDM()),
    "inside": make_pipeline(make_pipeline(Covariances("scm"), Shrinkage()), DivergenceMDM()),
    "search": GridSearchCV(
        make_pipeline(Covariances("scm"), MDM()), {"covariances__estimator": ["scm", "oas"]}, cv=2
    ),
    "descriptor": make_pipeline(GaussianEmbedding(), DivergenceMDM()),
}


@pytest.mark.parametrize("name", MODELS)
def test_covariances_are_no_recordings(data, tmp_path, name):
    X, C, y = data
    model = MODELS[name].fit(X, y)
    again = there_and_back(model, tmp_path)
    for some in (X, X[:, :, :50], X[:1]):  # the number of times may vary
        np.testing.assert_array_equal(again.predict(some), model.predict(some))
    message = r"X holds symmetric 8 x 8 matrices, as covariances are, .* pass recordings"
    for some in (C, C.astype(np.float32), C[:1], C.tolist(), Shrinkage().transform(C)):
        with pytest.raises(ValueError, match=message):
            again.predict(some)
    assert repr(there_and_back(again, tmp_path)) == repr(again)  # one guard is enough
    few = X[:, :5]
    np.testing.assert_array_equal(again.fit(few, y).predict(few), model.fit(few, y).predict(few))


def test_the_message_says_what_the_model_was_fitted_to(data, tmp_path):
    X, C, y = data
    again = there_and_back(MODELS["pyRiemann"].fit(X, y), tmp_path, X=X[:2])
    shape = rf"\(8, {X.shape[-1]}\)"
    with pytest.raises(ValueError, match=f"fitted to recordings of shape {shape}, n_channels x n_"):
        again.predict(C)
    # A first step of any package, if the samples are given.
    model = make_pipeline(FunctionTransformer(np.negative), Covariances(), MDM()).fit(X, y)
    with pytest.raises(ValueError, match=shape):
        there_and_back(model, tmp_path, X=X).predict(C)


@pytest.mark.parametrize("shape", [(4, 8, 8), (4, 1, 1), (0, 8, 8), (4, 8), (4, 3, 8, 8)])
def test_recordings_may_be_square(shape):
    X = np.random.default_rng(0).standard_normal(shape)
    assert Recordings().transform(X) is X
    ragged = [[[1.0, 2.0]], [[1.0, 2.0, 3.0]]]
    assert Recordings().transform(ragged) is ragged


def test_what_takes_matrices_or_is_not_fitted_stays_as_it_is(data):
    X, C, y = data
    for model in (
        make_pipeline(TangentSpace(), LogisticRegression()).fit(C, y),
        make_pipeline(Shrinkage(), MDM()).fit(C, y),
        make_pipeline(Covariances(), MDM()),
        make_pipeline(GaussianEmbedding(), MDM()).fit(X, y),
        DivergenceMDM().fit(C, y),
    ):
        assert guarded(model) is model
    tangent = make_pipeline(TangentSpace(), LogisticRegression()).fit(C, y)
    assert guarded(tangent, C) is tangent
    model = MODELS["pyRiemann"].fit(X, y)
    assert [type(step) for _, step in guarded(model).steps] == [Recordings, Covariances, MDM]
    assert len(model.steps) == 2


def test_the_program_refuses_them_too(data, tmp_path, capsys):
    X, C, y = data
    divlearn.save(MODELS["tangent"].fit(X, y), tmp_path / "model", X)
    np.savez(tmp_path / "recordings.npz", X=X[:, :, :100], y=y)
    np.savez(tmp_path / "covariances.npz", X=C, y=y)
    assert main(["predict", str(tmp_path / "model"), str(tmp_path / "recordings.npz")]) == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "model"), str(tmp_path / "covariances.npz")]) == 1
    printed = capsys.readouterr()
    assert not printed.out
    assert "was fitted to recordings of shape (8, " in printed.err
    divlearn.save(DivergenceMDM().fit(C[:, :5, :5], y), tmp_path / "model")
    assert main(["predict", str(tmp_path / "model"), str(tmp_path / "covariances.npz")]) == 1
    assert "matrices of size 8, but DivergenceMDM is expecting 5; pass" in capsys.readouterr().err


def test_files_of_earlier_versions_find_the_class():
    assert import_trusted("divlearn.models.samples.Recordings") is Recordings
