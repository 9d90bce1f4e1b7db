"""Weights of rows, for the predictor only: how much a row counts when the predictor is fitted."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from polyhedge._support.validation import Array, as_finite

__all__ = ["check_weights", "weight_argument"]


def check_weights(weights: ArrayLike | None, n: int) -> Array | None:
    """The weights as an array (n,); None where all rows count the same."""
    if weights is None:
        return None
    numbers = as_finite(weights, "sample_weight", ndim=1)
    if len(numbers) != n or (numbers < 0).any() or not numbers.any():
        raise ValueError(
            f"sample_weight must hold {n} numbers of at least zero, one for each row of X and not all zero, got "
            f"{len(numbers)} numbers from {min(numbers, default=0):g} to {max(numbers, default=0):g}."
        )
    return numbers


def weight_argument(predictor: Any, weights: Array) -> dict[str, Any]:
    """What `fit` of a predictor calls these weights; a pipeline hands them to its last step.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> list(weight_argument(make_pipeline(Ridge()), np.ones(3)))
    ['ridge__sample_weight']
    """
    if isinstance(predictor, Pipeline):
        name, last = predictor.steps[-1]
        return {f"{name}__{key}": value for key, value in weight_argument(last, weights).items()}
    inner = predictor
    while hasattr(inner, "estimator") and has_fit_parameter(inner, "sample_weight"):
        inner = inner.estimator  # one that fits another takes weights only where this one does
    if not has_fit_parameter(inner, "sample_weight"):
        raise ValueError(
            f"sample_weight is for the predictor, but {type(inner).__name__} takes no weights. Leave them out, or use "
            "a predictor whose fit takes sample_weight."
        )
    return {"sample_weight": weights}
