"""The paper's synthetic data: nonlinear means; anisotropic, heteroscedastic and heavy-tailed noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from polyhedge._support.validation import Array, as_finite, check_count, check_rng

__all__ = ["make_synthetic", "mixing_matrix", "noise_scale", "synthetic_mean"]


def make_synthetic(
    n_samples: int, *, rng: np.random.Generator, n_outcomes: int = 2, contamination: float = 0.06
) -> tuple[Array, Array]:
    """Draw independent samples ``Y = mu(X) + s(X) A xi + 0.4 B T`` with ``X ~ N(0, I)``.

    ``A`` is `mixing_matrix`, ``s`` is `noise_scale`, ``xi`` is standard normal, ``B`` is one Bernoulli(`contamination`)
    a row, and ``T`` holds independent Student-t draws with 3 degrees of freedom, one for each outcome.

    Parameters
    ----------
    n_samples : number of rows. The rows are not split: hand them to `split_rows`.
    rng : source of all draws, in the order X, xi, B, T.
    n_outcomes : number ``d`` of outcomes, at least 2; the covariates X have ``2 d`` columns.
    contamination : probability that a row is contaminated; 0 leaves Gaussian noise.

    Notes
    -----
    For ``d = 2`` the mean and the scale are those of the paper. It does not print ``A`` and the family of the
    contamination; the defaults reproduce the noise level (0.27, 0.15) and the correlation its tables imply.

    Examples
    --------
    >>> X, Y = make_synthetic(5, rng=np.random.default_rng(0))
    >>> X.shape, Y.shape
    ((5, 4), (5, 2))
    """
    n = check_count(n_samples, "n_samples", minimum=1)
    d = check_count(n_outcomes, "n_outcomes", minimum=2)
    X = check_rng(rng).standard_normal((n, 2 * d))
    gaussian = noise_scale(X)[:, None] * (rng.standard_normal((n, d)) @ mixing_matrix(d).T)
    contaminated = rng.random((n, 1)) < contamination
    heavy = 0.40 * rng.standard_t(3.0, (n, d))
    return X, synthetic_mean(X) + gaussian + np.where(contaminated, heavy, 0.0)


def synthetic_mean(X: ArrayLike) -> Array:
    """Conditional mean ``mu(X)`` of the outcomes, the predictor that knows the truth.

    Outcomes come in pairs, and pair ``p = 0, 1, ...`` reads the covariates from ``x_1 = X[:, 4 p]`` on::

        mu_1 =  0.75 x_1 + 0.35 sin(x_2) - 0.20 x_3
        mu_2 = -0.45 x_1 + 0.55 x_2 ** 2 + 0.30 x_4

    An odd number of outcomes ends with a ``mu_1`` whose covariates wrap around to the first columns. The mean
    uses no outcome, so it may see every split.

    Examples
    --------
    >>> synthetic_mean([[1.0, 0.0, 1.0, 1.0]])
    array([[ 0.55, -0.15]])
    """
    X = as_finite(X, "X", ndim=2)
    n_columns = X.shape[1]
    if n_columns < 4 or n_columns % 2:
        raise ValueError(f"X must have two columns for each of at least two outcomes, got {n_columns} column(s).")
    means = []
    for j in range(n_columns // 2):
        first = 4 * (j // 2)
        x1, x2, x3, x4 = (X[:, (first + i) % n_columns] for i in range(4))
        odd = 0.75 * x1 + 0.35 * np.sin(x2) - 0.20 * x3
        even = -0.45 * x1 + 0.55 * x2**2 + 0.30 * x4
        means.append(odd if j % 2 == 0 else even)
    return np.column_stack(means)


def noise_scale(X: ArrayLike) -> Array:
    """Factor ``s(X) = 0.80 + 0.45 * sigmoid(X_1)`` on the Gaussian noise of each row.

    Examples
    --------
    >>> noise_scale([[0.0, 3.0, 3.0, 3.0]])
    array([1.025])
    """
    return 0.80 + 0.45 * np.asarray(expit(as_finite(X, "X", ndim=2)[:, 0]), dtype=np.float64)


def mixing_matrix(n_outcomes: int = 2) -> Array:
    """Root ``A`` of the noise covariance: blocks ``[[0.26, 0.08], [0.08, 0.13]]`` and small cross terms.

    The entry 0.02 links the last outcome of a block and the first of the next. All other entries are 0, so the noise
    level of an outcome does not grow with `n_outcomes`. An odd number of outcomes ends with the single entry 0.26.

    Examples
    --------
    >>> mixing_matrix(3)
    array([[0.26, 0.08, 0.  ],
           [0.08, 0.13, 0.02],
           [0.  , 0.02, 0.26]])
    """
    d = check_count(n_outcomes, "n_outcomes", minimum=1)
    diagonal = np.where(np.arange(d) % 2 == 0, 0.26, 0.13)
    neighbours = np.where(np.arange(d - 1) % 2 == 0, 0.08, 0.02)
    return np.diag(diagonal) + np.diag(neighbours, 1) + np.diag(neighbours, -1)
