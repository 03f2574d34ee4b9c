"""Text for people: counts, p-values, and names without characters that cannot be seen."""

from unicodedata import category

_SINGULARS = (("matrices", "matrix"), ("classes", "class"), ("entries", "entry"), ("s", ""))
_LEAST_P = 1e-16  # smaller p-values are rounded to zero, or are errors of rounding


def counted(number: int, items: str) -> str:
    """Return a number of items, such as "1 matrix" or "3 matrices"."""
    if number != 1:
        return f"{number} {items}"
    noun, of, rest = items.partition(" of ")
    plural, singular = next(ends for ends in _SINGULARS if noun.endswith(ends[0]))
    return f"1 {noun.removesuffix(plural)}{singular}{of}{rest}"


def format_p(p_value: float) -> str:
    """Return a p-value such as "0.031", or a bound of one that is smaller than its rounding."""
    return f"< {_LEAST_P:g}" if p_value < _LEAST_P else f"{p_value:.2g}"


def say_p(p_value: float) -> str:
    """Return a p-value for a sentence, such as "p = 0.031"."""
    text = format_p(p_value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def harmless(text: str, *, keep: str = "\n") -> str:
    """Escape characters that could command a terminal, or change the order of what is shown."""
    if text.isprintable():
        return text
    for char in set(text).difference(keep):
        if not char.isprintable() and category(char) != "Zs":
            text = text.replace(char, repr(char)[1:-1])
    return text
