"""Is it worth learning atoms and divergences together? Splits of Virus."""

from itertools import product

import numpy as np
from scipy.stats import ttest_rel

from paper import published
from paper.cells import Cell, Done, distinct, where
from paper.classification import accuracy_cells
from paper.comparison import Claim, Row, accuracy_of, against, figures_of, names_of
from paper.experiment import Experiment
from paper.protocol import Protocol

# What is held fixed in the paper: the variant, and what the solver moves.
_SCENARIOS = {
    "Fix(alpha, beta)": ("IDDL-N", " atoms"),
    "Fix(B)": ("IDDL-S", " divergences"),
    "joint": ("IDDL-N", ""),
}
_SOLVERS = {"bcd": "", "joint": ", joint solver"}  # and what is added to the names of rows
_FIXED = tuple(_SCENARIOS)[:2]


def _cells(protocol: Protocol) -> list[Cell]:
    return [
        cell
        for solver in protocol.solvers
        for atoms in protocol.joint_atoms
        for method, moved in _SCENARIOS.values()
        for cell in accuracy_cells(
            ["virus"],
            [method],
            protocol,
            seeds=protocol.joint_seeds,
            atoms=atoms,
            solver=solver + moved,
            iterations=protocol.steps(solver),
        )
    ]


def _rows(done: Done) -> list[Row]:
    rows = []
    for (solver, said), atoms in product(_SOLVERS.items(), distinct(done, "atoms")):
        row = f"{atoms} atoms{said}"
        found = {
            name: where(done, method=method, atoms=atoms, solver=solver + moved)
            for name, (method, moved) in _SCENARIOS.items()
        }
        if not any(found.values()):
            continue
        for name, here in found.items():
            known = published.JOINT.get(atoms, {}).get(name)
            rows.append(Row.of(row, name, accuracy_of(here), known))
        for name in _FIXED:
            gain, p = paired_gain(found["joint"], found[name])
            rows += [
                Row.of(row, f"joint - {name}", gain),
                Row(row, f"p, {name}", p, decimals=2),
            ]
    return rows


def paired_gain(ours: Done, others: Done) -> tuple[tuple[float, float | None] | None, float | None]:
    """Return the mean gain in points over splits that both have, its error, and p of a t-test."""
    by_seed = [{one["seed"]: 100 * one["accuracy"] for one in done} for done in (ours, others)]
    seeds = sorted(set(by_seed[0]) & set(by_seed[1]))
    if len(seeds) < 2:
        return None, None
    first, second = (np.array([one[seed] for seed in seeds]) for one in by_seed)
    gaps = first - second
    p = float(ttest_rel(first, second).pvalue) if np.ptp(gaps) else float(gaps[0] == 0)
    return (float(gaps.mean()), float(gaps.std(ddof=1) / len(gaps) ** 0.5)), p


def _claims(rows: list[Row]) -> list[Claim]:
    claims = []
    names = [name for name in names_of(rows) if _SOLVERS["joint"] not in name] or names_of(rows)
    for name in names:
        found, said = figures_of(rows, name), published.JOINT.get(int(name.split()[0]), {})
        here, theirs = (against(one, ["joint"], _FIXED) for one in (found, said))
        if here and theirs:
            rival = max(_FIXED, key=found.__getitem__)
            p = found.get(f"p, {rival}", 0.0)
            claim = "joint learning beats fixing either" if theirs[0] else "but not with 15 atoms"
            agrees = here[0] == theirs[0]
            text = f"{here[1]} (p = {p:.2f})"
            claims.append(Claim(claim, f"Virus, {name}", agrees, text, theirs[1], p < 0.05))
    return sorted(claims, key=lambda claim: claim.claim, reverse=True)


def _effort(protocol: Protocol) -> str:
    return (
        f"{protocol.joint_seeds} splits of Virus, where the paper has one; all three share splits, "
        "first atoms and grid search, and each chooses its gamma; p is that of a paired t-test "
        "over splits, whose training sets overlap"
    )


JOINT_LEARNING = Experiment(
    name="joint-learning",
    title="Learning atoms, divergences, or both",
    unit="accuracy in %",
    where='Table "fixing the dictionary atoms against fixing the parameters"',
    cells=_cells,
    rows=_rows,
    claims=_claims,
    effort=_effort,
)
