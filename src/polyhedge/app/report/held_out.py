"""Held-out rows on a model's page: promise and observation in short, costs, and a few rows with their decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.text import amount, with_unit
from polyhedge._support.validation import Array
from polyhedge.app.report.page import Block, Card, Cards, Cell, Code, Column, Missing, Table, Text
from polyhedge.app.report.pictures import bound_picture
from polyhedge.app.rows import TableRows, observed
from polyhedge.data import take_rows
from polyhedge.diagnostics import Code as DiagnosticCode
from polyhedge.diagnostics import fresh_rows_diagnostic, is_about
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import Evaluation, Proportion, RowMeasures, estimate
from polyhedge.model import chosen_predictor, held_in_words
from polyhedge.predictors.arrays import ArrayPredictor
from polyhedge.problems.written import formulas_by_name, units_text
from polyhedge.rows import Rows

__all__ = ["HeldOut", "decided_rows", "formulas", "in_short", "observe", "observed_blocks", "own_warnings"]

HOW_TO_OBSERVE = "polyhedge report MODEL HELD_OUT.csv"
_ROWS, _FEATURES, _DECISIONS = 5, 4, 6
"""What fits the width of a page; the table says that there are more."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out rows, and what robust decisions, trust in the prediction and foresight cost on them.

    Attributes
    ----------
    X, Y : the rows.
    rows : what happened row by row.
    evaluation : the same in the mean, without the volume: a reader of the page has no use for it.
    complaint : what went wrong with decisions, empty if nothing did.
    evidence : coverage of rows that are independent of each other: all of them, or one of each group of near-copies.
    has_groups : whether there are such groups.
    has_set : whether outcomes are promised to lie in a set; otherwise costs are promised to be at most their bound.
    parameters : values (n, *shape) of the problem's parameters at these rows, by name.
    labels : labels or weights (n,) that calibration reads; None where it asks for none.
    seen : the warning that rows trained or shaped the model; empty if they did not.
    """

    X: Any
    Y: Array
    rows: RowMeasures
    evaluation: Evaluation
    complaint: str
    evidence: Proportion
    has_groups: bool
    has_set: bool
    parameters: Mapping[str, Array]
    labels: Any = None
    seen: str = ""

    @property
    def costs(self) -> dict[str, Array]:
        """Realised costs (n,) of the three ways to decide."""
        robust = self.rows.realised
        return {
            "Robust decision": robust,
            "Trusting the prediction": robust - self.rows.over_nominal,
            "Knowing the outcome": robust - self.rows.regret,
        }


def observe(
    decider: RobustDecider,
    X: Any,
    Y: ArrayLike,
    groups: Any = None,
    parameters: Mapping[str, Array] | None = None,
    labels: Any = None,
    n_units: int | None = None,
) -> HeldOut:
    """Decide held-out rows in all three ways; nothing flows back to the decider.

    `n_units` independent rows or groups set the radius; all calibration rows by default.
    """
    model, outcomes = decider.model_, decider.model_.outcomes(X, Y)
    parameters = {} if parameters is None else parameters
    rows = TableRows(X, outcomes, np.arange(len(outcomes)), groups, None, parameters, labels, ())
    seen = observed(decider, rows, n_units, volume=False)
    known = fresh_rows_diagnostic(model, Rows(model.features(X), outcomes))
    return HeldOut(
        X=X,
        Y=outcomes,
        rows=seen.measures,
        evaluation=seen.evaluation,
        complaint=seen.measures.complaint,
        evidence=seen.coverage,
        has_groups=groups is not None,
        has_set=model.guarantee == "outcome",
        parameters=parameters,
        labels=labels,
        seen="".join(known),
    )


def observed_blocks(held_out: HeldOut) -> list[Block]:
    """A table of the three ways to decide, and the bounds against what came."""
    level, unit = 100 * held_out.evaluation.promised, held_out.evaluation.cost_unit
    costs = held_out.costs
    rows = [_row(name, cost, costs["Knowing the outcome"], level) for name, cost in costs.items()]
    columns = [
        Column("how it is decided"),
        Column(with_unit("mean cost", unit)),
        Column(with_unit("regret", unit)),
        Column(with_unit(f"cost on a bad day ({level:.3g} % quantile)", unit)),
        Column(with_unit("highest cost", unit)),
    ]
    note = (
        "± standard error. Regret: mean cost above what knowing the outcome would have cost. What a robust decision "
        "buys is a bound known before, not a lower mean."
    )
    return [
        Text(_sentence(held_out)),
        *_constraint_blocks(held_out.evaluation),
        Table("Realised cost on held-out rows", columns, rows, note),
        *bound_picture(held_out.rows),
    ]


def _constraint_blocks(evaluation: Evaluation) -> list[Block]:
    """A table of the uncertain constraints, by the robust decision and by trust in the prediction."""
    if not evaluation.constraints:
        return []
    columns = [
        Column("constraint"),
        Column("held"),
        Column("exceeded by up to"),
        Column("held, trusting the prediction"),
        Column("exceeded by up to"),
    ]
    rows = [
        [
            Cell(one.name),
            Cell(f"{100 * one.held.value:.1f} %", one.held.value),
            Cell(f"{one.largest_violation:.3g}", one.largest_violation),
            Cell(f"{100 * one.nominal_held.value:.1f} %", one.nominal_held.value),
            Cell(f"{one.nominal_largest_violation:.3g}", one.nominal_largest_violation),
        ]
        for one in evaluation.constraints
    ]
    note = "Share of held-out rows in which a constraint held, and the most by which it did not, in its own units."
    return [Table("Constraints on held-out rows", columns, rows, note)]


def _row(name: str, cost: Array, oracle: Array, level: float) -> list[Cell]:
    mean, regret = estimate(cost), estimate(cost - oracle)
    finite = cost[np.isfinite(cost)]
    bad, highest = (float(np.percentile(finite, q)) if len(finite) else np.nan for q in (level, 100.0))
    return [
        Cell(name),
        Cell(f"{mean.value:.4g}", mean.value, detail=mean.error_text),
        Cell(f"{regret.value:.4g}", regret.value, detail=regret.error_text),
        Cell(f"{bad:.4g}", bad),
        Cell(f"{highest:.4g}", highest),
    ]


def _sentence(held_out: HeldOut) -> str:
    evaluation = held_out.evaluation
    diagnostic, fresh = (f"{held_out.seen} ", "") if held_out.seen else ("", " that the model had not seen")
    if not evaluation.coverage.n:
        n_rows = evaluation.without_bound.n
        return f"{diagnostic}None of {n_rows} rows{fresh} has a finite bound, so that nothing was promised."
    n, inside, held = evaluation.coverage.n, _share(evaluation.coverage), _share(evaluation.bound_held)
    if held_out.has_groups:
        inside, held = (f"{100 * share.value:.1f} %" for share in (evaluation.coverage, evaluation.bound_held))
    groups = f" {evidence_in_words(held_out)}" if held_out.has_groups else ""
    within = f"{inside} of the outcomes lay inside their set, and " if held_out.has_set else ""
    rows = "rows" if not evaluation.without_bound > 0 else "rows with a bound"
    bound, came, premium = (
        amount(each, evaluation.cost_unit)
        for each in (evaluation.worst_case_cost, evaluation.realised_cost, evaluation.premium)
    )
    if evaluation.expected_cost is not None:
        came = f"{came}, where the policy expected {amount(evaluation.expected_cost, evaluation.cost_unit)}"
    return (
        f"{diagnostic}On {n} {rows}{fresh}, {within}{held} of the "
        f"rows cost at most their bound.{_constraints_in_words(evaluation)}{groups} "
        f"The bound was {bound} in the mean, the cost that came {came}. "
        f"The bound lies {premium} above the cost if the prediction were true."
    )


def _constraints_in_words(evaluation: Evaluation) -> str:
    if evaluation.constraints_held is None or evaluation.nominal_constraints_held is None:
        return ""
    shares = evaluation.constraints_held, evaluation.nominal_constraints_held, evaluation.promise_held
    kept, nominal, both = (f"{100 * share.value:.1f} %" for share in shares)
    return (
        f" All constraints that depend on the outcome held in {kept} of the rows (trusting the prediction: {nominal}); "
        f"bound and constraints held together, as promised, in {both}."
    )


def evidence_in_words(held_out: HeldOut) -> str:
    """What rows that are near-copies of each other prove."""
    evidence = held_out.evidence
    kept = "lay inside" if held_out.has_set else "kept to their bound"
    return f"Rows of one group are near-copies: of one row of each of {evidence.n} groups, {_share(evidence)} {kept}."


def _share(share: Proportion) -> str:
    return f"{100 * share.value:.1f} % (95 % interval {100 * share.low:.1f} to {100 * share.high:.1f} %)"


# In short


def in_short(decider: RobustDecider, held_out: HeldOut | None) -> list[Block]:
    """Cards with the promise and with what held-out rows say of it, and a verdict in words."""
    cards = [
        Card(
            "Promised",
            f"≥ {percent(1 - decider.alpha_)}",
            ("of outcomes inside the set, and " if has_set(decider) else "")
            + "of costs below their bound"
            + (" with all constraints kept" if decider.problem_.constraint_names else ""),
        )
    ]
    if held_out is None:
        return [Cards(cards), Missing("Nothing was observed yet: no held-out rows were given.", HOW_TO_OBSERVE)]
    evaluation = held_out.evaluation
    n, evidence, unit = evaluation.coverage.n, held_out.evidence, evaluation.cost_unit
    low, high = (percent(value) for value in (evidence.low, evidence.high))
    alone = f" by one row of each of {evidence.n} groups" if held_out.has_groups else ""
    interval = f"of {n} held-out rows; 95 % interval {low} to {high}{alone}"
    if has_set(decider):
        cards += [Card("Observed inside", percent(evaluation.coverage.value), interval), _held_card(evaluation)]
    else:
        what = "Bound held" if evaluation.constraints_held is None else "Bound and constraints held"
        cards.append(Card(what, percent(evaluation.promise_held.value), interval))
    cards += [
        Card("Mean cost bound", amount(number(evaluation.worst_case_cost.value), unit), "known before the outcome"),
        Card("Mean realised cost", amount(number(evaluation.realised_cost.value), unit), _against_nominal(held_out)),
    ]
    return [Cards(cards), Text(_verdict(decider, held_out))]


def own_warnings(decider: RobustDecider, held_out: HeldOut | None, *, has_few_rows_note: bool) -> list[str]:
    """Diagnostics of the decider and its held-out rows; few rows only if no note says so yet."""
    warnings = []
    if held_out is not None:
        evaluation = held_out.evaluation
        if _is_too_low(decider, held_out):
            warnings.append(
                f"Only {evaluation.coverage.value:.1%} of the held-out "
                f"{'outcomes were inside the set' if has_set(decider) else 'rows cost at most their bound'}, promised "
                f"were {percent(evaluation.promised)}. The data may have drifted: recalibrate on fresh rows."
            )
        # Low coverage has its sentence above, in the words of the page.
        is_low = _is_too_low(decider, held_out)
        others = [text for text in evaluation.diagnostics if not (is_low and is_about(text, DiagnosticCode.COVERAGE))]
        warnings += others
        if evaluation.without_bound > 0:
            warnings.append(
                f"{percent(evaluation.without_bound)} of {evaluation.without_bound.n} held-out rows have no finite "
                "bound: nothing is promised for them, and they are left out of the shares of what held. Where they "
                f"count as held, {percent(evaluation.not_missed)} of all rows did."
            )
        if evaluation.n_unpromised:
            warnings.append(
                f"{evaluation.n_unpromised} held-out rows have a bound that is not promised for their kind."
            )
        if evaluation.n_undecided:
            warnings.append(f"{evaluation.n_undecided} held-out rows have no decision. {held_out.complaint}")
    if decider.n_calibrate_ < 100 and not has_few_rows_note:
        warnings.append(
            f"Only {decider.n_calibrate_} rows set the radius, so the coverage of this one model may differ from its "
            "mean by several percent. More calibration rows make it steadier."
        )
    return warnings


def has_set(decider: RobustDecider) -> bool:
    """Whether outcomes are promised to lie in a set; otherwise the cost of the decision is."""
    return decider.model_.guarantee == "outcome"


def _held_card(evaluation: Evaluation) -> Card:
    if evaluation.constraints_held is None:
        return Card("Bound held", percent(evaluation.bound_held.value), "of these rows cost at most their bound")
    alone = f"bound {percent(evaluation.bound_held.value)}, constraints {percent(evaluation.constraints_held.value)}"
    return Card(
        "Bound and constraints held", percent(evaluation.promise_held.value), f"of these rows together; {alone}"
    )


def _verdict(decider: RobustDecider, held_out: HeldOut) -> str:
    coverage, promised = held_out.evidence, held_out.evaluation.promised
    rows = "groups" if held_out.has_groups else "rows"
    if not coverage.n:
        return "Nothing is promised for any of the held-out rows: none has a finite bound."
    if _is_too_low(decider, held_out):
        return f"Observed coverage lies below the promised {percent(promised)} by more than chance explains."
    if coverage.low > promised:
        return (
            f"Observed coverage lies above the promised {percent(promised)}: the bounds are safe, and could be lower."
        )
    return f"Observed coverage agrees with the promised {percent(promised)}, as far as {coverage.n} {rows} can tell."


def _is_too_low(decider: RobustDecider, held_out: HeldOut) -> bool:
    """By the exact law, which knows that the radius came from few rows too; an interval of these rows does not."""
    evaluation, evidence = held_out.evaluation, held_out.evidence
    if not decider.model_.radii.is_marginal:  # another law, or none that is known
        return bool(evidence.high < evaluation.promised)
    is_questioned = any(is_about(text, DiagnosticCode.COVERAGE) for text in evaluation.diagnostics)
    return is_questioned and evidence.value < evaluation.promised


def _against_nominal(held_out: HeldOut) -> str:
    difference = held_out.evaluation.over_nominal
    if difference.value == 0 and difference.standard_error == 0:
        return "the same as trusting the prediction"
    size = f"{number(abs(difference.value))} {difference.error_text}".rstrip()
    return f"{size} {'more' if difference.value >= 0 else 'less'} than trusting the prediction"


def number(value: float) -> str:
    """To four digits."""
    return f"{value:.4g}"


def percent(share: float) -> str:
    """A share as text, without a digit that says nothing."""
    return "unknown" if share != share else f"{100 * share:.1f} %".replace(".0 %", " %")


# What is decided


def formulas(decider: RobustDecider) -> list[Block]:
    """The cost, what a decision must satisfy and what is known of outcomes, in the names of both."""
    cost, limits, known = formulas_by_name(decider.problem_)
    lines = [
        f"cost        {cost}",
        *(f"subject to  {limit}" for limit in limits),
        *(f"known       {fact}" for fact in known),
    ]
    units = units_text(decider.problem_)
    text = f"Units: {units}; others are those of the data." if units else "All is in the units of the data."
    return [
        Text(f"{text} The formulas are:"),
        Code("\n".join(lines)),
    ]


def decided_rows(decider: RobustDecider, held_out: HeldOut) -> list[Block]:
    """The first held-out rows: what was known, what is decided, what it costs at most, what came."""
    n = min(_ROWS, len(held_out.Y))
    X = take_rows(held_out.X, np.arange(n))
    values = {name: value[:n] for name, value in held_out.parameters.items()}
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
    if model is None or isinstance(model, ArrayPredictor):  # a file does not keep the class
        return given.partition("(")[0].removeprefix("<").partition(" ")[0]
    while hasattr(model, "steps") or hasattr(model, "estimator"):
        model = model.steps[-1][1] if hasattr(model, "steps") else model.estimator
    return type(model).__name__


def _cell(value: Any) -> Cell:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return Cell(f"{value:.4g}", float(value)) if number else Cell(str(value))
