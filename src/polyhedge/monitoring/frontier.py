r"""Miscoverage and mean cost along caution or level, with estimates that are valid.

W. Zhou and S. Zhu, "Calibrating decision robustness via inverse conformal risk control", 2025 (arXiv 2510.07750).
Each decider is fixed before its rows are seen. If m of n fresh outcomes miss, $P\{\text{miss}\} \le E[(m+1)/(n+1)]$,
because the new row misses like any other. With costs of at most G the same holds of $(\sum_i g_i + G) / (n + 1)$.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from polyhedge.calibration.mean_cost import check_numbers, mean_bound


def certified_frontier(
    deciders: Mapping[Any, Any], X: Any, Y: Any, *, largest: float | None = None, delta: float = 0.05, **more: Any
) -> Any:
    """For each decider the mean bound, miscoverage and mean cost on the same fresh rows (pandas).

    `miscoverage` and `cost` are at least the truth in the mean over fresh rows, for a decider that is named beforehand.
    `miscoverage_at_most` and `cost_at_most` are at least the truth for all deciders at once with probability at least
    1 - delta: choose by these.

    Parameters
    ----------
    deciders : fitted deciders by a name, such as their caution or alpha.
    X, Y : rows that had no part in any of them, independent of each other.
    largest : the largest cost that is possible; None for a mean cost without a promise.
    delta : probability that any of the figures "at most" lies below the truth.
    more : parameters and labels of the rows, as in `RobustDecider.decide`.

    Examples
    --------
    >>> import polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(500, rng=np.random.default_rng(0))
    >>> problem, box = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
    >>> decider = ph.RobustDecider(problem, learner=box, random_state=0).fit(X[:300], Y[:300])
    >>> frontier = ph.certified_frontier({alpha: decider.at(alpha) for alpha in (0.1, 0.3)}, X[300:], Y[300:])
    >>> frontier.columns.tolist()
    ['bound', 'miscoverage', 'miscoverage_at_most', 'cost']
    """
    if not isinstance(deciders, Mapping) or not deciders:
        raise ValueError("certified_frontier needs a dictionary with at least one fitted decider, by a name.")
    check_numbers(largest, delta=delta)
    share, found = delta / (len(deciders) * (1 if largest is None else 2)), {}
    for name, decider in deciders.items():
        measured = decider.evaluate(X, Y, **more).rows  # warns of rows that the decider has seen
        n, missed, costs = len(measured.held), int((~measured.promise_held).sum()), measured.realised
        if not measured.decided.all() or not np.isfinite(measured.cost_bound).all():
            raise ValueError(f"Every row must have a decision with a bound, and {name!r} has rows without one.")
        most = float(stats.beta.ppf(1 - share, missed + 1, n - missed)) if missed < n else 1.0
        at = {"bound": measured.cost_bound.mean(), "miscoverage": (missed + 1) / (n + 1), "miscoverage_at_most": most}
        at["cost"] = costs.mean() if largest is None else (costs.sum() + largest) / (n + 1)
        if largest is not None:
            if not (costs <= largest).all():
                raise ValueError(f"largest must be at least every cost, got {largest:g} and a cost of {costs.max():g}.")
            at["cost_at_most"] = mean_bound(costs[np.random.default_rng(0).permutation(n)], float(largest), share)
        found[name] = at
    return pd.DataFrame.from_dict(found, orient="index")
