"""The paper's first figure: three sets of equal coverage over the loss."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge.calibration import conformal_radius
from polyhedge.learners import Samples, Scenario
from polyhedge.plots.outline import projection
from polyhedge.problems import DecisionProblem, simplex_linear
from polyhedge.robust import decide
from polyhedge.sets import Ball, Box, Shape
from polyhedge_study.files import save_figure
from polyhedge_study.inside import Array, check_alpha, replace_file

__all__ = ["Motivation", "OverLoss", "draw_motivation", "make_motivation", "write_motivation"]

_COLORS = {"l_inf box": "#5b6069", "l_2 ball": "#5b6069", "decision-aware polyhedron": "#b3261e"}
_LINES = {"l_inf box": "--", "l_2 ball": ":", "decision-aware polyhedron": "-"}


@dataclass(frozen=True)
class OverLoss:
    """One set: its share of the outcomes, its robust decision, that decision's worst-case cost and where it is met."""

    name: str
    coverage: float
    worst_case_cost: float
    decision: tuple[float, ...]
    worst_outcome: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Motivation:
    """Outcomes (n, 2) around one prediction, and three sets that hold the same number of them."""

    problem: DecisionProblem
    center: Array
    outcomes: Array
    shapes: tuple[tuple[Shape, float], ...]
    results: tuple[OverLoss, ...]


def make_motivation(alpha: float = 0.15, n: int = 400, seed: int = 0) -> Motivation:
    r"""Sets around one prediction for the loss $g(z, y) = z^\top y$ on the simplex; each covers its rank of n outcomes.

    The noise is correlated and skewed, so that the direction in which outcomes spread is not the one that hurts. The
    learned set is made for many predictions around the one that is drawn.

    Examples
    --------
    >>> motivation = make_motivation()
    >>> costs = [result.worst_case_cost for result in motivation.results]
    >>> costs[2] < min(costs[:2]), len({result.coverage for result in motivation.results})
    (True, 1)
    """
    check_alpha(alpha)
    rng = np.random.default_rng(seed)
    residuals = rng.standard_normal((n, 2)) @ np.array([[0.9, -0.5], [-0.1, 0.45]])
    residuals -= 0.35 * (rng.exponential(size=(n, 2)) - 1)
    center, problem = np.array([2.0, 2.0]), simplex_linear([0.0, 0.0])
    learned = Scenario().learn(Samples(residuals, center + rng.standard_normal((n, 2)), problem, alpha)).set
    shapes: dict[str, Shape] = {"l_inf box": Box(np.ones(2)), "l_2 ball": Ball(2), "decision-aware polyhedron": learned}
    sized = {name: (shape, conformal_radius(shape.scores(residuals), alpha)) for name, shape in shapes.items()}
    results = tuple(_over_loss(problem, center, residuals, name, *pair) for name, pair in sized.items())
    return Motivation(problem, center, center + residuals, tuple(sized.values()), results)


def _over_loss(
    problem: DecisionProblem, center: Array, residuals: Array, name: str, shape: Shape, radius: float
) -> OverLoss:
    decisions = decide(problem, shape, radius, center[None])
    return OverLoss(
        name=name,
        coverage=float(shape.contains(residuals, radius).mean()),
        worst_case_cost=float(decisions.cost_bound[0]),
        decision=tuple(float(value) for value in decisions.z[0]),
        worst_outcome=tuple(float(value) for value in decisions.worst_outcome[0]),
    )


def write_motivation(motivation: Motivation, path: Path) -> None:
    """The figure's numbers as JSON."""
    replace_file(path, (json.dumps([asdict(result) for result in motivation.results], indent=2) + "\n").encode())


def draw_motivation(motivation: Motivation, paths: Iterable[Path]) -> None:
    """The sets over the loss of the decision that the learned set leads to, with each set's worst outcome."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    ax = figure.add_subplot()
    low, high = _frame(motivation)
    _draw_loss(figure, ax, motivation.results[-1].decision, low, high)
    ax.scatter(
        motivation.outcomes[:, 0], motivation.outcomes[:, 1], s=7, color="black", alpha=0.35, linewidths=0, zorder=3
    )
    for (shape, radius), result in zip(motivation.shapes, motivation.results, strict=True):
        _draw_set(ax, motivation.center, shape, radius, result)
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    ax.set_aspect("equal")
    ax.set_xlabel("outcome 1")
    ax.set_ylabel("outcome 2")
    ax.set_title(f"Sets that hold the same {motivation.results[0].coverage:.0%} of the outcomes", fontsize=11)
    figure.legend(loc="outside lower center", fontsize=9, frameon=False)
    save_figure(figure, paths)


def _frame(motivation: Motivation) -> tuple[Array, Array]:
    """The outcomes and the two plain sets; the learned one may end far outside."""
    plain = motivation.shapes[:2]
    reach = max(float(shape.support(np.eye(2), radius).max()) for shape, radius in plain)
    low = np.minimum(motivation.outcomes.min(axis=0), motivation.center - reach)
    high = np.maximum(motivation.outcomes.max(axis=0), motivation.center + reach)
    margin = 0.04 * (high - low).max()
    return low - margin, high + margin


def _draw_loss(figure: Any, ax: Any, decision: Sequence[float], low: Array, high: Array) -> None:
    u1, u2 = np.meshgrid(np.linspace(low[0], high[0], 60), np.linspace(low[1], high[1], 60))
    loss = decision[0] * u1 + decision[1] * u2
    shades = ax.contourf(u1, u2, loss, levels=14, cmap="YlOrBr", alpha=0.55, zorder=0)
    figure.colorbar(shades, ax=ax, label=f"loss z'y of the learned decision z = ({decision[0]:.2f}, {decision[1]:.2f})")


def _draw_set(ax: Any, center: Array, shape: Shape, radius: float, result: OverLoss) -> None:
    from matplotlib.colors import to_rgba

    color = _COLORS[result.name]
    far = np.full(2, 99.0)
    ax.fill(
        *(center + projection(shape, radius, (0, 1), (-far, far))).T,
        facecolor=to_rgba(color, 0.12),
        edgecolor=color,
        linestyle=_LINES[result.name],
        linewidth=1.8,
        zorder=4,
        label=f"{result.name}: worst-case loss {result.worst_case_cost:.2f}",
    )
    ax.plot(*result.worst_outcome, marker="*", color=color, markersize=11, zorder=5, linestyle="none")
