"""A fitted model in words: what was learned from which rows, and what is promised."""

from __future__ import annotations

from fractions import Fraction

from polyhedge._support.text import printable
from polyhedge.calibration import is_marginal
from polyhedge.io.fit_record import FitRecord
from polyhedge.model import Model
from polyhedge.planning.margins import takes_margins

__all__ = ["chosen_predictor", "guarantee_of", "held_in_words", "promise_of", "promised_by", "summary_of"]


def held_in_words(alpha: float) -> str:
    """How often a promise at this level holds, such as "held in 9 of 10".

    Examples
    --------
    >>> held_in_words(0.1), held_in_words(0.05)
    ('held in 9 of 10', 'held in 19 of 20')
    """
    share = 1 - Fraction(str(alpha))
    return f"held in {share.numerator} of {share.denominator}"


def promise_of(model: Model) -> tuple[str, ...]:
    """What a model guarantees, and where the guarantee ends, for readers without statistics."""
    is_set = model.guarantee == "outcome"
    covers = "outcome lies in the set that the decision guards against, and the " if is_set else ""
    alone = (
        () if is_set else ("It is about the decision that is returned. One that is altered afterwards has no bound.",)
    )
    keeps = " and all uncertain constraints hold" if model.problem.constraint_names else ""
    costs = f"{covers}cost is at most the bound that comes with the decision{keeps}"
    rests = f"This rests on {model.radii.n} calibration rows that did nothing else"
    in_force = f"The guarantee in force is {guarantee_of(model)}"
    lowness = "It says nothing about how low the bound is: poor predictions give bounds that hold but are costly."
    if not is_marginal(model.radii):
        return (
            f"The promise is that the {costs}. More exactly, it {model.radii.promise()}.",
            f"{rests}. It needs no assumption on how good the predictions are.",
            *alone,
            "It is void if calibration rows were used for anything else.",
            lowness,
            in_force,
        )
    return (
        f"In at least {100 * (1 - model.radii.alpha):.6g} % of cases like those it was calibrated on, the {costs}.",
        f"{rests}, and on one assumption: new "
        "cases come from the same source as these rows. It needs no assumption on how good the predictions are.",
        "It is an average over cases. One particular kind of case may be covered less often.",
        *alone,
        "It is void if the world has changed since, or if calibration rows were used for anything else. "
        "Recalibrating on fresh rows restores it for cases that look like them.",
        lowness,
        in_force,
    )


def guarantee_of(model: Model) -> str:
    """Which guarantee is in force and why, and what the other one needs."""
    problem, names = model.problem, ", ".join(parameter.name for parameter in model.problem.parameters)
    together = f"{names} to be exchangeable together with features and outcomes, as what past decisions left is not"
    why, other = "by its learner", 'guarantee="cost" has lower bounds as a rule, for the returned decision alone'
    if model.guarantee == "cost":
        why = "the default, with the lowest bounds as a rule"
        other = 'guarantee="outcome" bounds the cost of every other decision as well, higher as a rule'
        if names:
            other = f'It needs {together}; guarantee="outcome" does not'
    elif names:
        why = f"the default for a problem with parameters, because it needs nothing of the values of {names}"
        other = f'guarantee="cost" has lower bounds as a rule, and needs {together}'
    elif problem.uncertain_constraints is not None and not takes_margins(problem):
        why = "the default for uncertain constraints beside a cost that is no sum of maxima affine in the outcome"
        other = 'guarantee="cost" needs such a cost, a learner or a policy of your own'
    is_asked = model.record.settings.get("guarantee", "None") != "None"
    return f'"{model.guarantee}", {"as asked" if is_asked else why}. {other}.'


def summary_of(model: Model) -> str:
    """What was learned and promised, a line each."""
    record, problem = model.record, model.problem
    lines = {
        "problem": f"{problem.name}: decides {', '.join(problem.decision_names)}",
        "outcomes": ", ".join(problem.outcome_names),
        "predictor": _predictor(model),
        "left out": record.settings.get("left out", ""),
        "rows": _rows(model),
        "learned": _learned(model),
        "guarantee": guarantee_of(model),
        "promise": f"each decision {_kept(model)}, {held_in_words(model.radii.alpha)}",
        "exactly": f"the {promised_by(model)}",
        "rests on": f"{model.radii.n} calibration rows that did nothing else",
    }
    shown = [f"  {name:<10} {printable(text)}" for name, text in lines.items() if text]
    return "\n".join(["A fitted RobustDecider", *shown])


def _rows(model: Model) -> str:
    """The parts in the roles that they had: rows that learning did not need have calibrated with the others."""
    train, learn, calibrate = (len(getattr(model.record.split, part)) for part in ("train", "learn", "calibrate"))
    parts = f"{train} train, {learn} learn, {calibrate} calibrate"
    if learn and model.trail and model.trail[0].n == learn + calibrate:
        parts = f"{train} train and learn, {learn + calibrate} calibrate"
    is_renewed = len(model.trail) > 1 or model.radii.n not in (calibrate, learn + calibrate)
    return f"{parts} in fit; since then {model.radii.n} newer ones calibrate" if is_renewed else parts


def promised_by(model: Model) -> str:
    """What holds, of which rows and on which assumption: the bound, and uncertain constraints together with it."""
    together = ", together with all uncertain constraints," if model.problem.constraint_names else ""
    return f"bound{together} {model.radii.promise()}"


def _kept(model: Model) -> str:
    bound = "costs at most its bound"
    return f"{bound} and keeps all uncertain constraints" if model.problem.constraint_names else bound


def chosen_predictor(model: Model) -> str:
    """The name of a predictor that Polyhedge has chosen; none of one that was given."""
    # `polyhedge fit` chooses by itself, and keeps the name beside the model.
    kept = FitRecord.if_readable(model.record.details)
    return model.record.settings.get("chosen predictor") or ("" if kept is None else kept.predictor)


def _predictor(model: Model) -> str:
    chosen = chosen_predictor(model)
    if chosen:
        return chosen
    given = model.record.settings.get("predictor", "None")
    name = "a ridge regression on smooth features" if given == "None" else " ".join(given.split())
    return "; ".join(filter(None, [name, model.record.settings.get("prepared columns")]))


def _learned(model: Model) -> str:
    result = model.record.learn_result
    if result is None:
        return model.family.made_of
    return f"{type(result.set).__name__} from {model.record.n_learn} rows; {result.detail or result.status}"
