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
from polyhedge._support.validation import Array
from polyhedge._support.versions import versions
from polyhedge.app.report.facets import facets_in_words, policy_in_words, promise_in_words
from polyhedge.app.report.held_out import (
    HOW_TO_OBSERVE,
    HeldOut,
    decided_rows,
    formulas,
    has_set,
    in_short,
    number,
    observe,
    observed_blocks,
    own_warnings,
    percent,
    predictor_name,
)
from polyhedge.app.report.page import (
    Block,
    Cell,
    Code,
    Column,
    Facts,
    Missing,
    Note,
    Page,
    Points,
    Section,
    Table,
    Text,
)
from polyhedge.app.report.pictures import curve_picture, set_pictures
from polyhedge.calibration.labels import as_values
from polyhedge.data import Split, take_rows
from polyhedge.data.splits import IndexArray, evenly_chosen
from polyhedge.diagnostics import Code as DiagnosticCode
from polyhedge.diagnostics import is_about
from polyhedge.estimator import RobustDecider
from polyhedge.plots.sets import name_outcomes
from polyhedge.problems.decision_problem import Curvature, DecisionProblem
from polyhedge.problems.parameters import by_row, parameter_rows
from polyhedge.rows import n_rows_of

__all__ = ["ModelDetails", "model_page", "model_report"]

_PACKAGES = ("polyhedge", "numpy", "scipy", "scikit-learn", "cvxpy", "highspy", "clarabel")
# Two lines of names.
_MOST_NAMES = 12
_NEGATIVE = (
    ". It is negative because it counts from the shape as it was learned: calibration found that every side may move "
    "inwards by this much, so the bounds are lower than learning had planned"
)
# Shares of 5 000 rows are known to about 0.01; more would take longer and show nothing else.
_MOST_ROWS = 5000
_COST_IN_WORDS = {
    Curvature.AFFINE: "rises or falls evenly with each outcome (affine)",
    Curvature.MAX_AFFINE: "is the largest of several straight lines in the outcomes",
    Curvature.CONCAVE: "is concave in the outcomes",
    Curvature.CONVEX: "is convex in the outcomes",
}


@dataclass(frozen=True)
class ModelDetails:
    """What a page says that the decider itself does not know.

    Attributes
    ----------
    title : of the page.
    outcome_names, decision_names : one for each; those of the problem if not given.
    warnings : what a reader must know before trusting the decisions.
    groups : labels of the rows that are looked at, where rows of one label are near-copies of each other.
    n_units : independent pieces of evidence that set the radius; the calibration rows if not given.
    facts : names and values for the section on how the model was made: the data file, its digest, old radii.
    commands : how to make the page again.
    """

    title: str = ""
    outcome_names: Sequence[str] | None = None
    decision_names: Sequence[str] | None = None
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
    return model_page(decider, X, Y, details, parameters, labels).html()


def model_page(
    decider: RobustDecider,
    X: Any = None,
    Y: ArrayLike | None = None,
    details: ModelDetails | None = None,
    parameters: Mapping[Any, Any] | None = None,
    labels: ArrayLike | None = None,
) -> Page:
    """The page of a fitted decider, before it is HTML.

    Parameters
    ----------
    decider, X, Y, details, parameters, labels : as in `model_report`.
    """
    details = ModelDetails() if details is None else details
    names = name_outcomes(decider, details.outcome_names)
    chosen = _evenly(X)
    values = {name: value[chosen] for name, value in _values(decider, X, parameters).items()}
    X = as_pandas(X)
    outcomes = None if X is None or Y is None else decider.model_.outcomes(X, Y)  # by name, where there are names
    X, Y = (None if rows is None else take_rows(rows, chosen) for rows in (X, outcomes))
    groups = None if details.groups is None else np.asarray(details.groups)[chosen]
    own = None if labels is None else as_values(labels)[chosen]
    n_units = decider.n_calibrate_ if details.n_units is None else details.n_units
    held_out = None if X is None or Y is None else observe(decider, X, Y, groups, values, own, n_units)
    questioned = own_warnings(
        decider, held_out, has_few_rows_note=any(is_about(text, DiagnosticCode.FEW_ROWS) for text in details.warnings)
    )
    warnings = list(dict.fromkeys([*details.warnings, *questioned]))
    sections = [
        Section("In short", [*in_short(decider, held_out), *(Note(text, warning=True) for text in warnings)]),
        Section("What is decided", _decided(decider, names, details, held_out)),
        Section("What is promised, and what is not", [Points(promise_in_words(decider))]),
        Section("What was observed", _observed(held_out)),
        Section("What the decisions guard against", _guarded(decider, X, held_out, names, values)),
        Section("What more certainty would cost", _curve(decider, held_out)),
        Section("How it was made", _made(decider, details)),
    ]
    title = details.title or f"Robust decisions: {decider.problem_.name}"
    lead = (
        f"Decisions whose cost stays below a stated bound in at least {percent(1 - decider.alpha_)} of cases, "
        "however good or bad the predictions are."
    )
    return Page(title, lead, sections, closing=f"Made by Polyhedge {__version__}. This page needs no network.")


def _evenly(X: Any) -> IndexArray:
    """All rows, or an even choice where there are very many: the page should not take an hour."""
    n = 0 if X is None else X.shape[0] if hasattr(X, "shape") else len(X)
    return evenly_chosen(n, _MOST_ROWS)


def _values(decider: RobustDecider, X: Any, parameters: Mapping[Any, Any] | None) -> dict[str, Array]:
    """One value a row of each of the problem's parameters, so that rows can be chosen."""
    if X is None or not decider.problem_.parameters:
        return {}
    rows = parameter_rows(decider.problem_.parameters, parameters, n_rows_of(X), X)
    return by_row(decider.problem_.parameters, rows)


def _decided(
    decider: RobustDecider, names: Sequence[str], details: ModelDetails, held_out: HeldOut | None
) -> list[Block]:
    problem = decider.problem_
    decision = _listed(details.decision_names or problem.decision_names)
    facts = {
        "Problem": problem.name,
        "Decided": decision,
        "Unknown when deciding": _listed(names),
        "Known when deciding": _listed([parameter.name for parameter in problem.parameters]),
        **_kind_of(problem, decider.model_.record.parameters, names),
        "Predictions": predictor_name(decider),
    }
    return [
        Text(f"Each case comes with features from which the outcomes are predicted. {_rule(decider)}"),
        Facts({name: value for name, value in facts.items() if value}),
        *formulas(decider),
        *([] if held_out is None else decided_rows(decider, held_out)),
    ]


def _rule(decider: RobustDecider) -> str:
    if decider.model_.family.sets is None and not has_set(decider):
        return "A policy turns the prediction into a decision, and the bound is on what exactly this decision costs."
    around = "a set around the prediction" if decider.model_.family.sets is not None else "its region"
    worst = f"The decision is the one whose cost is least in the worst outcome of {around}"
    return f"{worst}." if has_set(decider) else f"{worst}; the bound is on what exactly this decision costs."


def _kind_of(problem: DecisionProblem, reference: Mapping[str, Array] | None, names: Sequence[str]) -> dict[str, str]:
    """What kind of cost it is, and what is known of outcomes; with parameters, at those it was learned for."""
    if problem.parameters and not reference:
        return {}
    shown = problem.at(reference) if problem.parameters and reference else problem
    cost = f"The cost {_COST_IN_WORDS[shown.curvature]}."
    return {"Cost": cost, "Known of the outcomes": _known(shown.support_rows, names)}


def _known(rows: tuple[Array, Array], names: Sequence[str]) -> str:
    A, h = rows
    if not len(A):
        return ""
    nonnegative = [names[int(np.argmin(a))] for a, b in zip(A, h, strict=True) if b == 0 and np.count_nonzero(a) == 1]
    if len(nonnegative) == len(A) and (A.sum(axis=1) < 0).all():
        return f"never negative: {', '.join(nonnegative)}"
    return f"{len(A)} linear inequalities"


def _observed(held_out: HeldOut | None) -> list[Block]:
    if held_out is None:
        return [Missing("No held-out rows were given, so nothing was observed.", HOW_TO_OBSERVE)]
    return observed_blocks(held_out)


def _guarded(
    decider: RobustDecider,
    X: Any,
    held_out: HeldOut | None,
    names: Sequence[str],
    parameters: Mapping[str, Array],
) -> list[Block]:
    family = decider.model_.family
    if family.report is not None:
        return [Points(policy_in_words(decider)), _frontier(decider)]
    if family.sets is None:
        return [Text(f"What is calibrated is {family.made_of}.")]
    seen = [] if held_out is None else set_pictures(decider, held_out.X, held_out.Y, names, parameters)
    if X is None:
        return [*seen, Missing("Which sides of the set matter is counted over decisions.", HOW_TO_OBSERVE)]
    own = None if held_out is None else held_out.labels
    sentences = facets_in_words(decider, X, names, parameters=parameters, labels=own)
    head = "The sides of the set in words, those that hold the cost bound up most often first:"
    return [*seen, Text(head), Points(sentences)]


def _frontier(decider: RobustDecider) -> Table:
    """What other weights of the bound against the mean cost would choose."""
    rows = [
        [
            Cell(f"{row['caution']:g}", row["caution"]),
            Cell(row["rule"]),
            Cell(number(row["bound"]), row["bound"]),
            Cell(number(row["cost"]), row["cost"]),
        ]
        for row in decider.frontier()
    ]
    note = (
        f"This policy was made with caution {decider.policy_.caution:g}. The figures are scored on rows that do not "
        "calibrate, each by rules that had not seen it; none is calibrated, so that a caution may be chosen by them."
    )
    unit = (decider.problem_.units or {}).get("cost")
    scored = [Column(with_unit(head, unit)) for head in ("scored bound", "scored mean cost")]
    columns = [Column("caution"), Column("best rule", is_text=True), *scored]
    return Table("Bound against mean cost", columns, rows, note)


def _curve(decider: RobustDecider, held_out: HeldOut | None) -> list[Block]:
    if held_out is None:
        return [Missing("The cost of other levels is measured on held-out rows.", HOW_TO_OBSERVE)]
    return curve_picture(decider, held_out.X, held_out.Y, held_out.parameters, held_out.labels)


def _made(decider: RobustDecider, details: ModelDetails) -> list[Block]:
    split, result = getattr(decider, "split_", None), getattr(decider, "learn_result_", None)
    facts = dict(details.facts)
    if split is not None:
        facts["Rows"] = _rows_in_words(decider, split)
    facts["Level alpha"] = f"{decider.alpha_:g}"
    facts |= _region_facts(decider)
    if decider.radius_ < 0 and "Set" in facts:
        facts["Set"] += _NEGATIVE
    if result is not None:
        facts["Learner"] = result.detail or _describe(decider, "learner", "chosen by cross-fitting")
        facts["Learning"] = f"{result.status}; {_certificate(result.objective, result.lower_bound)}"
    trail = getattr(decider, "calibrations_", ())
    if trail:
        facts["Calibrated on"] = trail[-1].date[:10]
    if len(trail) > 1:
        facts["Radii so far"] = "; ".join(
            f"{c.radius:.6g} for alpha {c.alpha:g} from {c.n} rows on {c.date[:10]}" for c in trail
        )
    packages = ", ".join(f"{name} {version}" for name, version in versions(_PACKAGES).items())
    facts["Versions"] = f"Python {platform.python_version()}, {packages}"
    blocks: list[Block] = [Facts(facts)]
    if details.commands:
        blocks += [Text("To write this page again:"), Code("\n".join(details.commands))]
    return blocks


def _rows_in_words(decider: RobustDecider, split: Split) -> str:
    if decider.model_.family.sets is not None:
        return (
            f"{len(split.train)} trained the predictor, {len(split.learn)} shaped the set, "
            f"{len(split.calibrate)} were kept for calibration"
        )
    made, size = ("regions", "their radius") if has_set(decider) else ("policy", "its margin")
    return f"{decider.n_learn_} made the {made}, {decider.n_calibrate_} set {size}"


def _region_facts(decider: RobustDecider) -> dict[str, str]:
    size, family = f"radius {decider.radius_:.6g}, from {decider.n_calibrate_} rows", decider.model_.family
    if family.report is not None:
        return {"Plan": "; ".join(f"{e.rule} ({percent(e.share)})" for e in family.report.chosen), "Margin": size}
    if family.sets is None:
        return {"Region": f"{family.made_of}; {size}"}
    scaled = "" if decider.spread_ is None else ", scaled by a predicted spread"
    return {"Set": f"{type(decider.set_).__name__}, {size}{scaled}"}


def _certificate(objective: float, lower_bound: float) -> str:
    if not np.isfinite(lower_bound):
        return f"mean cost bound {number(objective)} on the learning rows, no lower bound proven"
    return (
        f"mean cost bound {number(objective)} on the learning rows; no polyhedron of one size that covers as many of "
        f"them can be below {number(lower_bound)}"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _describe(decider: RobustDecider, setting: str, default: str) -> str:
    """A setting as it was when the decider was fitted: what it prints as, without its own settings."""
    text = decider.settings_.get(setting, "None")
    if text == "'precomputed'":
        return "given with the rows"
    return default if text == "None" else text.partition("(")[0].removeprefix("<").partition(" ")[0]
