"""What a promise costs: the cost bound against the coverage that is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.tolerances import CANCELLATION
from polyhedge._support.validation import Array, check_alpha
from polyhedge.calibration import conformal_radius, minimum_samples
from polyhedge.data.splits import evenly_chosen
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import RowMeasures, estimate
from polyhedge.plots.style import BLUE, GREEN, GREY, ORANGE, RED, new_axes, tidy
from polyhedge.robust import decide_knowing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Denser where promises are usually made.
ALPHAS = (0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.075, 0.05, 0.025, 0.01)
# The mean of 400 rows is known to a twentieth of their spread, finer than the curve is drawn.
_MOST_ROWS = 400
# Each dot is a line in the code of a page.
_MOST_DOTS = 1500
_KEPT: dict[str, Any] = {"s": 11, "color": BLUE, "alpha": 0.6, "linewidths": 0, "label": "bound held"}
_BROKEN: dict[str, Any] = {"s": 22, "color": RED, "marker": "x", "linewidths": 1.1, "label": "bound broken"}


@dataclass(frozen=True, eq=False)
class CostCurve:
    """What each level would cost.

    Attributes
    ----------
    alphas, radii : (k,) levels and the radii that calibration on the given rows gives them.
    cost_bound : (k,) mean worst-case cost; infinite or NaN where some row has no decision.
    realised : (k,) mean cost of the same decisions at the outcomes that came.
    nominal : mean cost at these outcomes of deciding as if the predictions were true.
    oracle : mean cost had the outcomes been known.
    own_bound, own_realised : mean bound and mean cost of the decider as it is, with its own radius.
    """

    alphas: Array
    radii: Array
    cost_bound: Array
    realised: Array
    nominal: float
    oracle: float
    own_bound: float
    own_realised: float

    @property
    def is_fixed(self) -> bool:
        """Whether decisions cost the same at every level, as those of a policy do."""
        return bool(np.ptp(self.realised) <= CANCELLATION * np.abs(self.realised).max())


def cost_curve(
    decider: RobustDecider,
    X: Any,
    Y: ArrayLike,
    alphas: Sequence[float] = ALPHAS,
    *,
    parameters: Mapping[Any, Any] | None = None,
    labels: ArrayLike | None = None,
) -> CostCurve:
    """Mean cost bound and realised cost of a decider's shape, recalibrated on (X, Y) for each level.

    Costs are means over at most 400 of the rows, spread evenly.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X, Y : rows that were not used for training or learning.
    alphas : levels; those that need more rows than there are, are left out.
    parameters, labels : as in `RobustDecider.decide`.
    """
    model = decider.model_
    rows, problem = model.read(X, Y, parameters, labels), model.problem
    outcomes, values, placed = rows.Y, rows.parameters, model.place(rows)
    regions, own = placed.regions, placed.decide()
    scores = regions.scores(outcomes)
    # Rows without a bound or a decision of their own have no say in what the decider's own level costs.
    own_costs = float(estimate(own.cost_bound)), float(estimate(problem.evaluate(own.flat, outcomes, values)))
    kept = [check_alpha(a) for a in sorted(set(alphas), reverse=True) if len(scores) >= minimum_samples(a)]
    if not kept:
        raise ValueError(
            f"{len(scores)} rows are too few for every level in alphas={list(alphas)}: alpha={max(alphas)} needs at "
            f"least {minimum_samples(max(alphas))}. Bring more rows or a larger alpha."
        )
    radii = [conformal_radius(scores, alpha) for alpha in kept]
    chosen = evenly_chosen(len(scores), _MOST_ROWS)
    regions, outcomes = regions.take(chosen), outcomes[chosen]
    values = None if values is None else values[chosen]
    bounds, realised = [], []
    for radius in radii:
        decisions = regions.decide(np.full(len(chosen), radius))
        bounds.append(float(decisions.cost_bound.mean()))
        realised.append(float(problem.evaluate(decisions.flat, outcomes, values).mean()))
    trusting = decide_knowing(problem, regions.centers, values)[0]
    return CostCurve(
        np.array(kept),
        np.array(radii),
        np.array(bounds),
        np.array(realised),
        nominal=float(problem.evaluate(trusting, outcomes, values).mean()),
        oracle=float(decide_knowing(problem, outcomes, values)[1].mean()),
        own_bound=own_costs[0],
        own_realised=own_costs[1],
    )


def cost_coverage(
    decider: RobustDecider,
    X: Any,
    Y: ArrayLike,
    *,
    alphas: Sequence[float] = ALPHAS,
    parameters: Mapping[Any, Any] | None = None,
    labels: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what it would cost to promise more or less, with the decider's own level marked.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X, Y : rows that were not used for training or learning; each level's radius is calibrated on them.
    alphas : levels.
    parameters, labels : as in `RobustDecider.decide`.
    ax : matplotlib axes, new ones if None.

    Examples
    --------
    >>> import polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(200, rng=np.random.default_rng(0))
    >>> problem, learner = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
    >>> decider = ph.RobustDecider(problem, learner=learner, random_state=0).fit(X[:120], Y[:120])
    >>> curve = cost_curve(decider, X[120:], Y[120:], alphas=[0.3, 0.1])
    >>> bool(curve.cost_bound[0] < curve.cost_bound[1])  # less promised, less to pay
    True
    >>> cost_coverage(decider, X[120:], Y[120:], alphas=[0.3, 0.1]).get_ylabel()
    'cost'
    """
    curve = cost_curve(decider, X, Y, alphas, parameters=parameters, labels=labels)
    return draw_cost_curve(curve, decider.alpha_, new_axes(ax))


def bounds_and_costs(measures: RowMeasures, ax: Axes | None = None) -> Axes:
    """Draw the bound of each row against its realised cost: crosses above the line cost more than promised.

    Parameters
    ----------
    measures : of rows that were not used for fitting, from `RobustDecider.measure`.
    ax : matplotlib axes, new ones if None.
    """
    ax, is_shown = new_axes(ax), np.isfinite(measures.cost_bound) & np.isfinite(measures.realised)
    x, y, held = measures.cost_bound[is_shown], measures.realised[is_shown], measures.held[is_shown]
    if not len(x):
        raise ValueError("No row has both a finite bound and a realised cost, so that there is nothing to draw.")
    shown = evenly_chosen(len(x), _MOST_DOTS)
    for is_kept, style in ((held, _KEPT), (~held, _BROKEN)):
        dots = shown[is_kept[shown]]
        ax.scatter(x[dots], y[dots], **style)
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    ax.plot(ends, ends, color=GREY, linewidth=1.0, linestyle="--", label="cost equal to its bound")
    ax.set_xlabel("cost bound, known before the outcome")
    ax.set_ylabel("realised cost")
    ax.legend(loc="best", fontsize=9, framealpha=0.6)
    return tidy(ax)


def draw_cost_curve(curve: CostCurve, alpha: float, ax: Axes) -> Axes:
    """Draw a curve, and the decider's own level alpha."""
    promised, level = 100 * (1 - curve.alphas), 100 * (1 - alpha)
    same = ", the same at every level" if curve.is_fixed else ""
    ax.plot(promised, curve.cost_bound, color=BLUE, marker="o", markersize=5, label="mean bound, promised to hold")
    ax.plot(promised, curve.realised, color=GREEN, marker="s", markersize=4, ls="--", label=f"mean realised cost{same}")
    ax.axhline(curve.nominal, color=ORANGE, linestyle="-.", label="mean realised cost, trusting the prediction")
    ax.axhline(curve.oracle, color=GREY, linestyle=":", label="mean realised cost, knowing the outcome")
    ax.axvline(level, color=BLUE, alpha=0.2, linewidth=6, label="level of this decider")
    own = f"its own bound: {curve.own_bound:.4g}, realised {curve.own_realised:.4g}"
    ax.plot([level], [curve.own_bound], color=BLUE, marker="D", markersize=9, linestyle="none", label=own)
    ax.plot([level], [curve.own_realised], color=GREEN, marker="D", markersize=8, linestyle="none")
    ax.set_xlabel("level promised, 1 - alpha (%)")
    ax.set_ylabel("cost")
    ax.legend(loc="best", fontsize=9, framealpha=0.6)
    return tidy(ax)
