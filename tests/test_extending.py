"""The recipes of docs/extending.md, taken from the page: what they add passes our tests."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from forked import in_a_fork

TOP = Path(__file__).parents[1]


def recipe(title: str) -> str:
    """The first block of code below a title."""
    page = (TOP / "docs" / "extending.md").read_text()
    section = page[page.index(f"## {title}\n") :]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]


def test_the_engine_passes_the_tests_of_engines(tmp_path, capfd):
    (tmp_path / "counting.py").write_text(recipe("An engine"))
    # Every verb against the reference, and the rules of its arguments.
    verbs = "several_pairs or derivative or routes or float32 or out_is or identical or one_number"
    chosen = f"Counting and ({verbs} or spectra) and not (65 or 102)"

    def test_it():
        os.environ["DIVLEARN_TEST_ENGINE"] = "counting:CountingEngine"
        os.chdir(TOP)
        sys.path.insert(0, str(tmp_path))
        for name, module in list(sys.modules.items()):  # some hold the engines to test
            if str(getattr(module, "__file__", "")).startswith(str(TOP / "tests")):
                del sys.modules[name]
        return pytest.main(
            ["-q", "-p", "no:cacheprovider", "-k", chosen, "tests/engines/test_engines.py"]
        )

    failed, printed = in_a_fork(test_it), capfd.readouterr().out
    assert not failed, printed[-3000:]
    assert int(re.search(r"(\d+) passed", printed)[1]) > 20


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_has_the_derivatives_it_says(seed):
    """Slopes and second derivatives against differences."""
    names = {}
    code = recipe("A loss").partition("\n\n\nX, y = ")[0]
    exec(f"import numpy as np\n{code}", names)
    loss, rng = names["SquaredHinge"](), np.random.default_rng(seed)
    scores, targets = rng.standard_normal((30, 4)), np.eye(4)[rng.integers(4, size=30)]
    direction = rng.standard_normal(scores.shape)
    ahead, behind = (loss.expand(scores + h * direction, targets) for h in (1e-6, -1e-6))
    here = loss.expand(scores, targets)
    slopes = (here.slopes * direction).sum(axis=1)
    np.testing.assert_allclose(slopes, (ahead.losses - behind.losses) / 2e-6, atol=1e-7)
    product = (ahead.slopes - behind.slopes) / 2e-6
    np.testing.assert_allclose(loss.hessian_product(here.curvature, direction), product, atol=1e-7)
