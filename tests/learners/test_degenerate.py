"""Degenerate problems and data: every learner gives a right answer, or an error that says what to do."""

import re

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
from polyhedge.learners import CCG, Auto, Certified, Descent, OneSidedBox, PcaBox, Pinball, Samples, Scenario
from polyhedge.learners.samples import standard_deviations
from polyhedge.problems import NoSolutionError
from polyhedge.robust import decide
from polyhedge_study.learners.boxes import MinVolume, RotatedBoxGrid
from polyhedge_study.learners.miqcp import MIQCP
from shared import simplex

N, ALPHA, RANK = 20, 0.2, 17

LEARNERS = {
    "CCG": CCG(contexts=2),
    "Descent": Descent(n_steps=2),
    "OneSidedBox": OneSidedBox(),
    "Pinball": Pinball(n_steps=4, n_starts=1),
    "RotatedBoxGrid": RotatedBoxGrid(n_angles=2, n_aspects=1),
    "Scenario": Scenario(max_work=1e4),
}
ALL_LEARNERS = LEARNERS | {
    "Auto": Auto(),
    "Certified": Certified(OneSidedBox(), max_work=2e4),
    "MIQCP": MIQCP(max_nodes=20),
    "MinVolume": MinVolume(n_angles=2, n_aspects=1),
    "PcaBox": PcaBox(),
}


def unit_box(z):
    return [z >= 0, z <= 1]


def newsvendor(z, u):
    return cp.sum(0.7 * cp.pos(u - z) + 0.3 * cp.pos(z - u))


def write(cost, constraints, d=2, **parts):
    z = cp.Variable(d)
    return ph.DecisionProblem(decision=z, cost=cost, constraints=constraints(z), n_outcomes=d, **parts)


SOLVABLE = {
    "doing nothing is best": lambda: write(lambda z, u: u @ z, unit_box),
    "constant cost": lambda: write(lambda z, u: 3.0 + 0 * cp.sum(z), simplex),
    "no outcome in the cost": lambda: write(lambda z, u: cp.sum_squares(z) + 0 * (u @ z), unit_box),
    "no decision in the cost": lambda: write(lambda z, u: u[0] + 0 * z[0], unit_box),
    "one decision": lambda: write(lambda z, u: u @ z, lambda z: [z == np.array([0.3, 0.7])]),
    "the decision zero": lambda: write(lambda z, u: u @ z, lambda z: [z == 0]),
    "unbounded decisions, curved cost": lambda: write(lambda z, u: u @ z + cp.sum_squares(z), lambda z: []),
    "unbounded newsvendor": lambda: write(newsvendor, lambda z: []),
    "one outcome": lambda: write(newsvendor, unit_box, d=1),
    "simplex": lambda: write(lambda z, u: u @ z, simplex),
}
ALL_SOLVABLE = SOLVABLE | {
    "convex cost": lambda: write(lambda z, u: cp.square(u[0] - z[0]) + cp.sum_squares(z), unit_box)
}
NO_SOLUTION = {
    "cost without a least value": lambda: write(lambda z, u: u @ z, lambda z: []),
    "no feasible decision": lambda: write(
        lambda z, u: u @ z, unit_box, uncertain_constraints=lambda z, u: [z[0] >= 9 + u[0]]
    ),
}


DATA = ("equal residuals", "no residuals", "repeated residuals", "an outcome that does not vary", "equal predictions")


def draw(d, kind="plain"):
    rng = np.random.default_rng(0)
    residuals, centers = rng.normal(size=(N, d)), 5 + rng.random(size=(N, d))
    if kind == "equal residuals":
        residuals[:] = residuals[0]
    elif kind == "no residuals":
        residuals[:] = 0.0
    elif kind == "repeated residuals":
        residuals = np.repeat(residuals[: N // 4], 4, axis=0)
    elif kind == "an outcome that does not vary":
        residuals[:, 0] = 0.1
    elif kind == "equal predictions":
        centers[:] = centers[0]
    return residuals, centers


DOES_NOT_APPLY = r"(No certificate is available|needs|does not apply|no hull with volume|must be a maximum).*Descent"


def check_answer(learner, problem, residuals, centers):
    """A set that covers the rank, decisions with finite bounds, and no claim below what is reached."""
    try:
        result = learner.learn(Samples(residuals, centers, problem, ALPHA), random_state=0)
    except ValueError as error:
        if re.search(DOES_NOT_APPLY, str(error)) is None:
            raise
        return
    assert np.isfinite(result.objective)
    assert result.lower_bound <= result.objective
    assert result.set.is_bounded
    inside = result.set.contains(residuals, 1e-9 * (1 + np.abs(residuals).max()))
    assert inside.sum() >= RANK
    found = decide(problem, result.set, 0.0, centers[:3])
    assert found.is_optimal.all()
    assert np.isfinite(found.cost_bound).all()


# Every other learner of each problem, in turn; the slow tests take all of them.
IN_TURN = [(name, learner) for i, name in enumerate(SOLVABLE) for learner in list(LEARNERS)[i % 2 :: 2]]


@pytest.mark.parametrize(("name", "learner"), IN_TURN)
def test_degenerate_problems_have_answers(name, learner):
    problem = SOLVABLE[name]()
    check_answer(LEARNERS[learner], problem, *draw(problem.n_outcomes))


@pytest.mark.slow
@pytest.mark.parametrize("learner", ALL_LEARNERS)
@pytest.mark.parametrize("name", ALL_SOLVABLE)
@pytest.mark.parametrize("kind", ["plain", "equal residuals"])
def test_degenerate_problems_have_answers_from_all_learners(name, learner, kind):
    if learner == "MIQCP":
        pytest.importorskip("pyscipopt")
    problem = ALL_SOLVABLE[name]()
    check_answer(ALL_LEARNERS[learner], problem, *draw(problem.n_outcomes, kind))


@pytest.mark.parametrize("learner", ["Descent", "RotatedBoxGrid", "Scenario"])
@pytest.mark.parametrize("kind", DATA)
def test_degenerate_data_have_answers(kind, learner):
    check_answer(LEARNERS[learner], SOLVABLE["simplex"](), *draw(2, kind))


def test_a_convex_cost_of_equal_residuals_has_an_answer():
    check_answer(PcaBox(max_contexts=2), ALL_SOLVABLE["convex cost"](), *draw(2, "equal residuals"))


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("name", NO_SOLUTION)
def test_where_there_is_no_decision_the_error_says_what_to_do(name, learner):
    with pytest.raises(ValueError, match=r"[Bb]ound|Relax|Descent"):
        LEARNERS[learner].learn(Samples(*draw(2), NO_SOLUTION[name](), ALPHA), random_state=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLVABLE)
def test_the_default_fit_of_a_degenerate_problem_holds_its_bound(name):
    rng = np.random.default_rng(1)
    problem = SOLVABLE[name]()
    X = rng.normal(size=(300, problem.n_outcomes))
    Y = X + 5 + 0.1 * rng.normal(size=X.shape)
    decider = ph.RobustDecider(problem, random_state=0).fit(X[:200], Y[:200])
    rows = decider.measure(X[200:], Y[200:])
    assert rows.held[rows.inside].all()
    assert np.isfinite(rows.cost_bound).all()


@pytest.mark.parametrize("name", NO_SOLUTION)
def test_the_default_fit_of_a_problem_without_a_solution_says_so(name):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 2))
    decider = ph.RobustDecider(NO_SOLUTION[name](), random_state=0)
    with pytest.raises(NoSolutionError, match="Relax the constraints, bound the decision"):
        decider.fit(X, X + 5 + rng.normal(size=(120, 2)))


def test_a_set_for_decisions_that_no_outcome_matters_to_costs_what_they_cost():
    residuals, centers = draw(2)
    problem = SOLVABLE["doing nothing is best"]()
    for n_facets in (None, 3):
        result = Scenario(n_facets=n_facets).learn(Samples(residuals[:10], centers[:4], problem, ALPHA))
        assert result.objective == pytest.approx(0.0, abs=1e-9)
        assert result.gap == pytest.approx(0.0, abs=1e-9)


def test_columns_that_do_not_vary_take_the_scale_of_the_others():
    values = np.column_stack([np.full(7, 0.1), np.arange(7.0)])
    assert standard_deviations(values) == pytest.approx([2.0, 2.0])
    assert standard_deviations(np.full((4, 2), 0.1)) == pytest.approx([0.1, 0.1])
    assert standard_deviations(np.zeros((4, 1))) == 1.0
