"""Predictors: any regressor, raw columns of a table, and the automatic choice among a few models."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.predictors.recipes import FeatureRidge, all_features, paper_features
    from polyhedge.predictors.regressor import Predictor, as_predictor, out_of_fold, takes_nan
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

PREDICTORS = ("smooth-ridge", "ridge", "forest", "boosting", "linear")
"""Predictors that a name can ask for."""

__all__ = [
    "PREDICTORS",
    "FeatureRidge",
    "Predictor",
    "all_features",
    "as_predictor",
    "out_of_fold",
    "paper_features",
    "takes_nan",
]
