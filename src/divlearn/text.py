"""Text of messages."""

_SINGULARS = (("matrices", "matrix"), ("classes", "class"), ("entries", "entry"), ("s", ""))


def counted(number: int, items: str) -> str:
    """Return a number of items, such as "1 matrix" or "3 matrices"."""
    if number != 1:
        return f"{number} {items}"
    plural, singular = next(ends for ends in _SINGULARS if items.endswith(ends[0]))
    return f"1 {items.removesuffix(plural)}{singular}"
