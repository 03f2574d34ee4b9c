"""Reject option: no class is predicted if the most probable one is not probable enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from divlearn.arrays import Labels
from divlearn.checks import is_number
from divlearn.judge.evaluation import check_classifier


def predict_or_reject(
    classifier: BaseEstimator, X: ArrayLike, bound: float, unsure: str | float | None = None
) -> Labels:
    """Predict the most probable class of each matrix, or that the classifier is unsure.

    Parameters
    ----------
    classifier : fitted classifier with `predict_proba`
    X : array-like, whatever the classifier takes, such as matrices, shape (n_matrices, d, d)
    bound : float from 0 to 1
        A matrix is rejected if the probability of every class is below the bound.
    unsure : str or float, optional
        Label of rejected matrices, different from all classes; "unsure" if classes are text, else
        NaN.

    Returns
    -------
    ndarray, shape (n_matrices,)

    Notes
    -----
    If probabilities are calibrated, at least the share ``bound`` of the predicted classes is right
    on average. With few matrices, and classes that are hard to tell apart, it is less: the manual's
    page on EEG has 80 to 88 % at a bound of 0.9, and 49 to 87 % at 0.8 for new subjects, which may
    differ from all those in training. `SPDClassifier`, `CalibratedClassifier`, `DivergenceMDM` with
    "choose" and all other classifiers that choose on held-out data calibrate probabilities on these
    data. `DivergenceMDM` with a named divergence does not; wrap it in `CalibratedClassifier`.

    Examples
    --------
    >>> from divlearn import CalibratedClassifier, DivergenceMDM
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(2, 40, 3, separation=1.5, random_state=0)
    >>> names = np.array(["left", "right"])[y]
    >>> model = CalibratedClassifier(DivergenceMDM(), random_state=0).fit(X[::2], names[::2])
    >>> predicted = predict_or_reject(model, X[1::2], 0.8)
    >>> sorted(set(predicted.tolist()))
    ['left', 'right', 'unsure']
    """
    if not is_number(bound) or not 0 <= bound <= 1:
        raise ValueError(f"bound={bound!r} must be a number from 0 to 1")
    check_classifier(classifier, "classifier")
    if not hasattr(classifier, "predict_proba"):
        raise ValueError(
            f"{type(classifier).__name__} must have predict_proba; wrap it in CalibratedClassifier"
        )
    probabilities, classes = classifier.predict_proba(X), classifier.classes_
    is_text = all(isinstance(name, str) for name in classes.tolist())
    if unsure is None:
        unsure = "unsure" if is_text else np.nan
    if unsure in classes.tolist():
        raise ValueError(f"unsure={unsure!r} must not be one of the classes; pass another value")
    predicted: Labels = classes[probabilities.argmax(axis=1)]
    if isinstance(unsure, str) != is_text or not (is_text or _are_floats(classes)):
        predicted = np.array(list(predicted), dtype=object)  # NumPy would convert classes
    # NumPy would make 255 of the number -1 beside classes of uint8; an array keeps its value.
    return np.where(probabilities.max(axis=1) >= bound, predicted, np.asarray(unsure))


def _are_floats(classes: Labels) -> bool:
    """Whether classes are numbers that keep their value as floats."""
    if classes.dtype.kind not in "iuf":
        return False
    return bool((classes.astype(float).astype(classes.dtype) == classes).all())
