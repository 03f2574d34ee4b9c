"""Text for people: counts, and names without characters that cannot be seen."""

from unicodedata import category

_SINGULARS = (("matrices", "matrix"), ("classes", "class"), ("entries", "entry"), ("s", ""))


def counted(number: int, items: str) -> str:
    """Return a number of items, such as "1 matrix" or "3 matrices"."""
    if number != 1:
        return f"{number} {items}"
    noun, of, rest = items.partition(" of ")
    plural, singular = next(ends for ends in _SINGULARS if noun.endswith(ends[0]))
    return f"1 {noun.removesuffix(plural)}{singular}{of}{rest}"


def harmless(text: str, *, keep: str = "\n") -> str:
    """Escape characters that could command a terminal, or change the order of what is shown."""
    if text.isprintable():
        return text
    for char in set(text).difference(keep):
        if not char.isprintable() and category(char) != "Zs":
            text = text.replace(char, repr(char)[1:-1])
    return text
