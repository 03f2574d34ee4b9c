"""Which arrays of a file are the matrices, the labels and the groups."""

from collections import Counter
from collections.abc import Sequence

from divlearn.files.variables import Refusal, Variable, quote

Column = tuple[Variable, ...]  # one array, or a training and a test part

MATRIX_NAMES = (
    "matrices",
    "X",
    "x",
    "data",
    "covariances",
    "covs",
    "cov",
    "spd",
    "SPD",
    "spds",
    "features",
)
LABEL_NAMES = ("labels", "y", "Y", "label", "target", "targets", "classes", "gnd")
GROUP_NAMES = ("groups", "group", "subjects", "subject", "sessions", "session")
FILES = "files"  # names of the files that matrices were made from
_PARTS = ("train", "test")
_SHOWN = 10


def choose(
    variables: Sequence[Variable],
    matrices: str | None,
    labels: str | None,
    groups: str | None,
    square: bool,
) -> tuple[Column, Column, Column, dict[str, Column]]:
    """Choose by the given names or, without them, by the rules that `load_spd` documents."""
    # Returned are matrices, labels, groups, and what else has a usual name: ``files``, and arrays
    # that look like groups. Where the file is split, each holds the training and the test array.
    # Arrays inside groups have usual names too: what counts is the end of a path, if it is unique.
    ends = Counter(_end(variable.name) for variable in variables)
    by_name: dict[str, Variable] = {}
    for variable in variables:
        end = _end(variable.name)
        key = end if ends[end] == 1 else variable.name
        if key in by_name:
            raise Refusal(
                f"it holds two arrays named {quote(variable.name)}; write it again with one"
            )
        by_name[key] = variable
    parts = _choose_matrices(by_name, matrices, square)
    chosen = _choose_labels(by_name, labels, parts)
    together: Column = ()
    if groups is not None:
        together = _find_column(by_name, groups, parts) or (_get(by_name, groups, "groups"),)
    taken = {*parts, *chosen, *together}
    beside = {name: _find_column(by_name, name, parts) for name in (FILES, *GROUP_NAMES)}
    beside = {name: one for name, one in beside.items() if one and not taken.intersection(one)}
    return parts, chosen, together, beside


def _find_column(by_name: dict[str, Variable], name: str, parts: Column) -> Column:
    """Find the array of a name, or those of the parts of a split; empty if there is none."""
    if name in by_name:
        return (by_name[name],)
    if len(parts) == 2:
        return _find_split(by_name, (name,))
    joined = _joined(name, _part_of(parts[0].name))
    return tuple(by_name[one] for one in joined if one in by_name)[:1]


def _choose_matrices(by_name: dict[str, Variable], wanted: str | None, square: bool) -> Column:
    if wanted is not None:
        return (_get(by_name, wanted, "matrices"),)
    # One that cannot be read counts: better its reason is told than another one taken.
    found: list[Column] = [
        (by_name[name],)
        for name in MATRIX_NAMES
        if name in by_name and (_is_stack(by_name[name], square) or by_name[name].refusal)
    ]
    if split := _find_split(by_name, MATRIX_NAMES):
        found.append(split)
    found = found or [(one,) for one in by_name.values() if _is_stack(one, square)]
    if not found:
        raise Refusal(
            "it has no stack of square matrices, an array with three axes of which the last or the "
            f"first two are equal; {_contents(by_name)}; save one of shape (n_matrices, d, d)"
        )
    if len(found) > 1:
        names = ", ".join(quote(variable.name) for one in found[:_SHOWN] for variable in one)
        raise Refusal(f"{names} could be the matrices; choose with matrices=")
    return found[0]


def _choose_labels(by_name: dict[str, Variable], wanted: str | None, parts: Column) -> Column:
    if wanted is not None:
        return (_get(by_name, wanted, "labels"),)
    if len(parts) == 2:
        if split := _find_split(by_name, LABEL_NAMES):
            return split
        if lone := [name for part in _PARTS for name in _names_of(part) if name in by_name]:
            raise Refusal(
                f"of the two parts of the split only {lone[0]} has labels; add the others, or "
                "choose one part with matrices="
            )
    part = _part_of(parts[0].name) if len(parts) == 1 else ""
    names = _names_of(part) if part else LABEL_NAMES
    found = [by_name[name] for name in names if name in by_name and by_name[name] not in parts]
    if len(found) > 1:
        shown = ", ".join(variable.name for variable in found)
        raise Refusal(f"{shown} could be the labels; choose with labels=")
    return tuple(found)


def _is_stack(variable: Variable, square: bool) -> bool:
    shape = variable.shape
    fits = len(shape) == 3 and (shape[0] == shape[1] or shape[1] == shape[2])
    return (fits if square else len(shape) > 1) and variable.dtype.kind not in "SU"


def _joined(name: str, part: str) -> tuple[str, str]:
    return f"{name}_{part}", f"{part}_{name}"


def _names_of(part: str) -> tuple[str, ...]:
    return tuple(joined for name in LABEL_NAMES for joined in _joined(name, part))


def _part_of(name: str) -> str:
    """Which part of a split an array of matrices is by its name, empty if none."""
    end = _end(name)
    return next(
        (part for part in _PARTS for usual in MATRIX_NAMES if end in _joined(usual, part)), ""
    )


def _find_split(by_name: dict[str, Variable], names: Sequence[str]) -> Column:
    """Find the training and the test array; empty unless the file has both. Refuse several."""
    pairs = [
        (by_name[train], by_name[test])
        for name in names
        for train, test in zip(_joined(name, "train"), _joined(name, "test"), strict=True)
        if train in by_name and test in by_name
    ]
    if len(pairs) > 1:
        shown = ", ".join(quote(variable.name) for pair in pairs for variable in pair)
        raise Refusal(f"{shown} are several splits; choose with matrices= and labels=")
    return pairs[0] if pairs else ()


def _get(by_name: dict[str, Variable], name: str, argument: str) -> Variable:
    by_path = {variable.name: variable for variable in by_name.values()}
    found = by_path.get(name.strip("/"), by_name.get(name))
    if found is None:
        raise Refusal(f"{argument}={name!r} is not in it; {_contents(by_name)}; name one of these")
    return found


def _end(path: str) -> str:
    return path.rpartition("/")[2]


def _contents(by_name: dict[str, Variable]) -> str:
    if not by_name:
        return "it holds no arrays"
    shown = [str(variable) for variable in list(by_name.values())[:_SHOWN]]
    more = len(by_name) - len(shown)
    return f"it holds {', '.join(shown)}" + (f" and {more} more" if more else "")
