"""Rows that are near-copies of each other: the radius counts groups instead of rows."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import ceil, lcm
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge.calibration.rank import exact, minimum_samples


def grouped_radius(scores: ArrayLike, groups: ArrayLike, alpha: float) -> float:
    r"""Conformal radius where rows come in groups, for a new row of a new group.

    .. math:: \inf\Big\{r : \sum_{g=1}^{G} \frac{\#\{i \in g : s_i \le r\}}{|g|} \ge (G + 1)(1 - \alpha)\Big\}

    Rows of one group may be as alike as they please; only the G groups have to be exchangeable. With one row in
    each group this is `conformal_radius`.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Scores of the calibration split only.
    groups : array-like of shape (n,)
        Labels of the groups. No group may also have rows in another split.
    alpha : float
        Miscoverage level, strictly between 0 and 1; needs at least ``minimum_samples(alpha)`` groups.

    References
    ----------
    .. [1] Y. Lee, R. F. Barber and R. Willett, "Distribution-free inference with hierarchical data", 2023.

    Examples
    --------
    >>> grouped_radius([0.1, 0.1, 0.3, 0.5], ["a", "a", "b", "c"], alpha=0.5)
    0.3
    """
    scores = np.asarray(scores, dtype=np.float64)
    check_labels(np.asarray(groups))
    labels, group_of, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    if scores.ndim != 1 or group_of.shape != scores.shape:
        raise ValueError(f"groups must have one label for each score, got {group_of.shape} and {scores.shape}.")
    n_groups = check_groups(labels, alpha)
    order = np.argsort(scores, kind="stable")
    # Whole numbers, by a common multiple of the sizes: sums of fractions would carry rounding errors.
    whole = lcm(*sizes.tolist())
    covered = list(accumulate(whole // int(size) for size in sizes[group_of[order]]))
    wanted = ceil((n_groups + 1) * (1 - exact(alpha)) * whole)
    radius = float(scores[order][bisect_left(covered, wanted)])
    if not np.isfinite(radius):
        raise ValueError(f"The conformal radius would be {radius}. Check the scores or raise alpha.")
    return radius


def check_groups(groups: ArrayLike, alpha: float) -> int:
    """Number of groups that the labels `groups` name, if a radius at the level `alpha` can be had from so many."""
    n_groups = len(check_labels(np.asarray(groups)))
    if n_groups < minimum_samples(alpha):
        raise ValueError(
            f"alpha={float(alpha)} needs at least {minimum_samples(alpha)} calibration groups, got {n_groups}: rows of "
            "one group count as one. Raise alpha or the calibration share, or bring more groups."
        )
    return n_groups


def check_labels(labels: Any) -> Any:
    """The distinct labels; an error where a row has none, or where they are of several kinds.

    Examples
    --------
    >>> check_labels(np.array([2, 1, 2])).tolist()
    [1, 2]
    """
    from pandas import isna

    missing = isna(labels)
    if missing.any():
        raise ValueError(
            f"groups must have a label for each row, but {missing.sum()} row(s) have none, the first is row "
            f"{int(np.flatnonzero(missing)[0])}. Give rows without a group a label of their own."
        )
    try:
        return np.unique(labels)
    except TypeError as error:
        raise ValueError(
            f"groups must be labels of one kind, such as texts or numbers, got a mix: {error}. Give rows without a "
            "group a label of their own."
        ) from error
