"""Sentences that compare with the paper, chosen by rules: none is written for a figure by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from divlearn.experiments.result import Row

__all__ = ["clauses", "join", "judge", "tell_differences"]


def join(names: Iterable[str]) -> str:
    """Join names as people do.

    Examples
    --------
    >>> join(["Virus"]), join(["Virus", "Brodatz", "HMDB"])
    ('Virus', 'Virus, Brodatz and HMDB')
    """
    known = list(names)
    return " and ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)


def clauses(*parts: str) -> str:
    """Put clauses together, those there are.

    Examples
    --------
    >>> clauses("The first split", "", "15 atoms")
    'The first split; 15 atoms'
    """
    return "; ".join(part for part in parts if part)


def tell_differences(
    rows: Sequence[Row], reasons: Mapping[str, str], columns: Mapping[str, str] | None = None
) -> list[str]:
    """Say where figures differ from the paper's by more than two standard errors, and why.

    Parameters
    ----------
    rows : sequence of Row
    reasons : mapping of str to str
        A clause for every row of the table that has one.
    columns : mapping of str to str, optional
        The same for columns.

    Examples
    --------
    >>> rows = [Row("Virus", "LE", 70.0, 1.0, 66.67), Row("Virus", "AIRM", 67.0, 1.0, 67.89)]
    >>> tell_differences(rows, {"Virus": "the splits are other ones"})
    ["Virus: LE +3.3 differs from the paper's by more than two standard errors: the splits are
    other ones."]
    """
    told = []
    for name in dict.fromkeys(row.row for row in rows):
        known = [row for row in rows if row.row == name and row.paper is not None]
        off = [row for row in known if row.differs]
        parts = [
            f"{row.column} {row.value - row.paper:+.{row.decimals}f}"
            for row in off
            if row.value is not None and row.paper is not None
        ]
        if parts:
            clauses = [reasons.get(name), *((columns or {}).get(row.column) for row in off)]
            known_reasons = "; ".join(dict.fromkeys(filter(None, clauses)))
            why = f": {known_reasons}" if known_reasons else ", for no reason we know"
            verb = "differ" if len(parts) > 1 else "differs"
            told.append(
                f"{name}: {join(parts)} {verb} from the paper's by more than two standard "
                f"errors{why}."
            )
        elif known and all(row.value is not None and row.error is not None for row in known):
            told.append(f"{name}: within two standard errors of the paper.")
    return told


def judge(claim: str, holds: Mapping[str, bool]) -> list[str]:
    """Say where a claim of the paper holds.

    Parameters
    ----------
    claim : str
    holds : mapping of str to bool
        By data set, those that are done.

    Examples
    --------
    >>> judge("IDDL is best", {"Virus": True, "Brodatz": False})
    ['The paper: IDDL is best. Here that holds on Virus, but not on Brodatz.']
    >>> judge("IDDL is best", {})
    []
    """
    if not holds:
        return []
    yes, no = ([name for name, held in holds.items() if held is wanted] for wanted in (True, False))
    if not no:
        where = f"Here that holds on {join(yes)}"
    elif not yes:
        where = f"Here that does not hold on {join(no)}"
    else:
        where = f"Here that holds on {join(yes)}, but not on {join(no)}"
    return [f"The paper: {claim}. {where}."]
