"""The pictures of a model's page; each is left out with a line that says why where it cannot be drawn."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.app.report.page import Block, Drawing, Figures, Missing, Text, as_svg, frame_table, settings_for_pages
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import RowMeasures
from polyhedge.plots import bounds_and_costs, cost_curve, cost_directions, residual_set, sets_over_residuals
from polyhedge.plots.curves import draw_cost_curve
from polyhedge.plots.sets import most_uncertain, unit_of

# One row of pictures.
_MOST_PAIRS = 3


def draw(
    paint: Callable[..., Any], caption: str, size: tuple[float, float] = (9.0, 4.2), n_panels: int = 1
) -> list[Block]:
    """A picture as a block; a line says what is missing where matplotlib is not there.

    The legend is moved below the picture: inside, it would hide data on a small screen. `paint` is called with the
    axes of `n_panels` panels, one above the other.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return [
            Missing(f"A picture is left out ({caption}): matplotlib is not installed.", "pip install 'polyhedge[plot]'")
        ]
    from matplotlib.figure import Figure

    with settings_for_pages():
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(n_panels, 1, sharex=True, squeeze=False)[:, 0]
        paint(*panels)
        handles, labels = panels[0].get_legend_handles_labels()
        legend = panels[0].get_legend()
        if legend is not None:
            legend.remove()
        if handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
        return [Drawing(as_svg(figure), caption)]


def set_pictures(decider: RobustDecider, X: Any, Y: Array, parameters: Mapping[Any, Any] | None = None) -> list[Block]:
    """The set over held-out residuals; for more than two outcomes its shadow on the most uncertain pairs."""
    over = "" if decider.spread_ is None else " and divided by its predicted spread"
    if decider.problem_.n_outcomes <= 2:
        caption = (
            f"The set around a prediction and {len(Y)} held-out outcomes, each less its prediction{over}. Arrows show "
            "which way outcomes cost more: there the set is tight. It may be wide open where outcomes cannot hurt."
        )
        return draw(lambda ax: residual_set(decider, X, Y, parameters=parameters, ax=ax), caption, (9.0, 5.4))
    residuals, names = decider.residuals(X, Y), decider.problem_.outcome_names
    chosen = most_uncertain(residuals, Y, 3)
    sets, directions = {"the set": (decider.set_, decider.model_.set_radius)}, cost_directions(decider, X, parameters)
    pictures: list[Block] = []
    for pair in list(combinations(chosen, 2))[:_MOST_PAIRS]:
        pictures += draw(
            lambda ax, pair=pair: sets_over_residuals(
                sets, residuals, pair=pair, outcome_names=names, directions=directions, unit=unit_of(decider), ax=ax
            ),
            f"The shadow of the set on {names[pair[0]]} and {names[pair[1]]}, over held-out residuals{over}.",
            (5.0, 4.6),
        )
    return [Figures(pictures)]


def bound_picture(rows: RowMeasures) -> list[Block]:
    """Bounds against realised costs: dots above the line cost more than promised."""
    finite = np.isfinite(rows.cost_bound) & np.isfinite(rows.realised)
    if finite.sum() < 2:
        return []
    caption = (
        f"Each dot is a held-out row; {int((~rows.held[finite]).sum())} of {finite.sum()} cost more than their bound."
    )
    return draw(lambda ax: bounds_and_costs(rows, ax), caption)


def curve_blocks(
    decider: RobustDecider, X: Any, Y: Array, parameters: Mapping[Any, Any] | None = None, labels: Any = None
) -> list[Block]:
    """Mean bound and mean realised cost at each level, as a picture and as a table."""
    import pandas as pd

    try:
        curve = cost_curve(decider, X, Y, parameters=parameters, labels=labels)
    except ValueError as error:
        return [Text(f"No curve: {error}")]
    family = decider.model_.family
    stays = "set" if family.sets is not None else "policy" if family.guarantee == "cost" else "regions"
    words = f"The {stays} is as fitted, and its size is calibrated on the held-out rows for each level."
    if curve.is_fixed:
        words += (
            " The decisions do not depend on the level, and so their mean realised cost does not either. What a higher "
            "level raises is the bound: the amount that has to be set aside."
        )
    caption = "Mean bound and mean realised cost by level. Diamonds are this model, which other rows calibrated."
    frame = pd.DataFrame(
        {
            "level promised": [f"{100 * (1 - alpha):.4g} %" for alpha in curve.alphas],
            "mean bound": curve.cost_bound,
            "mean realised cost": curve.realised,
        }
    )
    return [
        Text(words),
        *draw(lambda ax: draw_cost_curve(curve, decider.alpha_, ax), caption),
        frame_table("Bound and realised cost by level", frame, sortable=False),
    ]
