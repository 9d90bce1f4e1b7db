"""No answer of a solver is believed: whatever it says of itself, a wrong bound is never called optimal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import clarabel
import cvxpy as cp
import highspy
import numpy as np
import pytest
import scipy.sparse as sp

import polyhedge as ph
from polyhedge.learners import Samples, lower_bound
from polyhedge.planning import PolicyReport, ScenarioPolicy
from polyhedge.planning.costs import PlanningProblem
from polyhedge.planning.policies import Rule, fit_planner
from polyhedge.planning.report import Entry
from polyhedge.planning.residual_distributions import Uniform
from polyhedge.regions import LearnedSet, SetPolicy
from polyhedge.regions.cost_guard import GuardRegions
from polyhedge.robust import decide
from polyhedge.robust.counterpart import Counterpart
from polyhedge.robust.engine.batch import batch_engine
from polyhedge.robust.engine.parametric import ContextSolver
from polyhedge.sets import Ball, Box, Ellipsoid, Polyhedron
from polyhedge.solvers import conic
from polyhedge.solvers.program import Cone, ConicProgram, Scaling, Solution, Status
from polyhedge.solvers.verify import Verifier, in_dual_cone, nothing_known, outside
from polyhedge_study.learners import bilinear

OPTIMAL = highspy.HighsModelStatus.kOptimal


def _nan(answer: SimpleNamespace) -> None:
    answer.x = np.full(len(answer.x), np.nan)


def _infeasible(answer: SimpleNamespace) -> None:
    answer.x = answer.x - 1.0


def _objective(answer: SimpleNamespace) -> None:
    answer.value, answer.bound = answer.value - 100.0, answer.bound - 100.0


def _high_objective(answer: SimpleNamespace) -> None:
    answer.value, answer.bound = answer.value + 100.0, answer.bound + 100.0


def _status(answer: SimpleNamespace) -> None:
    answer.is_optimal, answer.x, answer.y = True, np.zeros(len(answer.x)), np.zeros(len(answer.y))


def _duals(answer: SimpleNamespace) -> None:
    answer.y = -answer.y - 1.0


def _nan_duals(answer: SimpleNamespace) -> None:
    answer.y = np.full(len(answer.y), np.nan)


def _huge_duals(answer: SimpleNamespace) -> None:
    answer.y = 1e16 * answer.y


LIES: dict[str, Callable[[SimpleNamespace], None]] = {
    "nan": _nan,
    "infeasible": _infeasible,
    "objective too low": _objective,
    "objective too high": _high_objective,
    "status": _status,
    "duals": _duals,
    "nan duals": _nan_duals,
    "huge duals": _huge_duals,
}


class LyingHighs:
    """HiGHS with one thing wrong in what it says."""

    lie: Callable[[SimpleNamespace], None]
    honest = highspy.Highs

    def __init__(self) -> None:
        self.inside = self.honest()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)

    def told(self) -> SimpleNamespace:
        info, solution = self.inside.getInfo(), self.inside.getSolution()
        rows = np.array(solution.row_dual)
        answer = SimpleNamespace(
            x=np.array(solution.col_value),
            y=np.concatenate([rows, solution.col_dual]),
            value=info.objective_function_value,
            bound=info.mip_dual_bound,
            is_optimal=self.inside.getModelStatus() == OPTIMAL,
        )
        type(self).lie(answer)
        answer.rows, answer.columns = answer.y[: len(rows)], answer.y[len(rows) :]
        return answer

    def getModelStatus(self) -> Any:
        return OPTIMAL if self.told().is_optimal else self.inside.getModelStatus()

    def getObjectiveValue(self) -> float:
        return float(self.told().value)

    def getSolution(self) -> Any:
        told = self.told()
        return SimpleNamespace(
            col_value=told.x.tolist(), row_dual=told.rows.tolist(), col_dual=told.columns.tolist(), value_valid=True
        )

    def getInfo(self) -> Any:
        told = self.told()
        nodes = self.inside.getInfo().mip_node_count
        return SimpleNamespace(objective_function_value=told.value, mip_dual_bound=told.bound, mip_node_count=nodes)


class LyingClarabel:
    """Clarabel with one thing wrong in what it says."""

    lie: Callable[[SimpleNamespace], None]
    honest = clarabel.DefaultSolver

    def __init__(self, *problem: Any) -> None:
        self.inside = self.honest(*problem)

    def update(self, **numbers: Any) -> None:
        self.inside.update(**numbers)

    def solve(self) -> Any:
        found = self.inside.solve()
        answer = SimpleNamespace(
            x=np.array(found.x), y=np.array(found.z), value=found.obj_val, bound=found.obj_val_dual, is_optimal=False
        )
        type(self).lie(answer)
        status = "Solved" if answer.is_optimal else str(found.status)
        return SimpleNamespace(
            status=status, x=answer.x, z=answer.y, obj_val=answer.value, obj_val_dual=answer.bound, s=found.s
        )


@contextmanager
def lying(monkeypatch: pytest.MonkeyPatch, who: str, lie: str) -> Iterator[None]:
    with monkeypatch.context() as patch:
        if who in ("highs", "both"):
            patch.setattr(highspy, "Highs", type("Liar", (LyingHighs,), {"lie": staticmethod(LIES[lie])}))
        if who in ("clarabel", "both"):
            patch.setattr(clarabel, "DefaultSolver", type("Liar", (LyingClarabel,), {"lie": staticmethod(LIES[lie])}))
        yield


W = np.array([[1.0, 0.2, 0.0], [0.0, 1.0, 0.3], [-0.2, 0.0, 1.0], [-1.0, -1.0, -1.0]])
HULL = Polyhedron(W, -np.array([1.0, 0.7, 0.9, 1.2]))
FLAT = Polyhedron(np.array([[1.0, 0.2], [0.1, 1.0], [-1.0, -1.0]]), -np.array([1.0, 0.7, 1.2]))
CENTERS = np.array([[0.3, -0.2, 0.5], [1.0, 0.4, -0.3]])
MANY = np.random.default_rng(0).normal(size=(70, 3))


def budget(d: int, cost: Any = None, **options: Any) -> ph.DecisionProblem:
    z = cp.Variable(d, **options.pop("attributes", {"nonneg": True}))
    linear = lambda z, u: u @ z  # noqa: E731
    return ph.DecisionProblem(
        decision=z,
        cost=cost or linear,
        constraints=[cp.sum(z) == 2, z <= 1.5, *options.pop("rows", lambda z: [])(z)],
        n_outcomes=d,
        **options,
    )


def shelf(z: Any, u: Any) -> Any:
    return cp.sum(cp.pos(z - u) + 3 * cp.pos(u - z))


def around(shape: Any, radius: float = 0.1) -> Callable[[ph.DecisionProblem], ph.Decisions]:
    return lambda problem: decide(problem, shape, radius, CENTERS[:, : shape.n_outcomes])


WHOLE = {"attributes": {"integer": True}, "rows": lambda z: [z >= 0]}
Route = tuple[Callable[[], ph.DecisionProblem], Callable[[ph.DecisionProblem], ph.Decisions]]
ROUTES: dict[str, Route] = {
    "segment": (lambda: budget(2), around(FLAT)),
    "batch": (lambda: budget(3), lambda p: decide(p, HULL, 0.1, MANY)),
    "counterpart": (lambda: budget(3), around(HULL)),
    "a row said twice": (lambda: budget(3, rows=lambda z: [cp.sum(z) == 2]), around(HULL)),
    "pieces": (lambda: budget(3, lambda z, u: cp.maximum(u @ z, 2 * u @ z - 1)), around(HULL)),
    "fixed directions": (lambda: budget(3, lambda z, u: cp.max(u - z)), around(HULL)),
    "quadratic": (lambda: budget(3, lambda z, u: u @ z + cp.sum_squares(z)), around(HULL)),
    "conic": (lambda: budget(3), around(Ellipsoid(np.diag([1.0, 2.0, 0.5])), 0.4)),
    "conic decisions": (lambda: budget(3, rows=lambda z: [cp.sum(cp.exp(z)) <= 7.0]), around(Box(np.ones(3)), 0.4)),
    "support": (lambda: budget(3, outcome_support=lambda u: [u >= -0.5]), around(HULL)),
    "uncertain constraints": (lambda: budget(3, uncertain_constraints=lambda z, u: [u @ z <= 4.5]), around(HULL)),
    "integers": (lambda: budget(3, **WHOLE), around(HULL)),
    "integers and cones": (lambda: budget(3, **WHOLE), around(Ball(3), 0.4)),
    "vertices": (lambda: budget(2, lambda z, u: cp.sum_squares(z - u)), around(FLAT)),
    "sum of maxima": (lambda: budget(3, shelf), around(HULL)),
    "concave": (lambda: budget(2, lambda z, u: cp.sum(cp.sqrt(u + 5)) + u @ z), around(FLAT)),
}
QUICK = [(route, "highs" if route == "batch" else "both") for route in sorted(ROUTES)]
REST = [(route, who) for route in sorted(ROUTES) for who in ("highs", "clarabel", "both") if (route, who) not in QUICK]


def _short(answer: SimpleNamespace) -> None:
    answer.x = answer.x[:-1]


def _long_duals(answer: SimpleNamespace) -> None:
    answer.y = np.append(answer.y, 0.0)


WRONG_LENGTHS = [*((route, _short) for route in ("quadratic", "conic", "counterpart", "integers"))]
WRONG_LENGTHS += [(route, _long_duals) for route in ("quadratic", "conic")]


@pytest.mark.parametrize(("route", "lie"), WRONG_LENGTHS)
def test_an_answer_with_too_few_or_too_many_numbers_is_no_answer(
    route: str, lie: Callable[[SimpleNamespace], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, run = ROUTES[route]
    problem = make()
    problem.pieces, problem.feasible, problem.support_rows  # noqa: B018 (compiled while solvers are honest)
    monkeypatch.setitem(LIES, "short", lie)
    with lying(monkeypatch, "both", "short"):
        assert set(run(problem).status) == {ph.Status.FAILED}


@pytest.mark.parametrize(("route", "who"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)])
def test_what_a_lying_solver_says_is_never_a_wrong_bound_called_optimal(
    route: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, run = ROUTES[route]
    problem = make()
    problem.pieces, problem.feasible, problem.support_rows  # noqa: B018 (compiled while solvers are honest)
    honest = run(problem)
    assert honest.is_optimal.all()
    for lie in LIES:
        with lying(monkeypatch, who, lie):
            found = run(problem.labelled())
        right = np.abs(found.cost_bound - honest.cost_bound) <= 1e-5
        assert (right | ~found.is_optimal).all(), (lie, found.cost_bound, honest.cost_bound)
        z = found.flat[found.is_optimal]
        assert (np.abs(z.sum(axis=1) - 2) <= 1e-5).all(), lie


@pytest.mark.parametrize("size", [1e6, *(pytest.param(size, marks=pytest.mark.slow) for size in (1e8, 1e12)), 1e16])
@pytest.mark.parametrize("who", ["highs", "both"])
@pytest.mark.parametrize("route", ["batch", "a row said twice", "quadratic"])
def test_multipliers_of_any_size_do_not_make_a_wrong_bound_right(
    route: str, who: str, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where programs are seen from, nor what is at stake, may be the word of a solver that was not proven."""
    make, run = ROUTES[route]
    problem = make()
    honest = run(problem)

    def lie(answer: SimpleNamespace) -> None:
        # Of an equation that is said twice any multiple may be moved from one row to the other.
        answer.y = size * answer.y
        if route == "a row said twice":
            answer.y[:2] += [size, -size]
            answer.x = np.roll(answer.x, 1)

    monkeypatch.setitem(LIES, "large", lie)
    with lying(monkeypatch, who, "large"):
        found = run(problem.labelled())
    right = np.abs(found.cost_bound - honest.cost_bound) <= 1e-5
    assert (right | ~found.is_optimal).all()
    gaps = found.gap[found.is_optimal]
    assert (gaps <= 1e-5 * (1 + np.abs(honest.cost_bound[found.is_optimal]))).all()


TWICE = ConicProgram(  # x_0 + x_1 = 1 is said twice; the least of x_0 + 2 x_1 is at (1, 0)
    c=np.array([1.0, 2.0]),
    A=sp.csr_array([[1.0, 1.0], [1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]),
    b=np.array([1.0, 1.0, 0.0, 0.0]),
    cones=(Cone("zero", 2), Cone("nonneg", 2)),
)


@pytest.mark.parametrize("much", [1e6, 1e10, 1e14, 1e16])
def test_multipliers_that_are_moved_between_rows_which_say_the_same_make_no_more_of_what_is_at_stake(much) -> None:
    point = Solution(np.array([0.0, 1.0]), np.array([much - 1, -much, 0.0, 1.0]), np.nan, Status.OPTIMAL)
    judged = Verifier(TWICE, Scaling.of(TWICE)).verify(TWICE, point)
    assert judged.status is not Status.OPTIMAL
    assert judged.size < 1e3


def test_prices_that_make_costs_larger_by_far_are_not_where_a_program_is_seen_from() -> None:
    frame, x, y = Scaling.of(TWICE), np.array([1.0, 0.0]), np.array([-1.0, 0.0, 0.0, 1.0])
    assert frame.around(TWICE, x, y).prices.tolist() == [-1.0, 0.0, 0.0, 0.0]
    assert frame.around(TWICE, x, 1e9 * y) is frame


def test_programs_are_seen_from_proven_solutions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    parametric = Counterpart(budget(3), HULL, 0.1).parametric
    assert parametric.scaling_at(CENTERS[0]).prices.any()
    with lying(monkeypatch, "both", "duals"):
        assert not parametric.scaling_at(CENTERS[0]).prices.any()


def test_no_batch_starts_from_a_decision_that_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    counterpart, reach = Counterpart(budget(3), HULL, 0.1), np.ones(3)
    assert batch_engine(counterpart, CENTERS[0], reach) is not None
    honest = ContextSolver.solve
    early = lambda self, center: replace(honest(self, center), status=Status.STOPPED_EARLY)  # noqa: E731
    monkeypatch.setattr(ContextSolver, "solve", early)
    assert batch_engine(counterpart, CENTERS[0], reach) is None


def test_a_program_without_a_point_is_believed_where_no_other_solver_finds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = budget(3, uncertain_constraints=lambda z, u: [u @ z <= 4.5])
    honest = decide(problem, HULL, 0.1, CENTERS)
    monkeypatch.setattr(highspy, "Highs", type("Liar", (LyingHighs,), {"lie": staticmethod(lambda answer: None)}))
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda self: highspy.HighsModelStatus.kInfeasible)
    found = decide(problem.labelled(), HULL, 0.1, CENTERS)
    assert found.is_optimal.all()
    assert found.cost_bound == pytest.approx(honest.cost_bound, abs=1e-5)


@pytest.mark.parametrize("route", ["segment", "counterpart", "pieces", "uncertain constraints"])
def test_where_one_solver_lies_about_a_linear_program_another_one_answers(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, run = ROUTES[route]
    problem = make()
    honest = run(problem)
    with lying(monkeypatch, "highs", "infeasible"):
        found = run(problem.labelled())
    assert found.is_optimal.all()
    assert found.cost_bound == pytest.approx(honest.cost_bound, abs=1e-5)


# Plans

PLANNED: dict[str, Callable[[], ph.DecisionProblem]] = {
    "prices change": lambda: budget(3),
    "limits change": lambda: budget(3, shelf),
    "cones": lambda: budget(3, rows=lambda z: [cp.sum(cp.exp(z)) <= 7.0]),
    "quadratic": lambda: budget(3, lambda z, u: u @ z + cp.sum_squares(z)),
    "integers": lambda: budget(3, **WHOLE),
    "no pieces": lambda: budget(3, lambda z, u: cp.sum_squares(z - u)),
    "robust": lambda: budget(3),
}


# A solver's multipliers have no part in these: of whole decisions the search's bound is the proof, and a walk over
# corners and sorted residuals have proofs of their own.
OWN_PROOF = ("integers", "prices change", "limits change")


def plan_of(problem: ph.DecisionProblem, is_robust: bool) -> Any:
    """The least mean cost under a distribution, or the min-max decision over a set; the expected cost is what it
    minimises."""
    if is_robust:
        predictor = ph.predictors.as_predictor("precomputed", 3)
        return SetPolicy(LearnedSet(problem, predictor, HULL), 0.1)
    distribution, seen = Uniform(MANY[:9]), PlanningProblem(problem)
    planner = fit_planner(seen, Rule("uniform"), distribution, MANY[:5], MANY[:5], np.zeros((5, 0)))
    report = PolicyReport((Entry("mean", 0.0, 0.0, 1.0),), 0.1, 0.5, 5)
    return ScenarioPolicy(problem, (planner,), (1.0,), distribution, 0.8, report)


@pytest.mark.parametrize("way", sorted(PLANNED))
def test_a_planned_decision_is_called_optimal_only_where_no_lie_can_have_spoiled_it(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = PLANNED[way]()
    policy = plan_of(problem, way == "robust")
    least = attrgetter("v" if policy.kind == "set" else "expected")
    honest = policy.decide(CENTERS, CENTERS, np.zeros((2, 0)))
    assert set(honest.status) == {ph.Status.OPTIMAL}
    for lie in LIES:
        fresh = plan_of(PLANNED[way](), way == "robust")  # a policy that has decided keeps a program that was solved
        with lying(monkeypatch, "both", lie):
            found = fresh.decide(CENTERS, CENTERS, np.zeros((2, 0)))
        is_optimal = found.status == ph.Status.OPTIMAL
        assert (np.abs(least(found) - least(honest)) <= 1e-4)[is_optimal].all(), lie
        assert lie != "duals" or way in OWN_PROOF or not is_optimal.any()
        z = found.z[[status.has_solution for status in found.status]]
        assert (np.abs(z.sum(axis=1) - 2) <= 1e-5).all(), lie
        assert (z >= -1e-5).all(), lie
        guarded = GuardRegions(problem, CENTERS, np.zeros((2, 0)), found).decide(np.zeros(2))
        assert (guarded.gap[~guarded.is_optimal] > 0).all(), lie


# Learners


def newsvendor(d: int) -> ph.DecisionProblem:
    z = cp.Variable(d, nonneg=True)
    return ph.DecisionProblem(
        decision=z, cost=lambda z, u: cp.max(cp.maximum(2 * (z - u), 3 * (u - z))), constraints=[z <= 5], n_outcomes=d
    )


def samples(problem: ph.DecisionProblem, n_contexts: int) -> Samples:
    rng = np.random.default_rng(3)
    residuals, centers = rng.normal(size=(2, 8, problem.n_outcomes))
    return Samples(residuals, centers[:n_contexts], problem.labelled(), 0.3)


BUDGET, SHOP = budget(3), newsvendor(2)
CERTIFICATES: dict[str, Callable[[], Any]] = {
    "selection": lambda: lower_bound(samples(BUDGET, 8)),
    "one context": lambda: lower_bound(samples(BUDGET, 1)),
    "fixed directions": lambda: lower_bound(samples(SHOP, 8)),
    "scenario": lambda: ph.learners.Scenario().learn(samples(SHOP, 8)),
    "ccg": lambda: ph.learners.CCG(max_iterations=4).learn(samples(BUDGET, 1), 0),
}
LEARNED = [(name, "both") for name in ("fixed directions", "one context")]
LEARNED_SLOWLY = [
    (name, who) for name in sorted(CERTIFICATES) for who in ("highs", "clarabel", "both") if (name, who) not in LEARNED
]


def lower_upper(result: Any) -> tuple[float, float]:
    return (result.lower, result.upper) if hasattr(result, "upper") else (result.lower_bound, result.objective)


@pytest.mark.parametrize(
    ("name", "who"), [*LEARNED, *(pytest.param(*case, marks=pytest.mark.slow) for case in LEARNED_SLOWLY)]
)
def test_no_certificate_rests_on_the_word_of_a_lying_solver(
    name: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for problem in (BUDGET, SHOP):
        problem.pieces, problem.feasible, problem.support_rows  # noqa: B018 (compiled while solvers are honest)
    least = lower_upper(CERTIFICATES[name]())[1]
    for lie in LIES:
        with lying(monkeypatch, who, lie), suppress(RuntimeError, ValueError):
            result = CERTIFICATES[name]()
            lower, upper = lower_upper(result)
            assert lower <= least + 1e-5, lie
            assert result.status is not ph.Status.OPTIMAL or upper == pytest.approx(least, abs=1e-5), lie


@pytest.mark.parametrize("lie", sorted(LIES))
def test_a_lying_bilinear_solver_is_never_optimal(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = bilinear.BilinearProgram(
        c=np.array([1.0, 1.0, 0.5]),
        A=sp.csr_array([[0.0, 0.0, 1.0]]),
        row_lower=np.array([2.0]),
        row_upper=np.array([np.inf]),
        products=np.array([[0, 0, 1]]),
        product_values=np.ones(1),
        lower=np.zeros(3),
        upper=np.full(3, 4.0),
        integer=np.array([2]),
    )
    best = np.array([0.0, 0.0, 2.0])  # x0 x1 + x2 >= 2 at 0.5 a whole x2
    answer = SimpleNamespace(x=best, y=np.zeros(0), value=1.0, bound=1.0, is_optimal=True)

    def ask(*_: Any) -> dict[str, Any]:
        return {"x": answer.x, "value": answer.value, "bound": answer.bound, "status": "OPTIMAL", "detail": ""}

    monkeypatch.setattr(bilinear, "check_installed", lambda: None)
    monkeypatch.setattr(bilinear, "_ask_child", ask)
    honest = bilinear.solve_bilinear(program)
    assert (honest.status, honest.value) == (ph.Status.OPTIMAL, 1.0)
    LIES[lie](answer)
    found = bilinear.solve_bilinear(program)
    assert found.status is not ph.Status.OPTIMAL or found.value == found.lower_bound == 1.0


# Cones


def members(rng: np.random.Generator, cone: Cone) -> np.ndarray:
    """A point of a cone."""
    if cone.kind == "soc":
        tail = rng.normal(size=cone.size - 1)
        return np.append(np.linalg.norm(tail) + rng.exponential(), tail)
    if cone.kind == "rotated":
        tail, side = rng.normal(size=cone.size - 2), 0.1 + rng.exponential()
        return np.append([side, float(tail @ tail) / side + rng.exponential()], tail)
    if cone.kind == "psd":
        root = rng.normal(size=(cone.size, 2))
        columns, rows = np.tril_indices(cone.size)
        return (root @ root.T)[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2))
    x, y = rng.normal(), 0.1 + rng.exponential()
    if cone.kind == "exp":
        return np.array([x, y, y * np.exp(x / y) + rng.exponential()])
    top = abs(x) ** cone.exponent * y ** (1 - cone.exponent)
    return np.array([abs(x), y, rng.uniform(-top, top)])


CONES = [Cone("soc", 4), Cone("rotated", 5), Cone("psd", 3), Cone("exp", 3), Cone("pow", 3, 0.3), Cone("pow", 3, 0.8)]


@pytest.mark.parametrize("cone", CONES, ids=str)
def test_multipliers_moved_into_the_dual_cone_have_no_negative_product_with_the_cone(cone: Cone) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        s, y = members(rng, cone), in_dual_cone(cone, rng.normal(size=cone.n_rows))
        assert outside(cone, s) <= 1e-12 * np.abs(s).max()
        assert s @ y >= -1e-12 * np.linalg.norm(s) * np.linalg.norm(y)
        assert in_dual_cone(cone, y) == pytest.approx(y, abs=1e-12)


@pytest.mark.parametrize("cone", CONES, ids=str)
def test_a_point_outside_a_cone_is_as_far_as_any_plane_between_them_says(cone: Cone) -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        s, y = 2 * rng.normal(size=cone.n_rows), in_dual_cone(cone, rng.normal(size=cone.n_rows))
        # Of psd cones the least eigenvalue is told, which is the distance divided by at most the root of the order.
        assert outside(cone, s) * np.sqrt(3) * np.linalg.norm(y) >= -(s @ y) - 1e-9


@pytest.mark.parametrize("cone", CONES, ids=str)
def test_a_point_outside_a_cone_or_with_multipliers_outside_its_dual_is_not_optimal(cone: Cone) -> None:
    rng = np.random.default_rng(2)
    n = cone.n_rows
    y = in_dual_cone(cone, rng.normal(size=n))
    # Minimise y'x over the cone: x = 0 is best, and y proves it.
    program = ConicProgram(y, sp.csr_array(-np.eye(n)), np.zeros(n), (cone,))
    verifier = Verifier(program, Scaling.of(program))
    claim = Solution(np.zeros(n), y, np.nan, ph.Status.OPTIMAL)
    assert verifier.verify(program, claim).status is ph.Status.OPTIMAL
    outer = -members(rng, cone)
    assert verifier.verify(program, replace(claim, x=outer)).status is not ph.Status.OPTIMAL
    other = replace(program, c=-members(rng, cone))  # has no least value: whatever proves one is not in the dual cone
    verifier = Verifier(other, Scaling.of(other))
    assert verifier.verify(other, replace(claim, y=other.c)).status is not ph.Status.OPTIMAL


# Size


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9, 1e12])
def test_optimal_means_a_gap_that_is_small_beside_the_terms_of_the_value_however_far_units_lie(far: float) -> None:
    """A column that stands nowhere and has a far unit does not make a gap small."""
    A = sp.csr_array([[1.0, 0.0], [-1.0, 0.0], [0.0, -1 / far], [0.0, 1 / far]])
    program = ConicProgram(np.array([1.0, 1.0]), A, np.array([1.0, 1.0, 0.0, 1.0]), (Cone("nonneg", 4),))
    verifier = Verifier(program, Scaling.of(program))
    for short in (1e-3, 1e-4, 1e-5):
        x, y = np.array([-1 + short, 0.0]), np.array([0.0, 1.0, far, 0.0])
        claimed = verifier.verify(program, Solution(x, y, np.nan, ph.Status.OPTIMAL))
        assert claimed.gap == pytest.approx(short)
        assert claimed.status is ph.Status.STOPPED_EARLY
    best = verifier.verify(program, Solution(np.array([-1.0, 0.0]), y, np.nan, ph.Status.OPTIMAL))
    assert best.status is ph.Status.OPTIMAL


@pytest.mark.parametrize("tiny", [1e-6, 1e-9, 1e-12])
def test_facets_with_tiny_entries_and_fixed_decisions_have_small_gaps_or_are_not_called_optimal(tiny: float) -> None:
    rng = np.random.default_rng(0)
    W = np.vstack([np.eye(3), -np.eye(3), rng.normal(size=(2, 3))])
    W[0, 1], W[3, 2], W[4, 0] = tiny, -tiny, tiny
    problems = [
        budget(3, lambda z, u: u @ z + cp.sum_squares(z)),
        budget(3, rows=lambda z: [z == np.array([1.0, 0.5, 0.5]), cp.exp(z[0]) <= 3 / tiny**0.5]),
    ]
    for problem in problems:
        found = decide(problem, Polyhedron(W, -np.ones(8)), 0.3, CENTERS)
        assert (found.gap[found.is_optimal] <= 2e-6 * np.maximum(1.0, np.abs(found.cost_bound[found.is_optimal]))).all()


@pytest.mark.parametrize(
    "cost", [lambda z, u: cp.sum_squares(z - u), lambda z, u: u @ z + cp.sum_squares(z)], ids=["scenarios", "pieces"]
)
def test_a_problem_that_has_decisions_is_never_called_infeasible_for_what_they_cost(
    cost: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = cp.Variable(2)
    problem = ph.DecisionProblem(decision=z, cost=cost, constraints=[cp.norm(z) <= 1], n_outcomes=2)
    honest = conic._read

    def lie(program: ConicProgram, *found: object) -> Solution:
        is_asked_for_any = not program.c.any() and program.P is None
        return honest(program, *found) if is_asked_for_any else nothing_known(program, Status.INFEASIBLE, "a lie")

    monkeypatch.setattr(conic, "_read", lie)
    found = decide(problem, ph.Box([1.0, 1.3]), 1.0, np.zeros((3, 2)))
    assert set(found.status) == {Status.FAILED}
    assert "a lie is the solver's answer, but there are feasible decisions" in found.detail[0]
