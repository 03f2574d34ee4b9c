"""The benchmark of growth: exponents of known laws, limits, and what a second run measures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
MB = 1 << 20


@pytest.fixture
def growth(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import growth

    yield growth
    for name in ("growth", "growth_tables", "machine", "memory"):
        sys.modules.pop(name, None)


def row(matrices, **found):
    sizes = {"estimator": "ABKMeans", "matrices": matrices, "size": 8, "classes": 5}
    return sizes | {"engine": "auto", "clock": "cpu", "limit": 60, "threads": 1} | found


def test_exponents_of_power_laws(growth, tmp_path):
    rows = [
        row(n, cpu=1e-3 * n**1.5, peak=(100 + n**2 // 10**3) * MB, before=100 * MB)
        for n in (500, 1000, 2000)
    ]
    page = tmp_path / "growth.md"
    page.write_text("<!-- growth -->\n<!-- /growth -->\n")
    rows.append(row(4000, over=True))
    growth.write_page(page, {"mine": {"about": "A machine", "rows": rows}}, growth.ESTIMATORS)
    lines = page.read_text().splitlines()
    assert "| `ABKMeans` | 11 | 32 | 89 | over | 1.5 |" in lines
    assert "| `ABKMeans` | 350 | 1,100 | 4,100 | over | 2.0 |" in lines


def test_a_second_run_measures_what_is_missing(growth, tmp_path, monkeypatch):
    asked = []

    def measure(point, terms):
        asked.append(point.matrices)
        over = {"over": True} if point.matrices > 1000 else {"cpu": 1.0, "peak": 1, "before": 0}
        return row(point.matrices, limit=terms.limit) | over

    monkeypatch.setattr(growth, "measure", measure)
    line = [growth.Point("ABKMeans", n, 8, 5) for n in (500, 2000, 4000)]
    for limit in (60, 60, 100):
        results = growth.Results(tmp_path / "growth.json", "mine")
        growth.run_line(line, growth.Terms("cpu", limit, 1), results)
    # The third is skipped; a higher limit is another chance for what was over the lower one.
    assert asked == [500, 2000, 2000]
    assert [one["matrices"] for one in results.rows if one.get("over")] == [2000, 4000]
