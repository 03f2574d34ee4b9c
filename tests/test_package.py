"""The package: what it offers by name, and what importing it costs."""

from __future__ import annotations

import importlib.metadata
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import divlearn
from divlearn.report.page import Page, write_report

ROOT = Path(__file__).parents[1]
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"))
DOCUMENTED = sorted(name for names in REFERENCE["GROUPS"].values() for name in names)


def test_importing_the_package_imports_nothing_else():
    code = "import sys, divlearn; dir(divlearn); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    outer = ("divlearn.", "numpy", "sklearn")
    assert not [name for name in done.stdout.split() if name.startswith(outer)]


def test_modules_are_attributes():
    """Also where no import of another has made them one."""
    for name in DOCUMENTED:
        if name != "torch":  # takes seconds, and is like the rest
            with patch.dict(vars(divlearn)):
                vars(divlearn).pop(name, None)
                assert getattr(divlearn, name) is import_module(f"divlearn.{name}")


def test_dir_lists_public_names_only():
    assert dir(divlearn) == divlearn.__all__


def test_all_estimators_are_importable_from_the_package():
    for module in (getattr(divlearn, name) for name in DOCUMENTED if name != "torch"):
        for name in module.__all__:
            kind = getattr(module, name)
            if isinstance(kind, type) and issubclass(kind, BaseEstimator):
                assert getattr(divlearn, name) is kind


def test_moved_names_say_where_they_are():
    for name in ("DivergenceKNN", "DivergenceMDM"):
        with pytest.raises(ImportError, match=f"write from divlearn import {name}"):
            getattr(divlearn.baselines, name)
    with pytest.raises(ImportError, match=r"for_pyriemann is now in divlearn.divergence"):
        _ = divlearn.means.for_pyriemann
    with pytest.raises(AttributeError, match=r"module 'divlearn.baselines' has no attribute"):
        _ = divlearn.baselines.nothing


def test_unknown_names_are_no_attributes():
    with pytest.raises(AttributeError, match="module 'divlearn' has no attribute 'dataset'"):
        _ = divlearn.dataset
    with pytest.raises(ImportError, match="cannot import name 'nothing' from 'divlearn'"):
        from divlearn import nothing  # noqa: F401


def test_a_source_tree_works_without_an_installed_distribution(monkeypatch, tmp_path):
    """Checkpoints, models and reports know the version all the same."""
    pytest.importorskip("plotly", reason="plotly is not installed")
    nothing = classmethod(lambda *_, **__: iter(()))
    monkeypatch.setattr(importlib.metadata.Distribution, "discover", nothing)
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("divlearn")
    X = np.stack([np.eye(2), 2 * np.eye(2)])
    with divlearn.resumable(tmp_path / "fit"):
        model = divlearn.ABKMeans(2, random_state=0).fit(X)
    divlearn.save(model, tmp_path / "model")
    np.testing.assert_array_equal(divlearn.load(tmp_path / "model").predict(X), model.labels_)
    write_report(tmp_path / "page.html", Page("A title", "A sentence."), "", {})
    assert f"<span>divlearn</span> {divlearn.__version__}" in (tmp_path / "page.html").read_text()
