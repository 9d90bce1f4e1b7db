"""Predictors: any regressor, raw columns of a table, and the automatic choice among a few models."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.predictors.regressor import (
        Predictor as Predictor,
        as_predictor as as_predictor,
        out_of_fold as out_of_fold,
        takes_nan as takes_nan,
    )
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)

PREDICTORS = ("smooth-ridge", "ridge", "forest", "boosting", "linear")
"""Predictors that a name can ask for."""
