"""A fitted decider on one page, for readers who decide and do not calculate."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge import __version__
from polyhedge._frames import as_pandas
from polyhedge._text import amount, with_unit
from polyhedge._validation import Array
from polyhedge._versions import versions
from polyhedge.calibration.beside import as_values
from polyhedge.data import take_rows
from polyhedge.data.splits import IndexArray, evenly_chosen
from polyhedge.doubts import Code as DoubtCode
from polyhedge.doubts import is_about
from polyhedge.estimator import RobustDecider
from polyhedge.metrics import Evaluation
from polyhedge.problems.decision_problem import Curvature, DecisionProblem
from polyhedge.problems.parameters import by_row, from_columns, parameter_rows
from polyhedge.report.blocks import Block, Card, Cards, Code, Facts, Missing, Note, Points, Text
from polyhedge.report.examples import decided_rows, formulas, predictor_name
from polyhedge.report.held_out import HeldOut, observe, observed_blocks
from polyhedge.report.page import Page, Section
from polyhedge.report.pictures import curve_picture, set_pictures
from polyhedge.report.tables import Cell, Column, Table
from polyhedge.rows import n_rows_of
from polyhedge.tables import coverage_doubt, take_parameters
from polyhedge.words import facets_in_words, name_outcomes, plan_in_words, promise_in_words

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
    beside: ArrayLike | None = None,
) -> str:
    """The page of a fitted decider as HTML: one file that works offline.

    Parameters
    ----------
    decider : RobustDecider, fitted.
    X, Y : rows that were not used for fitting, optional
        Without them the page says what is promised, but not what was observed. Of more than 5 000 rows, 5 000 are
        looked at, spread evenly.
    details : what the decider itself does not know.
    parameters, beside : as in `RobustDecider.decide`.
    """
    return model_page(decider, X, Y, details, parameters, beside).html()


def model_page(
    decider: RobustDecider,
    X: Any = None,
    Y: ArrayLike | None = None,
    details: ModelDetails | None = None,
    parameters: Mapping[Any, Any] | None = None,
    beside: ArrayLike | None = None,
) -> Page:
    """The page of a fitted decider; see `model_report`."""
    details = ModelDetails() if details is None else details
    names = name_outcomes(decider, details.outcome_names)
    chosen = _evenly(X)
    values = take_parameters(_values(decider, X, parameters), chosen)
    X = as_pandas(X)
    outcomes = None if X is None or Y is None else decider.model_.outcomes(X, Y)  # by name, where there are names
    X, Y = (None if rows is None else take_rows(rows, chosen) for rows in (X, outcomes))
    groups = None if details.groups is None else np.asarray(details.groups)[chosen]
    own = None if beside is None else as_values(beside)[chosen]
    held_out = None if X is None or Y is None else observe(decider, X, Y, groups, values, own)
    n_units = decider.n_calibrate_ if details.n_units is None else details.n_units
    doubted = _own_warnings(
        decider, held_out, n_units, is_few_told=any(is_about(text, DoubtCode.FEW_ROWS) for text in details.warnings)
    )
    warnings = [*details.warnings, *doubted]
    sections = [
        Section("In short", [*_short(decider, held_out, n_units), *(Note(text, warning=True) for text in warnings)]),
        Section("What is decided", _decided(decider, names, details, held_out)),
        Section("What is promised, and what is not", [Points(promise_in_words(decider))]),
        Section("What was observed", _observed(held_out)),
        Section("What the decisions guard against", _guarded(decider, X, held_out, names, values)),
        Section("What more certainty would cost", _curve(decider, held_out)),
        Section("How it was made", _made(decider, details)),
    ]
    title = details.title or f"Robust decisions: {decider.problem_.name}"
    lead = (
        f"Decisions whose cost stays below a stated bound in at least {_percent(1 - decider.alpha_)} of cases, "
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
    rows = parameter_rows(decider.problem_.parameters, from_columns(parameters, X), n_rows_of(X))
    return by_row(decider.problem_.parameters, rows)


def _short(decider: RobustDecider, held_out: HeldOut | None, n_units: int) -> list[Block]:
    cards = [
        Card(
            "Promised",
            f"≥ {_percent(1 - decider.alpha_)}",
            ("of outcomes inside the set, and " if _has_set(decider) else "")
            + "of costs below their bound"
            + (" with all constraints kept" if decider.problem_.constraint_names else ""),
        )
    ]
    if held_out is None:
        return [Cards(cards), Missing("Nothing was observed yet: no held-out rows were given.", _COMMAND)]
    found = held_out.evaluation
    n, evidence, unit = found.coverage.n, held_out.evidence, found.cost_unit
    low, high = (_percent(value) for value in (evidence.low, evidence.high))
    alone = f" by one row of each of {evidence.n} groups" if held_out.has_groups else ""
    interval = f"of {n} held-out rows; 95 % interval {low} to {high}{alone}"
    if _has_set(decider):
        cards += [Card("Observed inside", _percent(found.coverage.value), interval), _held_card(found)]
    else:
        what = "Bound held" if found.constraints_held is None else "Bound and constraints held"
        cards.append(Card(what, _percent(found.promise_held.value), interval))
    cards += [
        Card("Mean cost bound", amount(_number(found.worst_case_cost.value), unit), "known before the outcome"),
        Card("Mean realised cost", amount(_number(found.realised_cost.value), unit), _against_nominal(held_out)),
    ]
    return [Cards(cards), Text(_verdict(decider, held_out, n_units))]


def _has_set(decider: RobustDecider) -> bool:
    """Whether outcomes are promised to lie in a set; otherwise the cost of the decision is."""
    return decider.model_.guarantee == "outcome"


def _held_card(found: Evaluation) -> Card:
    if found.constraints_held is None:
        return Card("Bound held", _percent(found.bound_held.value), "of these rows cost at most their bound")
    alone = f"bound {_percent(found.bound_held.value)}, constraints {_percent(found.constraints_held.value)}"
    return Card("Bound and constraints held", _percent(found.promise_held.value), f"of these rows together; {alone}")


def _verdict(decider: RobustDecider, held_out: HeldOut, n_units: int) -> str:
    coverage, promised = held_out.evidence, held_out.evaluation.promised
    rows = "groups" if held_out.has_groups else "rows"
    if not coverage.n:
        return "Nothing is promised for any of the held-out rows: none has a finite bound."
    if _is_too_low(decider, held_out, n_units):
        return f"Observed coverage lies below the promised {_percent(promised)} by more than chance explains."
    if coverage.low > promised:
        return (
            f"Observed coverage lies above the promised {_percent(promised)}: the bounds are safe, and could be lower."
        )
    return f"Observed coverage agrees with the promised {_percent(promised)}, as far as {coverage.n} {rows} can tell."


def _is_too_low(decider: RobustDecider, held_out: HeldOut, n_units: int) -> bool:
    """By the exact law, which knows that the radius came from few rows too; an interval of these rows does not."""
    if decider.model_.radii.kind != "marginal":  # another law, or none that is known
        return bool(held_out.evidence.high < held_out.evaluation.promised)
    return bool(coverage_doubt(held_out.evidence, n_units, decider.alpha_))


def _against_nominal(held_out: HeldOut) -> str:
    difference = held_out.evaluation.over_nominal
    if difference.value == 0 and difference.standard_error == 0:
        return "the same as trusting the prediction"
    size = f"{_number(abs(difference.value))} {difference.error_text}".rstrip()
    return f"{size} {'more' if difference.value >= 0 else 'less'} than trusting the prediction"


def _own_warnings(decider: RobustDecider, held_out: HeldOut | None, n_units: int, *, is_few_told: bool) -> list[str]:
    warnings = []
    if held_out is not None:
        found = held_out.evaluation
        if _is_too_low(decider, held_out, n_units):
            warnings.append(
                f"Only {found.coverage.value:.1%} of the held-out "
                f"{'outcomes were inside the set' if _has_set(decider) else 'rows cost at most their bound'}, promised "
                f"were {_percent(found.promised)}. The data may have drifted: recalibrate on fresh rows."
            )
        if found.without_bound > 0:
            warnings.append(
                f"{_percent(found.without_bound)} of {found.without_bound.n} held-out rows have no finite bound: "
                "nothing is promised for them, and they are left out of the shares of what held. Where they count as "
                f"held, {_percent(found.not_missed)} of all rows did."
            )
        if found.n_unpromised:
            warnings.append(f"{found.n_unpromised} held-out rows have a bound that is not promised for their kind.")
        if found.n_undecided:
            warnings.append(f"{found.n_undecided} held-out rows have no decision. {held_out.complaint}")
    if decider.n_calibrate_ < 100 and not is_few_told:
        warnings.append(
            f"Only {decider.n_calibrate_} rows set the radius, so the coverage of this one model may differ from its "
            "mean by several percent. More calibration rows make it steadier."
        )
    return warnings


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
    if decider.model_.family.sets is None and not _has_set(decider):
        return "A plan turns the prediction into a decision, and the bound is on what exactly this decision costs."
    worst = "The decision is the one whose cost is least in the worst outcome of a set around the prediction"
    return f"{worst}." if _has_set(decider) else f"{worst}; the bound is on what exactly this decision costs."


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
        return [Missing("No held-out rows were given, so nothing was observed.", _COMMAND)]
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
        return [Points(plan_in_words(decider)), _frontier(decider)]
    if family.sets is None:
        return [Text(f"What is calibrated is {family.made_of}.")]
    seen = [] if held_out is None else set_pictures(decider, held_out.X, held_out.Y, names, parameters)
    if X is None:
        return [*seen, Missing("Which sides of the set matter is counted over decisions.", _COMMAND)]
    own = None if held_out is None else held_out.beside
    told = facets_in_words(decider, X, names, parameters=parameters, beside=own)
    head = "The sides of the set in words, those that hold the cost bound up most often first:"
    return [*seen, Text(head), Points(told)]


def _frontier(decider: RobustDecider) -> Table:
    """What other weights of the bound against the mean cost would choose."""
    rows = [
        [
            Cell(f"{row['caution']:g}", row["caution"]),
            Cell(row["rule"]),
            Cell(_number(row["bound"]), row["bound"]),
            Cell(_number(row["cost"]), row["cost"]),
        ]
        for row in decider.frontier()
    ]
    note = (
        f"This plan was made with caution {decider.plan_.caution:g}. The figures are judged on training and learning "
        "rows, each by rules that had not seen it; none is calibrated, so that a caution may be chosen by them."
    )
    unit = (decider.problem_.units or {}).get("cost")
    judged = [Column(with_unit(head, unit)) for head in ("judged bound", "judged mean cost")]
    columns = [Column("caution"), Column("best rule", is_text=True), *judged]
    return Table("Bound against mean cost", columns, rows, note)


def _curve(decider: RobustDecider, held_out: HeldOut | None) -> list[Block]:
    if held_out is None:
        return [Missing("The cost of other levels is measured on held-out rows.", _COMMAND)]
    return curve_picture(decider, held_out.X, held_out.Y, held_out.parameters, held_out.beside)


def _made(decider: RobustDecider, details: ModelDetails) -> list[Block]:
    split, result = getattr(decider, "split_", None), getattr(decider, "learn_result_", None)
    facts = dict(details.facts)
    if split is not None:
        facts["Rows"] = (
            f"{decider.n_learn_} made the plan, {decider.n_calibrate_} set its margin"
            if decider.model_.family.sets is None
            else f"{len(split.train)} trained the predictor, {len(split.learn)} shaped the set, "
            f"{len(split.calibrate)} were kept for calibration"
        )
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


def _region_facts(decider: RobustDecider) -> dict[str, str]:
    size, family = f"radius {decider.radius_:.6g}, from {decider.n_calibrate_} rows", decider.model_.family
    if family.report is not None:
        return {"Plan": "; ".join(f"{e.rule} ({_percent(e.share)})" for e in family.report.chosen), "Margin": size}
    if family.sets is None:
        return {"Region": f"{family.made_of}; {size}"}
    scaled = "" if decider.spread_ is None else ", scaled by a predicted spread"
    return {"Set": f"{type(decider.set_).__name__}, {size}{scaled}"}


def _certificate(objective: float, lower_bound: float) -> str:
    if not np.isfinite(lower_bound):
        return f"mean cost bound {_number(objective)} on the learning rows, no lower bound proven"
    return (
        f"mean cost bound {_number(objective)} on the learning rows; no polyhedron of one size that covers as many of "
        f"them can be below {_number(lower_bound)}"
    )


_COMMAND = "polyhedge report MODEL --data HELD_OUT.csv"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _describe(decider: RobustDecider, setting: str, default: str) -> str:
    """A setting as it was when the decider was fitted: what it prints as, without its own settings."""
    text = decider.settings_.get(setting, "None")
    if text == "'precomputed'":
        return "given with the rows"
    return default if text == "None" else text.partition("(")[0].removeprefix("<").partition(" ")[0]


def _number(value: float) -> str:
    return f"{value:.4g}"


def _percent(share: float) -> str:
    return "unknown" if share != share else f"{100 * share:.1f} %".replace(".0 %", " %")
