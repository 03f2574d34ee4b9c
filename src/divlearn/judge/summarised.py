"""The summary of a result, which a notebook shows."""

from html import escape


class Summarised:
    """A result with a `summary()`, which a notebook shows."""

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.summary())}</p>"  # type: ignore[attr-defined]
