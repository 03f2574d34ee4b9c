"""Series that ship inside aeon: nothing to obtain, nothing to download."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.datasets.dataset import NOT_STATED, Dataset
from divlearn.descriptors.gaussian import GaussianEmbedding

__all__ = ["load_basic_motions", "load_japanese_vowels"]


def load_japanese_vowels() -> Dataset:
    """Japanese vowels: 640 utterances of nine speakers, as 13 x 13 Gaussian embeddings.

    Returns
    -------
    Dataset
        Labels are the numbers of the speakers. Series have 12 channels, cepstrum coefficients, and
        7 to 29 times. The official split has 270 utterances to train on and 370 to test on.

    Raises
    ------
    ImportError
        If aeon is not installed.

    Notes
    -----
    The means tell speakers apart as much as the covariances do, hence the Gaussian embedding. Some
    series are shorter than their number of channels; the floor of 0.01 was chosen by
    cross-validation on the training part alone, of log-Euclidean 1-NN (95.9 %, against 90.0 at
    1e-4 and 95.9 at 0.1) and linear SVMs (98.3 %, against 97.2 and 98.1). Repaired matrices are
    reported by a warning when they are computed.

    Examples
    --------
    >>> vowels = load_japanese_vowels()  # doctest: +SKIP
    >>> vowels.matrices.shape  # doctest: +SKIP
    (640, 13, 13)
    """
    return _load(
        "JapaneseVowels",
        name="Japanese vowels",
        citation=(
            'M. Kudo, J. Toyama and M. Shimbo, "Multidimensional curve classification using '
            'passing-through regions", Pattern Recognition Letters 20, 1999'
        ),
        descriptor=GaussianEmbedding(regularize=0.01),
    )


def load_basic_motions() -> Dataset:
    """Motions of a watch: 80 recordings of four activities, as 7 x 7 Gaussian embeddings.

    Returns
    -------
    Dataset
        Labels are the names of the activities. Series have 6 channels, those of an accelerometer
        and of a gyroscope, and 100 times. The official split has 40 to train on and 40 to test on.

    Raises
    ------
    ImportError
        If aeon is not installed.

    Examples
    --------
    >>> motions = load_basic_motions()  # doctest: +SKIP
    >>> motions.matrices.shape  # doctest: +SKIP
    (80, 7, 7)
    """
    return _load(
        "BasicMotions",
        name="Basic motions",
        citation=(
            'A. Bagnall and others, "The UEA multivariate time series classification archive, '
            '2018", arXiv:1811.00075'
        ),
        descriptor=GaussianEmbedding(),
        notes=("Four students made all recordings; the split does not tell whose is whose.",),
    )


def _load(
    problem: str, *, name: str, citation: str, descriptor: Any, notes: tuple[str, ...] = ()
) -> Dataset:
    train, train_labels = _read(problem, "TRAIN")
    test, test_labels = _read(problem, "TEST")
    labels = np.concatenate([train_labels, test_labels])
    return Dataset(
        name=name,
        labels=labels.astype(np.int64) if labels[0].isdecimal() else labels,
        citation=citation,
        terms=NOT_STATED,
        series=[*train, *test],
        descriptor=descriptor,
        official_splits=((np.arange(len(train)), np.arange(len(train), len(labels))),),
        notes=notes,
    )


def _read(problem: str, part: str) -> tuple[list[NDArray[Any]], NDArray[Any]]:
    try:
        datasets: Any = import_module("aeon.datasets")
    except ImportError as error:
        raise ImportError(f'{problem} ships with aeon: pip install "divlearn[series]"') from error
    # By its path: aeon's own loaders download what they do not find.
    path = Path(datasets.__file__).parent / "data" / problem / f"{problem}_{part}.ts"
    if not path.is_file():
        raise FileNotFoundError(
            f"{problem}: {path} does not exist; this version of aeon does not ship it, install "
            "another one, such as aeon 1.6"
        )
    series, labels = datasets.load_from_ts_file(str(path))
    return list(series), labels
