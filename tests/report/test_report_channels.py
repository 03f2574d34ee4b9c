"""Channels on the page of a fitted classifier: the ranking is that of `channel_importance`."""

from __future__ import annotations

import re
from base64 import b64decode

import numpy as np
import pytest

from divlearn import DivergenceKNN, TangentClassifier, channel_importance
from divlearn.report import channels, classifier_page

pytest.importorskip("plotly", reason="plotly is not installed")
pytestmark = pytest.mark.usefixtures("coarse_maps")

NAMES = np.array(["C3", "Cz", "C4"])


@pytest.fixture(scope="module")
def data():
    """Covariances of three channels in sessions; classes differ in the power of the first one."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    series = rng.standard_normal((80, 3, 40))
    series[y == 1, 0] *= 1.5
    return series @ series.mT / 40, np.array(["left", "right"])[y], np.arange(80) // 10


def make_page(data, names=NAMES):
    X, y, groups = data
    model = DivergenceKNN(1).fit(X, y)
    if names is not None:
        model.feature_names_in_ = names
    return classifier_page(model, X, y, groups)


def section_of(page, title="Which channels matter"):
    return next(section for section in page.sections if section.title == title)


def test_the_ranking_has_names_and_errors(data):
    X, y, groups = data
    found = channel_importance(
        TangentClassifier(random_state=0), X, y, list(NAMES), n_repeats=2, cv=4, groups=groups
    )
    section = section_of(make_page(data))
    shown = [[cell["text"] for cell in row[:2]] for row in section.content["shown"]]
    assert shown == [
        [row.name, f"{100 * row.importance:.1f} ±\N{NO-BREAK SPACE}{100 * row.standard_error:.1f}"]
        for row in found.table()
    ]
    assert shown[0][0] == "C3"
    assert f"right for {found.accuracy:.1%}" in section.note
    styles = [row[0]["style"] for row in section.content["shown"]]
    assert [name for name, style in zip(shown, styles, strict=True) if "b" in style] == shown[:1]


def test_channels_without_names_have_numbers(data):
    names = {row[0]["text"] for row in section_of(make_page(data, None)).content["shown"]}
    assert names == {"channel 1", "channel 2", "channel 3"}


@pytest.mark.parametrize("limit", ["_MAX_CHANNELS", "_MAX_MATRICES"])
def test_many_channels_and_matrices_are_not_ranked(data, monkeypatch, limit):
    monkeypatch.setattr(channels, limit, 2)
    (text,) = section_of(make_page(data)).content["paragraphs"]
    assert text.startswith("Channels of 80 matrices of size 3 are not ranked")
    assert "channel_importance" in text


def test_what_cannot_be_ranked_says_why(data):
    X, y, _ = data
    X, y = X[:3], y[:3]  # one matrix of the second class
    (text,) = section_of(classifier_page(DivergenceKNN(1).fit(X, y), X, y)).content["paragraphs"]
    assert text.startswith("Channels are not ranked: class right has 1 matrix, must have >= 2")


def test_a_scalp_map_shows_channels_that_mne_knows(data):
    pytest.importorskip("mne", reason="mne is not installed")
    page = make_page(data)
    section = section_of(page, "Scalp map")
    found = re.search(r'<img src="data:image/png;base64,([^"]+)" alt="Scalp map', page.html())
    assert b64decode(found[1]).startswith(b"\x89PNG")
    assert section.content["source"].endswith(found[1])
    strange = make_page(data, np.array(["C3", "Cz", "nose"]))
    assert "Scalp map" not in [section.title for section in strange.sections]
