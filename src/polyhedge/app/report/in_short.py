"""The first section of a model's page: what is promised, what was observed, and what a reader must be warned of."""

from __future__ import annotations

from polyhedge._support.text import amount
from polyhedge.app.report.blocks import Block, Card, Cards, Missing, Text
from polyhedge.app.report.held_out import HeldOut
from polyhedge.calibration import is_marginal
from polyhedge.diagnostics import Code as DiagnosticCode
from polyhedge.diagnostics import is_about
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import Evaluation

__all__ = ["HOW_TO_OBSERVE", "has_set", "in_short", "number", "own_warnings", "percent"]

HOW_TO_OBSERVE = "polyhedge report MODEL HELD_OUT.csv"


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


def own_warnings(decider: RobustDecider, held_out: HeldOut | None, *, is_few_told: bool) -> list[str]:
    """What the decider and its held-out rows give reason to diagnostic; few rows only where nobody has told it yet."""
    warnings = []
    if held_out is not None:
        evaluation = held_out.evaluation
        if _is_too_low(decider, held_out):
            warnings.append(
                f"Only {evaluation.coverage.value:.1%} of the held-out "
                f"{'outcomes were inside the set' if has_set(decider) else 'rows cost at most their bound'}, promised "
                f"were {percent(evaluation.promised)}. The data may have drifted: recalibrate on fresh rows."
            )
        # That coverage is low is said above, in the words of the page.
        is_low = _is_too_low(decider, held_out)
        told = [text for text in evaluation.diagnostics if not (is_low and is_about(text, DiagnosticCode.COVERAGE))]
        warnings += told
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
    if decider.n_calibrate_ < 100 and not is_few_told:
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
    if not is_marginal(decider.model_.radii):  # another law, or none that is known
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
