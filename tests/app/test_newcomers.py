"""What a newcomer does wrong is answered with what to do instead."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import polyhedge as ph
from polyhedge._support.frames import refuse_outcomes

NAMES = ["calls", "mails"]


def table(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    booked = rng.poisson(9, n).astype(float)
    outcomes = booked[:, None] + rng.normal(0, 2, (n, 2))
    return pd.DataFrame({"booked": booked, "weekday": np.resize(list("abcdefg"), n)}).join(
        pd.DataFrame(outcomes, columns=NAMES)
    )


def problem(cost: Any = lambda z, u: cp.sum(z) + 3 * cp.sum(cp.pos(u - z)), n_outcomes: int = 2) -> ph.DecisionProblem:
    return ph.DecisionProblem(decision=cp.Variable(n_outcomes, nonneg=True), cost=cost, n_outcomes=n_outcomes)


def decider(**given: Any) -> ph.RobustDecider:
    return ph.RobustDecider(problem(), random_state=0, learner=ph.learners.OneSidedBox(), **given)


T = table()
X, Y = T[["booked", "weekday"]], T[NAMES]


@pytest.fixture(scope="module")
def fitted() -> ph.RobustDecider:
    return decider().fit(X, Y)


@pytest.mark.parametrize("predictor", [None, "ridge on numbers"])
def test_outcomes_are_no_features(predictor: Any) -> None:
    rows = T if predictor is None else T.drop(columns="weekday")
    settings = {} if predictor is None else {"predictor": Ridge()}
    with pytest.raises(ValueError, match=r"X holds the outcome\(s\) calls, mails.*X\.drop\(columns="):
        decider(**settings).fit(rows, Y)


@pytest.mark.parametrize(
    "feature",
    [Y["calls"].shift(1).fillna(0.0), pd.Series(["?"] * 80), pd.Series([None, *[1] * 79], dtype="Int64")],
    ids=["yesterday's", "text", "with gaps"],
)
def test_a_feature_may_have_the_name_of_an_outcome(feature: pd.Series) -> None:
    refuse_outcomes(X.assign(calls=feature), NAMES, Y.to_numpy().T)


def test_predictions_may_have_the_names_of_outcomes() -> None:
    decider(predictor="precomputed").fit(Y, Y + 1)
    decider(predictor=lambda rows: rows[NAMES].to_numpy()).fit(Y, Y)


def test_rows_of_text_among_numbers_are_named_by_the_index_of_the_frame() -> None:
    wrong = X.assign(booked=[f"{i}.5 pcs" for i in range(len(X))]).set_axis([f"r{i}" for i in range(len(X))])
    with pytest.raises(ValueError, match=r"Column 'booked' of X must hold numbers.*row r(\d+) \('") as error:
        decider(predictor="linear").fit(wrong, Y.set_axis(wrong.index))
    row, text = re.search(r"row (r\d+) \('(.*?)'\)", str(error.value)).groups()  # type: ignore[union-attr]
    assert wrong.booked[row] == text


def test_an_infinite_feature_is_named_with_its_row() -> None:
    wrong = X.assign(booked=X.booked.where(X.index != 7, np.inf))
    with pytest.raises(ValueError, match=r"got 1 row\(s\) .* the first is row 7 \(not finite: booked\)"):
        decider(predictor="linear").fit(wrong, Y)


def test_an_unknown_predictor_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"one of smooth-ridge, .*, linear, or None, got 'forrest'"):
        decider(predictor="forrest").fit(X, Y)


def test_one_column_for_two_outcomes_is_refused_by_columns() -> None:
    with pytest.raises(ValueError, match=r"Y must have 2 column\(s\), one for each outcome, got 1"):
        decider().fit(X, T["calls"].rename(None))


@pytest.mark.parametrize(
    ("cost", "kind", "match"),
    [
        (lambda z, u: max(u[0] - z[0], 0), TypeError, r"Strict inequalities.*cp\.maximum"),
        (lambda z, u: np.maximum(u - z, 0).sum(), TypeError, r"NumPy function.*cp\.maximum"),
        (lambda z: cp.sum(z), TypeError, r"takes 1 positional argument.*cp"),
        (lambda z, u: cp.sum(z + np.ones(3)), ValueError, "Check n_outcomes, names and shapes"),
    ],
    ids=["max", "numpy", "arguments", "shapes"],
)
def test_a_cost_that_cannot_be_called_says_how_to_write_it(cost: Any, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=rf"(?s)cost\(z, u\) failed for z of shape \(2,\) and u of shape \(2,\): .*{match}"):
        problem(cost)


def test_a_wrong_name_of_a_variable_is_refused() -> None:
    named = {"on": cp.Variable(boolean=True), "power": cp.Variable(nonneg=True)}
    with pytest.raises(ValueError, match=r"'pwr'\. Check n_outcomes, names and shapes"):
        ph.DecisionProblem(decision=named, cost=lambda z, u: u[0] * z["pwr"], n_outcomes=1)


@pytest.mark.parametrize("place", ["constraints", "cost"])
@pytest.mark.parametrize("shape", [(1,), (), (3,)])
def test_a_variable_of_ones_own_is_not_taken_for_the_outcome(place: str, shape: tuple[int, ...]) -> None:
    n = max(shape, default=1)
    z, own = cp.Variable(n, nonneg=True), cp.Variable(shape, name="demand")
    mistaken: Any = {
        "constraints": {"cost": lambda z, u: cp.sum(cp.pos(u - z)), "constraints": [z >= own]},
        "cost": {"cost": lambda z, _: cp.sum(z) + 3 * cp.sum(cp.pos(own - z))},
    }[place]
    advice = rf"{place} holds the variable demand, .* uncertain_constraints=lambda z, u: .* decision=\[\.\.\., demand\]"
    with pytest.raises(ValueError, match=advice):
        ph.DecisionProblem(decision=z, n_outcomes=n, **mistaken)


@pytest.mark.parametrize(
    "auxiliary", [cp.Variable(2, nonneg=True), cp.Variable(2, bounds=[-9, 9]), cp.Variable(3), cp.Variable((1, 2))]
)
def test_auxiliary_variables_that_cannot_stand_for_the_outcome_stay_welcome(auxiliary: cp.Variable) -> None:
    cost = problem().cost
    moved = replace(problem(), constraints=[cp.norm1(auxiliary) <= 4, auxiliary[0] >= -1])
    assert moved.layout.names == ("z",)
    in_cost = cp.Variable(2)
    ph.DecisionProblem(
        decision=cp.Variable(2, nonneg=True), cost=lambda z, u: cost(z, u) + cp.norm1(in_cost), n_outcomes=2
    )
    z = [cp.Variable(2, nonneg=True), cp.Variable(2)]  # declared
    ph.DecisionProblem(decision=z, cost=lambda z, u: cost(z[0], u), constraints=[z[0] >= z[1]], n_outcomes=2)


def test_a_cost_is_a_function_and_profits_are_costs_below_zero() -> None:
    with pytest.raises(TypeError, match=r"cost=lambda z, u: u @ z; to maximise a profit, return minus"):
        problem(cp.Maximize(cp.Variable()))


def test_names_of_calibrators_lead_to_their_classes() -> None:
    with pytest.raises(TypeError, match=r'got \'ByCategory\'.*calibration=ByCategory\("store"\)'):
        decider(calibration="ByCategory").fit(X, Y)


def test_a_missing_value_is_noted_at_its_row(fitted: ph.RobustDecider) -> None:
    with pytest.warns(ph.CodedWarning, match="1 of 5 decisions: not decided.*booked is missing"):
        frame = fitted.decide(X[:5].assign(booked=[1.0, 2.0, 3.0, np.nan, 5.0])).to_frame()
    assert list(frame.index[frame["status"] == "not decided"]) == [X.index[3]]
