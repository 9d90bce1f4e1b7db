"""What a user asks of solvers is done where it is asked for, and no answer is believed for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import polyhedge as ph
from polyhedge.robust.routes import Cache
from polyhedge.robust.threads import in_order
from polyhedge.solvers import solve as solving
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.options import solver_in_force
from polyhedge.solvers.program import Cone, ConicProgram, SolverError
from polyhedge.solvers.solve import solve
from shared import Given

CENTERS = np.random.default_rng(0).normal(size=(3, 3))


def _whole(curvature: float = 0.0) -> ph.DecisionProblem:
    z = cp.Variable(3, integer=True)
    return ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: u @ z + curvature * cp.sum_squares(z - 1.3),
        constraints=[z >= 0, z <= 5, cp.sum(z) >= 4, np.array([2.0, 1.0, 3.0]) @ z <= 9],
        n_outcomes=3,
    )


def _decided(problem: ph.DecisionProblem, solver: ph.Solver | None = None) -> ph.Decisions:
    with (solver or ph.Solver()).in_force():
        return ph.robust.decide(problem, ph.Box(np.ones(3)), 0.5, CENTERS)


def _knapsack(n: int = 25) -> ConicProgram:
    rng = np.random.default_rng(3)
    A = np.vstack([rng.uniform(0.5, 2.0, size=(2, n)), np.eye(n), -np.eye(n)])
    b = np.concatenate([[n / 4, n / 5], np.ones(n), np.zeros(n)])
    cones = (Cone("nonneg", len(b)),)
    return ConicProgram(-rng.uniform(1.0, 2.0, size=n), sp.csr_array(A), b, cones, integer=np.arange(n))


@pytest.mark.parametrize(("backend", "package"), [("scip", "pyscipopt"), ("gurobi", "gurobipy")])
@pytest.mark.parametrize("curvature", [0.0, 0.1])
def test_another_back_end_finds_what_highs_finds(backend: str, package: str, curvature: float) -> None:
    pytest.importorskip(package)
    problem = _whole(curvature)
    own, other = _decided(problem), _decided(problem, ph.Solver(backend=backend))
    assert all(status is ph.Status.OPTIMAL for status in other.status)
    np.testing.assert_allclose(other.cost_bound, own.cost_bound, rtol=1e-9)
    np.testing.assert_array_equal(other.z, own.z)


@pytest.mark.needs("pyscipopt")
class TestNoBackEndIsTrusted:
    def test_without_a_lower_bound_only_the_relaxation_proves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        known = solve(_knapsack())
        monkeypatch.delitem(solving._BOUNDS, "scip")
        with ph.Solver(backend="scip").in_force():
            found = solve(_knapsack())
        assert found.status is ph.Status.STOPPED_EARLY
        assert found.value == pytest.approx(known.value)
        assert found.value - found.gap < known.value - 1e-3

    @pytest.mark.parametrize(("error", "status"), [(1.0, ph.Status.FAILED), (-1.0, ph.Status.STOPPED_EARLY)])
    def test_a_wrong_lower_bound_is_never_optimal(
        self, monkeypatch: pytest.MonkeyPatch, error: float, status: ph.Status
    ) -> None:
        tell = solving._BOUNDS["scip"]
        monkeypatch.setitem(solving._BOUNDS, "scip", lambda told: tell(told) + error)
        with ph.Solver(backend="scip").in_force():
            assert solve(_knapsack()).status is status

    def test_a_search_that_stops_early_says_so_with_its_gap(self) -> None:
        known = solve(_knapsack())
        with ph.Solver(backend="scip", options={"scip_params": {"limits/gap": 0.5}}).in_force():
            found = solve(_knapsack())
        assert found.status is ph.Status.STOPPED_EARLY
        assert found.value - found.gap <= known.value + 1e-9 <= found.value + 2e-9

    def test_what_has_no_solution_is_told_as_ever(self) -> None:
        program = _knapsack(4)
        for b in (np.append(program.b[:2], [-1.0] * 4 + [0.0] * 4), np.append(program.b[:2], [0.7] * 4 + [-0.3] * 4)):
            with ph.Solver(backend="scip").in_force():
                empty = ConicProgram(program.c, program.A, b, program.cones, integer=program.integer)
                assert solve(empty).status is ph.Status.INFEASIBLE

    def test_searches_with_limits_of_the_caller_stay_with_highs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(solving, "solve_named", None)
        with ph.Solver(backend="scip").in_force():
            assert solve(_knapsack(), max_nodes=10_000).status is ph.Status.OPTIMAL

    def test_options_that_it_does_not_know_are_an_error(self) -> None:
        with (
            ph.Solver(backend="scip", options={"scip_params": {"limits/nonsense": 1}}).in_force(),
            pytest.raises(SolverError, match=r"backend='scip' refused .*limits/nonsense.*Check its licence and `opt"),
        ):
            solve(_knapsack())


def test_options_of_highs_reach_it_and_what_is_optimal_stays_the_same() -> None:
    exact = solve(_knapsack())
    with ph.Solver(highs={"mip_rel_gap": 0.5, "mip_heuristic_effort": 0.0}).in_force():
        rough = solve(_knapsack())
    assert exact.status is ph.Status.OPTIMAL
    assert rough.status is ph.Status.STOPPED_EARLY
    assert rough.gap > 1e-3


def test_options_of_clarabel_reach_it() -> None:
    program = ConicProgram(
        np.array([1.0, 1.0]), sp.csr_array(-np.eye(2)), np.zeros(2), (Cone("nonneg", 2),), P=sp.csr_array(np.eye(2))
    )
    with ph.Solver(clarabel={"max_iter": 1}).in_force():
        assert solve(program).status is not ph.Status.OPTIMAL
    assert solve(program).status is ph.Status.OPTIMAL


def test_a_time_limit_counts_for_each_solve_of_a_program_that_is_kept() -> None:
    with ph.Solver(time_limit=50).in_force():
        solver = LinearSolver(_knapsack())
    for _ in range(3):
        spent = solver.highs.getRunTime()  # HiGHS ends a run where the seconds of all runs are more than its limit
        solver.solve_cold()
        assert solver.highs.getOptionValue("time_limit")[1] == pytest.approx(spent + 50, abs=1e-9, rel=0)
    assert spent > 0


def test_a_choice_holds_in_threads_of_the_work_and_in_no_others() -> None:
    solver, seen = ph.Solver(time_limit=7), []
    with solver.in_force():
        assert list(in_order(lambda _: solver_in_force(), range(4), n_jobs=2)) == [solver] * 4
        thread = threading.Thread(target=lambda: seen.append(solver_in_force()))
        thread.start()
        thread.join()
    assert seen == [ph.Solver()]
    assert solver_in_force() == ph.Solver()


def test_programs_that_are_kept_are_not_shared_between_choices() -> None:
    kept, made = Cache(), []
    for solver in (ph.Solver(), ph.Solver(time_limit=7), ph.Solver(highs={"mip_rel_gap": 0.1}), ph.Solver()):
        with solver.in_force(), kept.entry("key", lambda: made.append(0) or object()):
            pass
    assert len(made) == 3


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"backend": "cplex"}, ImportError, "backend='cplex' is not among CVXPY's installed solvers"),
        ({"backend": "simplex"}, ValueError, "backend must be one of 'auto', 'scip', 'gurobi', .*, got 'simplex'"),
        ({"time_limit": 0}, ValueError, "time_limit must be a positive number of seconds or None, got 0"),
        ({"highs": {"nonsense": 1}}, ValueError, "highs has no option 'nonsense' of the value 1"),
        ({"highs": {"threads": 2}}, ValueError, "one number of threads for the whole process.* as n_jobs says"),
        ({"highs": {"time_limit": 2}}, ValueError, r"Say Solver\(time_limit=...\)"),
        ({"highs": 3}, TypeError, "highs must be a dictionary of options by name, got 3"),
        ({"clarabel": {"max_iter": "many"}}, TypeError, "max_iter"),
        ({"options": {"TimeLimit": 2}}, ValueError, "options are those of a back-end that is named"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_at_once(given: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        ph.Solver(**given)


class TestDeciders:
    X = np.random.default_rng(1).normal(size=(60, 3))
    Y = X + np.random.default_rng(2).normal(size=X.shape)

    def _decider(self, solver: Any) -> ph.RobustDecider:
        learner = Given(ph.Box(np.ones(3)))
        return ph.RobustDecider(_whole(), "precomputed", learner=learner, solver=solver, random_state=0)

    @pytest.mark.needs("pyscipopt")
    def test_it_is_in_force_in_what_a_decider_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked, solve_named = [], solving.solve_named
        monkeypatch.setattr(solving, "solve_named", lambda *given: asked.append(given[1]) or solve_named(*given))
        decider = self._decider(ph.Solver(backend="scip")).fit(self.X, self.Y)
        for use in (lambda: decider.decide(self.X[:2]), lambda: decider.measure(self.X[:2] + 0.1, self.Y[:2])):
            asked.clear()
            use()
            assert "scip" in asked
        asked.clear()
        decider.set_params(solver=None).decide(self.X[:2])
        assert asked == []

    @pytest.mark.needs("pyscipopt")
    def test_a_file_tells_it_without_options_and_does_not_ask_for_it(self, tmp_path: Path) -> None:
        solver = ph.Solver(backend="scip", options={"scip_params": {"limits/time": 9.0}})
        self._decider(solver).fit(self.X, self.Y).save(tmp_path / "m.polyhedge")
        again = ph.load(tmp_path / "m.polyhedge")
        assert again.solver is None
        assert again.settings_["solver"] == "Solver(backend='scip', time_limit=None, highs={}, clarabel={})"

    def test_it_is_a_setting_like_others(self) -> None:
        decider = self._decider(ph.Solver(time_limit=7))
        assert decider.get_params()["solver__time_limit"] == 7
        assert clone(decider).set_params(solver__time_limit=8).solver == ph.Solver(time_limit=8)

    def test_another_thing_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"solver must be a polyhedge.Solver\(...\) or None, got 'gurobi'"):
            self._decider("gurobi").fit(self.X, self.X)
