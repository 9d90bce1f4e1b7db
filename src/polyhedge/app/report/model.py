"""A fitted decider on one page, with what was observed on held-out rows, for readers who decide, not calculate."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import ArrayLike

from polyhedge import __version__
from polyhedge._support import warnings
from polyhedge._support.frames import as_pandas
from polyhedge._support.text import amount, with_unit
from polyhedge._support.versions import versions
from polyhedge.app.report.facets import facets_in_words, policy_in_words
from polyhedge.app.report.page import (
    Block,
    Card,
    Cards,
    Code,
    Facts,
    Missing,
    Note,
    Page,
    Points,
    Section,
    Table,
    Text,
    frame_table,
)
from polyhedge.app.report.pictures import bound_picture, curve_blocks, set_pictures
from polyhedge.app.rows import TableRows
from polyhedge.data.splits import evenly_chosen
from polyhedge.diagnostics import DiagnosticWarning, diagnostics_of_size, is_about
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import Evaluation, RowMeasures, estimate
from polyhedge.model import held_in_words, promise_of, summary_lines
from polyhedge.problems.layout import by_row, parameter_rows
from polyhedge.problems.written import formulas_by_name, units_text
from polyhedge.rows import as_values, n_rows_of

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
    facts : names and values for the section on how the model was made: the data file, its digest.
    commands : how to make the page again.
    """

    title: str = ""
    warnings: Sequence[str] = ()
    groups: Any = None
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
    warnings: list[str] = [*details.warnings]
    rows = seen = None
    if X is not None and Y is not None:
        rows = _rows(decider, X, Y, details.groups, parameters, labels)
        with catch_warnings():
            simplefilter("ignore", DiagnosticWarning)  # the page has them
            seen = decider.evaluate(rows.X, rows.Y, groups=rows.groups, volume=False, **rows.given)
        warnings += own_warnings(seen)
    warnings += diagnostics_of_size(decider.model_.radii)
    notes = [Note(text, warning=True) for text in dict.fromkeys(warnings)]
    curve: list[Block] = [_missing("The cost of other levels is measured on held-out rows")]
    if rows is not None:
        curve = curve_blocks(decider, rows.X, rows.Y, rows.parameters, rows.labels)
    sections = [
        Section("In short", [*in_short(decider, seen), *notes]),
        Section("What is decided", _decided(decider, rows, seen)),
        Section("What is promised, and what is not", [Points(promise_of(decider.model_))]),
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


def _decided(decider: RobustDecider, rows: TableRows | None, seen: Evaluation | None) -> list[Block]:
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


HOW_TO_OBSERVE = "polyhedge report MODEL HELD_OUT.csv"
# What a planner changes: more than a fifth is another decision.
_CHANGES = (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2)
_ROWS, _FEATURES, _DECISIONS = 5, 4, 6
"""What fits the width of a page; the table says that there are more."""


def observed_blocks(decider: RobustDecider, seen: Evaluation) -> list[Block]:
    """What `evaluate` prints, a table of the three ways to decide, and the bounds against realised costs."""
    import pandas as pd

    level, unit, rows = 100 * seen.promised, seen.cost_unit, _measures(seen)
    costs = {
        "Robust decision": rows.realised,
        "Trusting the prediction": rows.realised - rows.over_nominal,
        "Knowing the outcome": rows.realised - rows.regret,
    }
    finite = {name: cost[np.isfinite(cost)] for name, cost in costs.items()}
    frame = pd.DataFrame(
        {
            "how it is decided": list(costs),
            with_unit("mean cost", unit): [estimate(cost) for cost in costs.values()],
            with_unit("regret", unit): [estimate(cost - costs["Knowing the outcome"]) for cost in costs.values()],
            with_unit(f"cost on a bad day ({level:.3g} % quantile)", unit): [
                np.percentile(cost, level) if len(cost) else np.nan for cost in finite.values()
            ],
            with_unit("highest cost", unit): [cost.max(initial=-np.inf) for cost in finite.values()],
        },
        dtype=object,
    )
    note = (
        "± standard error. Regret: mean cost above what knowing the outcome would have cost. What a robust decision "
        "buys is a bound known before, not a lower mean."
    )
    blocks: list[Block] = [Code("\n".join(seen.lines()))]
    if seen.one_a_group is not None:
        kept, one = "lay inside" if has_set(decider) else "kept to their bound", seen.one_a_group
        blocks.append(
            Text(f"Rows of one group are near-copies: of one row of each of {one.n} groups, {percent(one)} {kept}.")
        )
    return [*blocks, frame_table("Realised cost on held-out rows", frame, note), *bound_picture(rows)]


# In short


def in_short(decider: RobustDecider, seen: Evaluation | None) -> list[Block]:
    """Cards with the promise and with what held-out rows say of it, and a verdict in words."""
    inside = "of outcomes inside the set, and " if has_set(decider) else ""
    kept = " with all constraints kept" if decider.problem_.constraint_names else ""
    cards = [Card("Promised", f"≥ {percent(1 - decider.alpha_)}", f"{inside}of costs below their bound{kept}")]
    if seen is None:
        return [Cards(cards), Missing("Nothing was observed yet: no held-out rows were given.", HOW_TO_OBSERVE)]
    evaluation, evidence = seen, seen.evidence
    unit, held = evaluation.cost_unit, percent(evaluation.promise_held)
    alone = "" if seen.one_a_group is None else f" by one row of each of {evidence.n} groups"
    interval = f"95 % interval {percent(evidence.low)} to {percent(evidence.high)}{alone}"
    interval = f"of {evaluation.coverage.n} held-out rows; {interval}"
    what = "Bound held" if evaluation.constraints_held is None else "Bound and constraints held"
    if has_set(decider):
        cards.append(Card("Observed inside", percent(evaluation.coverage), interval))
        cards.append(Card(what, held, "of these rows"))
    else:
        cards.append(Card(what, held, interval))
    difference = evaluation.over_nominal
    against = "the same as trusting the prediction"
    if difference.value != 0 or difference.standard_error != 0:
        size = f"{abs(difference.value):.4g} {difference.error_text}".rstrip()
        against = f"{size} {'more' if difference.value >= 0 else 'less'} than trusting the prediction"
    costs = (
        ("Mean cost bound", evaluation.worst_case_cost, "known before the outcome"),
        ("Mean realised cost", evaluation.realised_cost, against),
    )
    cards += [Card(name, amount(f"{cost.value:.4g}", unit), more) for name, cost, more in costs]
    if (blocks := evaluation.blocks_held) is not None:
        cards.append(Card("Promise for blocks held", percent(blocks), f"of {blocks.n} blocks of held-out rows"))
    if evaluation.risk is not None:
        share, realised, bound = evaluation.risk
        whose = "all held-out rows" if share == 1 else f"the worst {percent(share)} of held-out rows"
        cards.append(Card("Bound on the mean", amount(f"{bound:.4g}", unit), f"{whose} cost {realised:.4g} on average"))
    return [Cards(cards), Text(_verdict(decider, seen))]


def _verdict(decider: RobustDecider, seen: Evaluation) -> str:
    coverage, promised = seen.evidence, seen.promised
    if not coverage.n:
        return "Nothing is promised for any of the held-out rows: none has a finite bound."
    # The exact distribution knows that the radius came from few rows too; an interval of these rows does not.
    is_questioned = any(is_about(text, warnings.Code.COVERAGE) for text in seen.diagnostics)
    is_low = is_questioned if decider.model_.radii.is_marginal else coverage.high < promised
    if is_low and coverage.value < promised:
        return f"Observed coverage lies below the promised {percent(promised)} by more than chance explains."
    if coverage.low > promised:
        return f"Observed coverage lies above the promised {percent(promised)}: the bounds hold, and could be lower."
    rows = "rows" if seen.one_a_group is None else "groups"
    return f"Observed coverage agrees with the promised {percent(promised)}, as far as {coverage.n} {rows} can tell."


def own_warnings(seen: Evaluation) -> list[str]:
    """Diagnostics of held-out rows, and rows for which nothing is promised or decided."""
    evaluation = seen
    found: list[str] = list(evaluation.diagnostics)
    if evaluation.without_bound > 0:
        found.append(
            f"{percent(evaluation.without_bound)} of {evaluation.without_bound.n} held-out rows have no finite bound: "
            "nothing is promised for them, and they are left out of the shares of what held. Where they count as held, "
            f"{percent(evaluation.not_missed)} of all rows did."
        )
    if evaluation.n_unpromised:
        found.append(f"{evaluation.n_unpromised} held-out rows have a bound that is not promised for their kind.")
    if evaluation.n_undecided:
        found.append(f"{evaluation.n_undecided} held-out rows have no decision. {_measures(seen).complaint}")
    return found


def _measures(seen: Evaluation) -> RowMeasures:
    assert seen.rows is not None  # `evaluate` gives them
    return seen.rows


def has_set(decider: RobustDecider) -> bool:
    """Whether outcomes are promised to lie in a set; otherwise the cost of the decision is."""
    return decider.model_.guarantee == "outcome"


def percent(share: float) -> str:
    """A share as text, without a digit that says nothing."""
    return "unknown" if share != share else f"{100 * float(share):.1f} %".replace(".0 %", " %")


def decided_rows(decider: RobustDecider, held_out: TableRows, seen: Evaluation) -> Table:
    """The first held-out rows: what was known, what is decided, its bound and its realised cost."""
    import pandas as pd

    n = min(_ROWS, len(held_out))
    rows, units = held_out.take(slice(n)), decider.problem_.units or {}
    decisions = decider.model_.decide(rows.X, rows.parameters, labels=rows.labels)
    names, z = decider.problem_.decision_names, decisions.z.reshape(n, -1)
    known = {name: rows.X[name].to_list() for name in list(getattr(rows.X, "columns", ()))[:_FEATURES]}
    known |= {name: value for name, value in list(rows.parameters.items())[:_FEATURES] if value.ndim == 1}
    decided = {name: z[:, k] for k, name in enumerate(names[:_DECISIONS])}
    columns = {
        "row": list(rows.X.index) if hasattr(rows.X, "index") else list(range(n)),
        **{with_unit(str(name), units.get(name)): value for name, value in known.items()},
        **{f"decided: {with_unit(name, units.get(name))}": value for name, value in decided.items()},
        with_unit("costs at most", units.get("cost")): decisions.cost_bound,
        with_unit("realised cost", units.get("cost")): _measures(seen).realised[:n],
    }
    note = f"The first {n} held-out rows. Each bound is {held_in_words(decider.model_.radii)}."
    if len(names) > _DECISIONS:
        note += f" {len(names) - _DECISIONS} more entries of the decision are not shown."
    return frame_table("Decisions of some rows", pd.DataFrame(columns), note, sortable=False)


def changed_rows(decider: RobustDecider, held_out: TableRows) -> list[Block]:
    """What the first held-out decisions cost at most if all of their entries are changed by some per cent."""
    import pandas as pd

    n, model = min(_ROWS, len(held_out)), decider.model_
    whole = [v for v in model.problem.written.variables if v.attributes["integer"] or v.attributes["boolean"]]
    if whole or model.problem.layout.size > model.problem.layout.given_size:
        return []  # a change of some per cent is no decision there
    rows = held_out.take(slice(n))
    given: Any = (rows.parameters, rows.labels)
    z = model.decide(rows.X, given[0], labels=given[1]).flat
    bounds = [model.bound(rows.X, (1 + change) * z, *given).cost_bound for change in _CHANGES]
    frame = pd.DataFrame(
        {
            "change": [f"{100 * change:+.0f} %" if change else "none" for change in _CHANGES],
            with_unit("costs at most, mean", (model.problem.units or {}).get("cost")): [
                each[np.isfinite(each)].mean() if np.isfinite(each).any() else np.nan for each in bounds
            ],
            "rows without a bound": [int((~np.isfinite(each)).sum()) for each in bounds],
        }
    )
    note = (
        f"All entries of the decisions of the first {n} held-out rows, changed by this share. The bounds hold together "
        "with that of the decision itself, at the same level. A row has none where nothing limits an outcome that "
        "would hurt the changed decision."
    )
    return [frame_table("If you change the decision", frame, note, sortable=False)]
