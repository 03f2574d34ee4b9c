"""scikit-learn's checks, once for every estimator; what its options do is tested where it is."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from unittest import SkipTest

import pytest
from lifted import lift_far, lift_image, lift_series, lift_spd, lift_streams, lifted
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import divlearn
from divlearn import baselines, cluster, descriptors
from divlearn.baselines import coded
from divlearn.cluster import mixture
from divlearn.iddl import Recipe

SEED = {"random_state": 0}
ONE_START = {"n_init": 1, **SEED}
RECIPE = Recipe(loss="ridge", penalty=1e-2, init="samples")
FAST = {"rank": "full", "max_iter": 1, "cv": 2, "recipe": RECIPE, **SEED}
ON_ROWS = make_pipeline(FunctionTransformer(divlearn.to_rows), Ridge())
ESTIMATORS = [
    (divlearn.IDDLClassifier(3, **FAST), lift_spd),
    (divlearn.IDDLRegressor(**FAST | {"max_iter": 2, "recipe": Recipe(penalty=1e-2)}), lift_spd),
    (
        divlearn.IDDLTransformer(n_atoms=1, **FAST | {"max_iter": 0}),
        lift_spd,
    ),
    (divlearn.SPDClassifier(("tangent lda", "tangent rda"), cv=2, **SEED), lift_spd),
    (divlearn.SPDRegressor(("tangent ridge", "nearest neighbour"), cv=2, **SEED), lift_spd),
    (divlearn.CrossValidatedRegressor(ON_ROWS, cv=2, **SEED), lift_spd),
    (divlearn.DivergenceKernelRegressor(["stein"], [1], [0.01], cv=2, **SEED), lift_far),
    (divlearn.NearestRegressor(cv=2, **SEED), lift_spd),
    (divlearn.TangentRegressor(cv=2, **SEED), lift_spd),
    (divlearn.DivergenceKernel(), lift_far),
    (divlearn.DivergenceKernelClassifier([0.5], [0.5], [2], [1], cv=2, **SEED), lift_far),
    (cluster.ABKMeans(2, **ONE_START), lift_far),
    (cluster.KarcherKMeans(2, **ONE_START), lift_far),
    (cluster.LogEuclideanKMeans(2, **ONE_START), lift_far),
    (cluster.ABMixture(2, "wishart", **SEED), lift_spd),
    (divlearn.Recenter("stein", stretch=True), lift_spd),
    (divlearn.DivergenceOutliers("stein", threshold=1), lift_far),
    (divlearn.DivergenceMDM("stein", cv=2, **SEED), lift_spd),
    (divlearn.DivergenceKNN(), lift_spd),
    (divlearn.NearestClassifier(cv=2, **SEED), lift_spd),
    (divlearn.TangentClassifier(cv=2, **SEED), lift_spd),
    (divlearn.CalibratedClassifier(divlearn.DivergenceKNN(3), cv=2, **SEED), lift_spd),
    (baselines.LogEuclideanSVM(**SEED), lift_spd),
    (baselines.LEML(4, 0.3, max_iter=1, **SEED), lift_spd),
    (baselines.KernelLLC(kernel="stein", bandwidth=0.5, n_neighbors=1, **SEED), lift_spd),
    (baselines.KernelSparseCoding(bandwidth=0.5, penalty=0.1, max_iter=1, **SEED), lift_spd),
    (baselines.RSPDL(penalty=0.5, max_iter=1, **SEED), lift_spd),
    (descriptors.GaussianEmbedding(), lift_series),
    (descriptors.RBFKernelDescriptor(), lift_series),
    (descriptors.BlockDiagonal(), lift_streams),
    (descriptors.Regularize(), lift_spd),
    (descriptors.RegionCovariance("brodatz"), lift_image),
    (descriptors.CovarianceKernel(["I", "|Ix|", "|Iy|", "|Ixx|"]), lift_image),
]
# Checks of how rows are validated and of attributes, which end at the stand-in, and those of which
# another does all again: with rows of single precision and read-only labels.
LEFT_OUT = {
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_estimators_overwrite_params",
    "check_classifiers_train",
    "check_classifiers_train, readonly_memmap=True",
    "check_regressors_train",
    "check_regressors_train, readonly_memmap=True",
    "check_transformer_data_not_an_array",
    "check_transformer_general, readonly_memmap=True",
    "check_readonly_memmap_input",
    "check_f_contiguous_array_estimator",
    "check_dtype_object",
    "check_complex_data",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_fit2d_predict1d",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
}


def name_of(check):
    """A check with its arguments."""
    options = "".join(f", {name}={value}" for name, value in check.keywords.items())
    return f"{check.func.__name__}{options}"


@pytest.fixture(autouse=True, scope="module")
def short_searches(small_grids_everywhere):
    """How many points something is chosen from is no matter here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "TOLERANCE", 1.0)
        patch.setattr(coded, "_ATOMS_PER_CLASS", 1)
        yield


@pytest.mark.parametrize(
    ("estimator", "lift"), [pytest.param(*pair, id=type(pair[0]).__name__) for pair in ESTIMATORS]
)
def test_checks_of_scikit_learn(estimator, lift):
    left_out = set(LEFT_OUT)
    # What draws starts, folds or batches draws others where samples are repeated than where they
    # have weights.
    if hasattr(estimator, "random_state"):
        left_out.add("check_sample_weight_equivalence_on_dense_data")
    if isinstance(estimator, divlearn.Recenter):  # the matrices given have a mean
        left_out.add("check_methods_subset_invariance")
    for stand_in, check in estimator_checks_generator(lifted(estimator, lift)):
        name = name_of(check)
        try:
            if name not in left_out:
                check(stand_in)
        except SkipTest:  # it needs a library that is not installed
            continue
        except BaseException as error:
            error.add_note(f"in {name}")
            raise


def test_estimators_have_few_parameters():
    """A new one has to replace an old one."""
    most = {cluster.ABKMeans: 11, cluster.ABMixture: 11}
    for estimator in {type(estimator) for estimator, _ in ESTIMATORS}:
        assert len(inspect.signature(estimator).parameters) <= most.get(estimator, 12)


def test_every_estimator_is_checked():
    """Those a module or the library itself offers by name."""
    modules = [
        divlearn,
        *(
            import_module(found.name)
            for found in pkgutil.iter_modules(divlearn.__path__, "divlearn.")
            if found.name not in ("divlearn.__main__", "divlearn.torch", "divlearn.report")
        ),
    ]
    offered = {
        value
        for module in modules
        for value in map(module.__dict__.get, getattr(module, "__all__", ()))
        if inspect.isclass(value) and issubclass(value, BaseEstimator)
    }
    assert offered == {type(estimator) for estimator, _ in ESTIMATORS}
