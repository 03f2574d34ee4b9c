"""What all descriptors share as scikit-learn transformers."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import BaseEstimator, TransformerMixin

from divlearn.fitting.labelled import MatricesMixin

__all__ = ["MatrixTransformer"]


class MatrixTransformer(TransformerMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    """Base of transformers from samples that are no rows of numbers to SPD matrices."""

    n_features_in_: int

    def set_output(self, *, transform: str | None = None) -> Self:
        """Do nothing: matrices fit into no data frame, and stay an array in every pipeline.

        Parameters
        ----------
        transform : ignored
            There so that ``set_output`` works for pipelines with other transformers.

        Returns
        -------
        self : object
        """
        return self

    def _set_or_check_count(self, count: int, what: str, *, reset: bool) -> None:
        if reset:
            self.n_features_in_ = count
        elif count != self.n_features_in_:
            raise ValueError(
                f"X has {count} {what}, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} {what} as input"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
