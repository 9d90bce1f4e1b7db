"""The predictors that `fit` makes by their names: recipes, which scikit-learn fits and which then are plain arrays.

A model file holds the recipe and the arrays, and reading it makes nothing of anybody's code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV
from sklearn.utils.validation import check_array

from polyhedge._support.stored import stored
from polyhedge._support.validation import Array, as_finite
from polyhedge.predictors import PREDICTORS
from polyhedge.predictors.columns import Encoding, Schema, center_and_scale
from polyhedge.predictors.trees import Trees, joined


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


@stored("standardisation")
@dataclass(frozen=True, eq=False)
class Standardisation:
    """$(x - m) / s$ with m = `mean` (p,) and s = `scale` (p,)."""

    mean: Array
    scale: Array

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.mean.shape != self.scale.shape or not (self.scale > 0).all():
            raise ValueError("A standardisation must have a mean and a positive scale for each column.")

    def __call__(self, X: Array) -> Array:
        """The standardised rows (N, p)."""
        return np.asarray((X - self.mean) / self.scale)


def smooth_features(X: Array) -> Array:
    """Each column of X (N, p), its square and its sine: (N, 3 p)."""
    return np.hstack([X, X**2, np.sin(X)])


@stored("linear model")
@dataclass(frozen=True, eq=False)
class LinearModel:
    r"""$B\,\phi(x) + b$ with B = `coef` (d, m) and b = `intercept` (d,); $\phi$: `smooth_features` or identity."""

    coef: Array
    intercept: Array
    is_smooth: bool = False

    def __post_init__(self) -> None:
        if self.coef.ndim != 2 or self.intercept.shape != (len(self.coef),):
            raise ValueError("A linear model must have a row of coefficients and an intercept for each outcome.")

    def __call__(self, X: Array) -> Array:
        """The values (N, d)."""
        return np.asarray((smooth_features(X) if self.is_smooth else X) @ self.coef.T + self.intercept)


@stored("tree ensemble")
@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    r"""$b + \lambda \sum_t T_t(x)$ with b = `base` (d,) and $\lambda$ = `factor`; x in single precision."""

    trees: Trees
    base: Array
    factor: float

    def __post_init__(self) -> None:
        if self.base.shape != self.trees.value.shape[1:]:
            raise ValueError("A tree ensemble must have a base for each output of its trees.")

    def __call__(self, X: Array) -> Array:
        """The values (N, d)."""
        if X.shape[1] < self.trees.n_features:
            raise ValueError(f"Trees ask for {self.trees.n_features} columns, got {X.shape[1]}.")
        return self.base + self.factor * self.trees.sums(np.asarray(X, dtype=np.float32))


@stored("array predictor")
@dataclass(frozen=True, eq=False)
class ArrayPredictor:
    """A fitted predictor made of arrays.

    Attributes
    ----------
    reads : how rows become a matrix: an `Encoding` of raw columns, a standardisation of numbers, or as they are.
    models : functions of that matrix, each with some of the outcomes.
    n_features_in_ : columns of X.
    names : names of the columns of X; none where it was fitted on an array.

    Examples
    --------
    >>> ArrayPredictor(None, (LinearModel(np.array([[2.0]]), np.ones(1)),), 1).predict([[3.0]])
    array([[7.]])
    """

    reads: Encoding | Standardisation | None
    models: tuple[LinearModel | TreeEnsemble, ...] = field(repr=False)
    n_features_in_: int
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.models or (self.names and len(self.names) != self.n_features_in_):
            raise ValueError("A predictor must have a model, and a name for each of its columns or none.")

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns of X, as an array; an AttributeError where they have none."""
        if not self.names:
            raise AttributeError("This predictor was fitted on columns without names.")
        return np.array(self.names, dtype=object)

    def example(self) -> Any:
        """A row that it takes: zeros, by name where columns have names."""
        zeros = np.zeros((1, self.n_features_in_))
        if not self.names:
            return zeros
        import pandas as pd

        return pd.DataFrame(zeros, columns=list(self.names))

    def predict(self, X: Any) -> Array:
        """Predictions (N, d)."""
        if isinstance(self.reads, Encoding):
            matrix = self.reads(X)
        else:
            matrix = np.asarray(X[list(self.names)] if self.names and hasattr(X, "columns") else X, dtype=np.float64)
            if matrix.ndim != 2:
                raise ValueError(f"Expected 2D array of rows and columns, got the shape {matrix.shape}.")
            if matrix.shape[1] != self.n_features_in_:
                expected = f"ArrayPredictor is expecting {self.n_features_in_} features as input"
                raise ValueError(f"X has {matrix.shape[1]} features, but {expected}.")
            matrix = matrix if self.reads is None else self.reads(matrix)
        return np.hstack([model(matrix) for model in self.models])


@stored("recipe")
@dataclass(frozen=True)
class Recipe:
    """A predictor by its name, not fitted.

    Parameters
    ----------
    name : {"smooth-ridge", "ridge", "forest", "boosting", "linear"}
        "smooth-ridge" is a ridge regression on every column, its square and its sine.
    schema : the columns of a raw frame; None for numbers.
    seed : of the models that draw.

    Notes
    -----
    Gaps in raw columns are filled with the median, and a column says where they were. Categories that the training
    rows hold rarely share one code. Ridge regressions see z-scores.

    Examples
    --------
    >>> X = np.arange(4.0)[:, None]
    >>> Recipe("linear").fit(X, 2 * X).predict([[10.0]]).round(9)
    array([[20.]])
    """

    name: str
    schema: Schema | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.name not in PREDICTORS:
            raise ValueError(f"The predictor must be one of {', '.join(PREDICTORS)}, got {self.name!r}.")

    @property
    def takes_nan(self) -> bool:
        """Whether rows may have missing numbers."""
        return self.schema is not None

    def fit(self, X: Any, y: ArrayLike, sample_weight: Array | None = None) -> ArrayPredictor:
        """The predictor of the outcomes `y` (n, d) of the rows `X`; a row of `sample_weight` 2 counts as two rows."""
        reads: Encoding | Standardisation | None = None
        names = tuple(X.columns) if hasattr(X, "columns") and all(isinstance(c, str) for c in X.columns) else ()
        if self.schema is not None:
            reads, n_features = Encoding.of(X, self.schema), len(self.schema.features)
            matrix = reads(X)
        else:
            matrix = check_array(X, dtype=np.float64)
            n_features = matrix.shape[1]
            if self.name in ("ridge", "smooth-ridge"):
                reads = Standardisation(*center_and_scale(matrix))
                matrix = reads(matrix)
        Y = np.reshape(y, (len(matrix), -1))
        return ArrayPredictor(reads, self._models(matrix, Y, sample_weight), n_features, names)

    def _models(self, matrix: Array, Y: Array, weights: Array | None) -> tuple[LinearModel | TreeEnsemble, ...]:
        if self.name in ("smooth-ridge", "ridge", "linear"):
            is_smooth = self.name == "smooth-ridge"
            # From hardly any shrinkage to nearly all, a step of ten each: features are standardised.
            ridge = RidgeCV(alphas=(0.01, 0.1, 1.0, 10.0, 100.0, 1000.0))
            model = {"smooth-ridge": Ridge(), "ridge": ridge, "linear": LinearRegression()}[self.name]
            model.fit(smooth_features(matrix) if is_smooth else matrix, Y, weights)
            return (LinearModel(np.reshape(model.coef_, (Y.shape[1], -1)), np.ravel(model.intercept_), is_smooth),)
        if self.name == "forest":
            forest = RandomForestRegressor(min_samples_leaf=2, random_state=self.seed)
            forest.fit(matrix, Y[:, 0] if Y.shape[1] == 1 else Y, weights)
            trees = Trees(**joined([each.tree_ for each in forest.estimators_]))
            return (TreeEnsemble(trees, np.zeros(Y.shape[1]), 1 / trees.n_trees),)
        ensembles = []
        for outcome in Y.T:
            boosted = GradientBoostingRegressor(subsample=0.8, random_state=self.seed).fit(matrix, outcome, weights)
            trees = Trees(**joined([each.tree_ for each in boosted.estimators_.ravel()]))
            ensembles.append(
                TreeEnsemble(trees, np.ravel(boosted.init_.constant_).astype(float), boosted.learning_rate)
            )
        return tuple(ensembles)
