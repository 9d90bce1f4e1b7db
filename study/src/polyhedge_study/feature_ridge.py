"""The predictor of the paper: ridge regression on nonlinear features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lstsq
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from polyhedge.predictors.recipes import check_weights
from polyhedge_study.inside import Array, as_finite


def paper_features(X: ArrayLike) -> Array:
    """Feature map of the paper, ``[1, x, x_1 ** 2, x_2 ** 2, sin(x_1), sin(x_2)]`` for each row x of X.

    Examples
    --------
    >>> paper_features([[2.0, 0.0, 5.0]])
    array([[1.        , 2.        , 0.        , 5.        , 4.        ,
            0.        , 0.90929743, 0.        ]])
    """
    X = as_finite(X, "X", ndim=2)
    if X.shape[1] < 2:
        raise ValueError(f'features="paper" needs at least 2 columns, got {X.shape[1]} feature(s). Use features="all".')
    first = X[:, :2]
    return np.hstack([np.ones((len(X), 1)), X, first**2, np.sin(first)])


def all_features(X: ArrayLike) -> Array:
    """Feature map ``[1, x, x ** 2, sin(x)]`` with every column of X squared and bent, for more outcomes than two.

    Examples
    --------
    >>> all_features([[2.0, 0.0]])
    array([[1.        , 2.        , 0.        , 4.        , 0.        ,
            0.90929743, 0.        ]])
    """
    X = as_finite(X, "X", ndim=2)
    return np.hstack([np.ones((len(X), 1)), X, X**2, np.sin(X)])


_FEATURES: dict[str, Callable[[ArrayLike], Array]] = {"paper": paper_features, "all": all_features}


class FeatureRidge(RegressorMixin, BaseEstimator):
    r"""Ridge regression on a fixed nonlinear feature map, the predictor of the paper.

    .. math:: \min_B \|Y - \Phi B\|_F^2 + \mathtt{penalty}\,\|B\|_F^2,
              \qquad (\Phi^\top\Phi + \mathtt{penalty}\, I)\, B = \Phi^\top Y

    where row i of :math:`\Phi` is the feature map at ``X[i]``. As printed, the constant is penalised like every
    feature, so predictions are drawn towards 0; ``fit_intercept=True`` leaves the constant free.

    Parameters
    ----------
    penalty : ridge penalty on the normal equations, not divided by the number of samples.
    features : "paper" for `paper_features` or "all" for `all_features`.
    fit_intercept : whether the constant is left without penalty, by centring features and outcomes.

    Attributes
    ----------
    coef_ : (n_outcomes, n_map_features), or (n_map_features,) for a one-dimensional target
        Coefficients ``B`` transposed, in the order of the feature map.
    n_features_in_ : number of columns of ``X``.

    Examples
    --------
    >>> from polyhedge.data import make_synthetic
    >>> X, Y = make_synthetic(1200, rng=np.random.default_rng(0))
    >>> model = FeatureRidge().fit(X, Y)
    >>> model.coef_.shape
    (2, 9)
    >>> np.allclose(model.coef_[1, [4, 6]], [0.30, 0.55], atol=0.05)  # x_4 and x_2 ** 2 in the true mean
    True
    """

    def __init__(self, penalty: float = 1e-3, features: str = "paper", fit_intercept: bool = False) -> None:
        self.penalty = penalty
        self.features = features
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the coefficients to `X` (n, p) and `y` (n, d) or (n,); a row of `sample_weight` 2 counts as two rows."""
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=np.float64)
        if not (np.isfinite(self.penalty) and self.penalty >= 0):
            raise ValueError(f"penalty must be a finite number of at least 0, got {self.penalty!r}.")
        phi, y = self._map(X), np.asarray(y, dtype=np.float64)
        given = check_weights(sample_weight, len(X))
        weights = np.ones(len(X)) if given is None else given
        middle, level = np.zeros(phi.shape[1]), np.zeros(y.shape[1:])
        if self.fit_intercept:
            middle, level = (np.average(part, axis=0, weights=weights) for part in (phi, y))
        # The stacked least-squares problem has the same solution without squaring the condition number.
        roots = np.sqrt(weights)
        rows = np.vstack([roots[:, None] * (phi - middle), np.sqrt(self.penalty) * np.eye(phi.shape[1])])
        targets = np.concatenate([(roots * (y - level).T).T, np.zeros((phi.shape[1], *y.shape[1:]))])
        coef = np.asarray(lstsq(rows, targets)[0])
        if self.fit_intercept:  # centred, the constant was a column of zeros
            coef[0] = level - middle[1:] @ coef[1:]
        self.coef_ = coef.T
        return self

    def predict(self, X: Any) -> Array:
        """Predict ``phi(X) @ coef_.T`` for the rows of any split; uses no outcome."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(self._map(X) @ self.coef_.T)

    def _map(self, X: Array) -> Array:
        if self.features not in _FEATURES:
            raise ValueError(f"features must be one of {sorted(_FEATURES)}, got {self.features!r}.")
        return _FEATURES[self.features](X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
