"""A fitted decider on one page, for readers who decide and do not calculate."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge import __version__
from polyhedge._support.frames import as_pandas
from polyhedge._support.text import with_unit
from polyhedge._support.versions import versions
from polyhedge.app.report.facets import facets_in_words, policy_in_words
from polyhedge.app.report.held_out import (
    HOW_TO_OBSERVE,
    changed_rows,
    decided_rows,
    has_set,
    in_short,
    observed_blocks,
    own_warnings,
    percent,
)
from polyhedge.app.report.page import Block, Code, Facts, Missing, Note, Page, Points, Section, Text, frame_table
from polyhedge.app.report.pictures import curve_blocks, set_pictures
from polyhedge.app.rows import Observed, TableRows, observed
from polyhedge.calibration.labels import as_values
from polyhedge.data.splits import evenly_chosen
from polyhedge.diagnostics import diagnostics_of_size, fresh_rows_diagnostic
from polyhedge.estimator import RobustDecider
from polyhedge.model import promise_of, summary_lines
from polyhedge.problems.layout import by_row, parameter_rows
from polyhedge.problems.written import formulas_by_name, units_text
from polyhedge.rows import Rows, n_rows_of

__all__ = ["ModelDetails", "model_report"]

_PACKAGES = ("polyhedge", "numpy", "scipy", "scikit-learn", "cvxpy", "highspy", "clarabel")
# Two lines of names.
_MOST_NAMES = 12
# Shares of 5 000 rows are known to about 0.01; more would take longer and show nothing else.
_MOST_ROWS = 5000


@dataclass(frozen=True)
class ModelDetails:
    """What a page says that the decider itself does not know.

    Attributes
    ----------
    title : of the page.
    warnings : what a reader must know before trusting the decisions.
    groups : labels of the rows that are looked at, where rows of one label are near-copies of each other.
    n_units : independent pieces of evidence that set the radius; the calibration rows if not given.
    facts : names and values for the section on how the model was made: the data file, its digest.
    commands : how to make the page again.
    """

    title: str = ""
    warnings: Sequence[str] = ()
    groups: Any = None
    n_units: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    commands: Sequence[str] = ()


def model_report(
    decider: RobustDecider,
    X: Any = None,
    Y: ArrayLike | None = None,
    details: ModelDetails | None = None,
    parameters: Mapping[Any, Any] | None = None,
    labels: ArrayLike | None = None,
) -> str:
    """The page of a fitted decider as HTML: one file that works offline.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X, Y : rows that were not used for fitting, optional
        Without them the page says what is promised, but not what was observed. Of more than 5 000 rows, 5 000 are
        looked at, spread evenly.
    details : what the decider itself does not know.
    parameters, labels : as in `RobustDecider.decide`.
    """
    details = ModelDetails() if details is None else details
    model = decider.model_
    warnings: list[str] = [*details.warnings]
    rows = seen = None
    if X is not None and Y is not None:
        rows = _rows(decider, X, Y, details.groups, parameters, labels)
        seen = observed(decider, rows, details.n_units, volume=False)
        warnings += [*fresh_rows_diagnostic(model, Rows(model.features(rows.X), rows.Y)), *own_warnings(seen)]
    warnings += [] if model.radii.is_grouped else diagnostics_of_size(model.radii)
    notes = [Note(text, warning=True) for text in dict.fromkeys(warnings)]
    curve: list[Block] = [_missing("The cost of other levels is measured on held-out rows")]
    if rows is not None:
        curve = curve_blocks(decider, rows.X, rows.Y, rows.parameters, rows.labels)
    sections = [
        Section("In short", [*in_short(decider, seen), *notes]),
        Section("What is decided", _decided(decider, rows, seen)),
        Section("What is promised, and what is not", [Points(promise_of(model))]),
        Section(
            "What was observed", [_missing("Nothing was observed")] if seen is None else observed_blocks(decider, seen)
        ),
        Section("What the bound is made of", _bounded(decider, rows)),
        Section("What a higher level would cost", curve),
        Section("How it was made", _made(decider, details)),
    ]
    title = details.title or f"Robust decisions: {decider.problem_.name}"
    lead = (
        f"Decisions whose cost stays below a stated bound in at least {percent(1 - decider.alpha_)} of cases, "
        "however good or bad the predictions are."
    )
    return Page(title, lead, sections, closing=f"Made by Polyhedge {__version__}. This page needs no network.").html()


def _missing(what: str) -> Missing:
    return Missing(f"{what}: no held-out rows were given.", HOW_TO_OBSERVE)


def _rows(decider: RobustDecider, X: Any, Y: Any, groups: Any, parameters: Any, labels: Any) -> TableRows:
    """The held-out rows, or an even choice where there are very many: the page should not take an hour."""
    problem, n, X = decider.problem_, n_rows_of(X), as_pandas(X)
    values = (
        by_row(problem.parameters, parameter_rows(problem.parameters, parameters, n, X)) if problem.parameters else {}
    )
    outcomes = decider.model_.outcomes(X, Y)  # by name, where there are names
    groups = None if groups is None else np.asarray(groups)
    labels = None if labels is None else as_values(labels)
    rows = TableRows(X, outcomes, np.arange(n), groups, None, values, labels, ())
    return rows.take(evenly_chosen(n, _MOST_ROWS)) if n > _MOST_ROWS else rows


def _decided(decider: RobustDecider, rows: TableRows | None, seen: Observed | None) -> list[Block]:
    problem = decider.problem_
    facts = {
        "Problem": problem.name,
        "Decided": _listed(problem.decision_names),
        "Unknown when deciding": _listed(problem.outcome_names),
        "Known when deciding": _listed([parameter.name for parameter in problem.parameters]),
    }
    cost, limits, known = formulas_by_name(problem)
    lines = [
        f"cost        {cost}",
        *(f"subject to  {limit}" for limit in limits),
        *(f"known       {fact}" for fact in known),
    ]
    units = units_text(problem)
    in_units = f"Units: {units}; others are those of the data." if units else "All is in the units of the data."
    rule = "A policy turns the prediction into a decision, and the bound is on what exactly this decision costs."
    if has_set(decider) or decider.model_.family.sets is not None:
        around = "a set around the prediction" if decider.model_.family.sets is not None else "its region"
        rule = f"The decision is the one whose cost is least in the worst outcome of {around}."
    return [
        Text(f"Each case comes with features from which the outcomes are predicted. {rule}"),
        Facts({name: value for name, value in facts.items() if value}),
        Text(f"{in_units} The formulas are:"),
        Code("\n".join(lines)),
        *([] if rows is None or seen is None else [decided_rows(decider, rows, seen), *changed_rows(decider, rows)]),
    ]


def _bounded(decider: RobustDecider, rows: TableRows | None) -> list[Block]:
    family = decider.model_.family
    if family.report is not None:  # with what other weights of the bound against the mean cost would choose
        import pandas as pd

        unit = (decider.problem_.units or {}).get("cost")
        heads = {"rule": "best policy"} | {name: with_unit(f"scored {name}", unit) for name in ("bound", "cost")}
        note = (
            f"This policy was made with caution {decider.policy_.caution:g}. The figures are cross-validated on rows "
            "that do not calibrate, so that a caution may be chosen by them."
        )
        frame = pd.DataFrame(decider.frontier()).rename(columns=heads)
        return [Points(policy_in_words(decider)), frame_table("Bound against mean cost", frame, note)]
    if family.sets is None:
        return [Text(f"What is calibrated is {family.made_of}.")]
    if rows is None:
        return [_missing("Which sides of the set matter is counted over decisions")]
    head = "The sides of the set in words, those that are tight at worst outcomes most often first:"
    sentences = facets_in_words(decider, rows.X, **rows.given)
    return [*set_pictures(decider, rows.X, rows.Y, rows.parameters), Text(head), Points(sentences)]


def _made(decider: RobustDecider, details: ModelDetails) -> list[Block]:
    trail = decider.calibrations_
    facts = {
        **details.facts,
        **{name.capitalize(): text for name, text in summary_lines(decider.model_).items()},
        "Radius": f"{decider.radius_:.6g}, from {decider.n_calibrate_} rows, calibrated on {trail[-1].date[:10]}",
        "Radii before": "; ".join(f"{c.radius:.6g} for alpha {c.alpha:g} from {c.n} rows" for c in trail[:-1]),
        "Versions": f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {version}" for name, version in versions(_PACKAGES).items()),
    }
    blocks: list[Block] = [Facts({name: text for name, text in facts.items() if text})]
    if details.commands:
        blocks += [Text("To write this page again:"), Code("\n".join(details.commands))]
    return blocks


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
