"""What is decided, shown: the cost and the constraints as formulas, and a few rows with their decisions."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhedge._support.text import with_unit
from polyhedge.app.report.blocks import Block, Code, Text
from polyhedge.app.report.held_out import HeldOut
from polyhedge.app.report.tables import Cell, Column, Table
from polyhedge.app.tables import take_parameters
from polyhedge.data import take_rows
from polyhedge.estimator import RobustDecider
from polyhedge.problems.written import formulas_by_name, units_text
from polyhedge.summary import chosen_predictor, held_in_words

__all__ = ["decided_rows", "formulas", "predictor_name"]

# What fits the width of a page; the table says that there are more.
_ROWS, _FEATURES, _DECISIONS = 5, 4, 6


def formulas(decider: RobustDecider) -> list[Block]:
    """The cost, what a decision must satisfy and what is known of outcomes, in the names of both."""
    cost, limits, known = formulas_by_name(decider.problem_)
    lines = [
        f"cost        {cost}",
        *(f"subject to  {limit}" for limit in limits),
        *(f"known       {fact}" for fact in known),
    ]
    units = units_text(decider.problem_)
    said = f"Units: {units}; others are those of the data." if units else "All is in the units of the data."
    return [
        Text(f"{said} The formulas are:"),
        Code("\n".join(lines)),
    ]


def decided_rows(decider: RobustDecider, held_out: HeldOut) -> list[Block]:
    """The first held-out rows: what was known, what is decided, what it costs at most, what came."""
    n = min(_ROWS, len(held_out.Y))
    X = take_rows(held_out.X, np.arange(n))
    values = take_parameters(held_out.parameters, np.arange(n))
    own = None if held_out.labels is None else held_out.labels[:n]
    decisions = decider.model_.decide(X, values, labels=own)
    names = [str(name) for name in getattr(X, "columns", ())][:_FEATURES]
    inputs = {name: value for name, value in list(values.items())[:_FEATURES] if value.ndim == 1}
    decided, units = list(decider.problem_.decision_names)[:_DECISIONS], decider.problem_.units or {}
    columns = [
        Column("row"),
        *(Column(name, "known") for name in names),
        *(Column(with_unit(name, units.get(name)), "known") for name in inputs),
        *(Column(with_unit(name, units.get(name)), "decided") for name in decided),
        Column(with_unit("costs at most", units.get("cost")), "promised"),
        Column(with_unit("cost that came", units.get("cost")), "observed"),
    ]
    labels = list(X.index) if hasattr(X, "index") else list(range(n))
    z = decisions.z.reshape(n, -1)
    rows = [
        [
            Cell(str(labels[i])),
            *(_cell(X[name].iloc[i]) for name in names),
            *(_cell(float(value[i])) for value in inputs.values()),
            *(_cell(float(value)) for value in z[i, : len(decided)]),
            _cell(float(decisions.cost_bound[i])),
            _cell(float(held_out.rows.realised[i])),
        ]
        for i in range(n)
    ]
    more = len(decider.problem_.decision_names) - len(decided)
    note = f"The first {n} held-out rows. Each bound is {held_in_words(decider.alpha_)}." + (
        f" {more} more entries of the decision are not shown." if more else ""
    )
    return [Table("Decisions of some rows", columns, rows, note, sortable=False)]


def predictor_name(decider: RobustDecider) -> str:
    """What predicts: how it was chosen, or the class of the model at the end of a pipeline."""
    chosen = chosen_predictor(decider.model_)
    if chosen:
        return chosen
    given = decider.settings_.get("predictor", "None")
    if given in ("None", "'precomputed'"):
        return "given with the rows" if given != "None" else "ridge regression on simple nonlinear features"
    model: Any = getattr(decider.predictor_, "model", None)
    while hasattr(model, "steps") or hasattr(model, "estimator"):
        model = model.steps[-1][1] if hasattr(model, "steps") else model.estimator
    return type(model).__name__ if model is not None else given.partition("(")[0].removeprefix("<").partition(" ")[0]


def _cell(value: Any) -> Cell:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return Cell(f"{value:.4g}", float(value)) if number else Cell(str(value))
