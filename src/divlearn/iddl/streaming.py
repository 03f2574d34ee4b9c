"""What the IDDL estimators that learn from streams share."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray
from divlearn.engines import Engine
from divlearn.iddl.base import IDDLBase
from divlearn.iddl.learning import Learned
from divlearn.iddl.online import Lesson, Online
from divlearn.iddl.training import Task
from divlearn.labelled import Labelled
from divlearn.targets import check_labels, class_factors, find_classes, join_classes
from divlearn.threads import limit_blas
from divlearn.weights import check_weights

__all__ = ["StreamingBase"]


class StreamingBase(IDDLBase):
    """An IDDL estimator with `partial_fit`, which it has to define."""

    _online: Online | None = None  # where a stream stands; None once `fit` was called

    def _partial_fit(
        self, X: RealArray, targets: RealArray, weights: RealArray, loss: str,
        codes: NDArray[np.intp] | None = None,
    ) -> Lesson:  # fmt: skip
        """Learn from a batch.

        Parameters
        ----------
        X : ndarray, shape (n_matrices, d, d)
        targets : ndarray, shape (n_matrices, n_outputs)
        weights : ndarray, shape (n_matrices,)
        loss : str
            What ``loss="auto"`` stands for.
        codes : ndarray of int, shape (n_matrices,), optional
            Indices of classes, of which there are as many as outputs.
        """
        self._check_parameters()
        if self.head not in ("auto", "linear"):
            raise ValueError(f'head={self.head!r} must be "auto" or "linear" for partial_fit')
        started = time.perf_counter()
        weight = float(weights.sum())
        with limit_blas(1):
            engine = self._engine()
            task = Task(X, engine.prepare(X), targets, weights / weight)
            online = self._online or self._open(engine, task, weight, loss, codes)
            lesson = online.learn(engine, task, weight)
        self._note(lesson, time.perf_counter() - started)
        return lesson

    def _check_batch(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None,
        sample_weight: ArrayLike | None, class_weight: Any,
    ) -> Labelled:  # fmt: skip
        """Check a batch of a stream of classes. See `check_labelled`, which wants two of them."""
        if isinstance(class_weight, str):
            raise ValueError(
                f"class_weight={class_weight!r} is not known before all data is, must be a dict or "
                "None for partial_fit"
            )
        matrices = self._check_matrices(X, reset=not hasattr(self, "models_"))
        labels = check_labels(y, len(matrices))
        known = self._all_classes(classes)
        strange = np.setdiff1d(join_classes(known, find_classes(labels)), known)
        if len(strange):
            raise ValueError(
                f"y holds {strange[0]!s}, which is not one of classes={known}; pass all classes in "
                "the first call"
            )
        codes = np.searchsorted(known, labels)
        weights = check_weights(sample_weight, len(matrices))
        # By class, not by label: a batch may lack a class that is named.
        weights = weights * class_factors(class_weight, known, np.ones(len(known)))[codes]
        kept = np.flatnonzero(weights)
        if not len(kept):
            raise ValueError("all weights of the batch are 0, one must be > 0; leave the batch out")
        return Labelled(matrices[kept], codes[kept], known, weights[kept], kept, labels)

    def _all_classes(self, classes: ArrayLike | None) -> NDArray[Any]:
        known: NDArray[Any] | None = getattr(self, "classes_", None)
        if classes is None:
            if known is None:
                raise ValueError("classes must be passed on the first call to partial_fit")
            return known
        given: NDArray[Any] = np.unique(np.asarray(classes))
        if known is not None and not np.array_equal(known, given):
            raise ValueError(f"classes={given} must be {known}, as before")
        if len(given) < 2:
            raise ValueError(
                f"classes={given} is {len(given)} class, must be >= 2; pass all there will be"
            )
        return given

    def _open(
        self, engine: Engine, task: Task, weight: float, loss: str, codes: NDArray[np.intp] | None
    ) -> Online:
        """Begin a stream: from a model where there is one, else from the batch."""
        seed = self._seed()
        recipe = self._recipe(loss if self.loss == "auto" else self.loss, seed)
        if not hasattr(self, "models_"):
            n_groups = 1 if codes is None else task.targets.shape[1]
            # How many matrices are to come is not known, nor how many atoms are too many.
            n_atoms = self._count_atoms(sys.maxsize, n_groups)
            start = self._start(task.X, codes, n_atoms, seed)
            return Online.start(engine, task, start, recipe, weight)
        model = self.models_[0]
        start = self._continue(task.X, model)
        linear = getattr(self, "head_", None) == "linear"
        if not linear or start.variant.alpha_index.shape != model.alpha.shape:
            return Online.start(engine, task, start, recipe, weight)
        seen = self.n_samples_seen_
        return Online.resume(
            engine, task, model, start.variant, self.recipe_, seen, seen * weight / len(task.X)
        )

    def _note(self, lesson: Lesson, seconds: float) -> None:
        """Take over what a batch has taught."""
        online = lesson.online
        model = online.model()
        self.recipe_, self.head_, self.models_ = online.recipe, "linear", [model]
        self.n_iter_, self.message_ = online.n_batches, lesson.message
        self.n_features_in_, self.n_samples_seen_ = model.atoms.shape[-1], online.count
        before = None if self._online is None else self.history_
        pairs = 2 * len(lesson.rows) * len(model.atoms)
        row: dict[str, Any] = {
            "objective": lesson.loss, "gradient_norm": lesson.gradient_norm, "block": "batch",
            "alpha": model.alpha, "beta": model.beta,
            "seconds": seconds + (before["seconds"][-1] if before else 0),
            "eigenproblems": pairs + (before["eigenproblems"][-1] if before else 0),
        }  # fmt: skip
        self.history_ = {
            name: np.concatenate([before[name], [value]]) if before else np.array([value])
            for name, value in row.items()
        }
        self._online = online
        self._tell(1, f"{lesson.message}; objective {lesson.loss:.4g} before")

    def _keep(self, learned: Learned) -> None:
        super()._keep(learned)
        self._online = None  # a stream after a fit is another one
