"""Searches among whole numbers are held against what the relaxation proves, and no solver's word sets the units."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_lying_solvers import LIES, lying

import polyhedge as ph
from polyhedge.solvers import solve as solving
from polyhedge.solvers.linear import DualProgram, LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Scaling, Solution, Status
from polyhedge.solvers.solve import IntegerSolver, solve, solve_mixed_integer
from polyhedge.solvers.verify import Verifier, nothing_known


def knapsack(c: np.ndarray, total: float, most: float = 2.0) -> ConicProgram:
    """Minimise c'x with the sum of x given and 0 <= x <= most, all whole."""
    n = len(c)
    A = np.vstack([np.ones((1, n)), np.eye(n), -np.eye(n)])
    b = np.concatenate([[total], np.full(n, most), np.zeros(n)])
    return ConicProgram(c, sp.csr_array(A), b, (Cone("zero", 1), Cone("nonneg", 2 * n)), integer=np.arange(n))


def filling() -> ConicProgram:
    """Worth 2 and 1, weights 2 and 3, at most 4 in all and 1.4 of the first: the relaxation is not whole."""
    A = np.array([[2.0, 3.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    b = np.array([4.0, 1.4, 2.0, 0.0, 0.0])
    return ConicProgram(np.array([-2.0, -1.0]), sp.csr_array(A), b, (Cone("nonneg", 5),), integer=np.arange(2))


def test_a_relaxation_that_is_whole_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving._RelaxationBound, "checked", lambda *_: pytest.fail("a search was made"))
    found = solve_mixed_integer(knapsack(np.array([3.0, 1.0, 2.0]), 3.0))
    assert (found.status, found.value, found.x.tolist()) == (Status.OPTIMAL, 4.0, [0.0, 2.0, 1.0])


def wrong(solver: LinearSolver) -> Solution:
    x = np.zeros(2)
    return Solution(x, np.zeros(5), 0.0, Status.OPTIMAL, 0.0, size=1.0)


def infeasible(solver: LinearSolver) -> Solution:
    return nothing_known(solver.program, Status.INFEASIBLE, "a lie")


@pytest.mark.parametrize("lie", [wrong, infeasible])
def test_a_search_that_contradicts_a_known_point_is_made_again(monkeypatch: pytest.MonkeyPatch, lie: Any) -> None:
    program, solve = filling(), LinearSolver.solve
    expected = solve_mixed_integer(program)
    assert (expected.status, expected.value) == (Status.OPTIMAL, -2.0)
    monkeypatch.setattr(LinearSolver, "solve", lambda self: (lie if len(self.program.integer) else solve)(self))
    found = solve_mixed_integer(program)
    assert (found.status, found.value) == (Status.OPTIMAL, expected.value)
    monkeypatch.setattr(LinearSolver, "solve_otherwise", lie)
    found = solve_mixed_integer(program)
    assert found.status is not Status.OPTIMAL
    assert "contradicts" in found.detail
    assert found.value - found.gap <= expected.value + 1e-9


def crews(rng: np.random.Generator, entries: np.ndarray) -> ConicProgram:
    """Three kinds of crews, whole, at most 9 each, and paid hours of another; two shifts with moving needs."""
    A = np.vstack([np.column_stack([-np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]), entries]), np.eye(4), -np.eye(4)])
    b = np.concatenate([-rng.uniform(0.0, 9.0, 2), np.full(4, 9.0), np.zeros(4)])
    return ConicProgram(rng.uniform(1, 4, 4), sp.csr_array(A), b, (Cone("nonneg", 10),), integer=np.arange(3))


def test_a_program_that_is_kept_while_its_numbers_change_has_the_optimum_of_each() -> None:
    rng = np.random.default_rng(0)
    first = crews(rng, np.full(2, -1.0))
    kept, entries = IntegerSolver(first, np.arange(2)), np.flatnonzero(first.A.indices == 3)[:2]
    for _ in range(40):
        program = crews(rng, -rng.uniform(0.1, 2.0, 2))
        kept.program.b[:], kept.program.c[:] = program.b, program.c
        kept.change_entries(entries, program.A.data[entries])
        found, anew = kept.solve(), solve(program)
        assert found.status is anew.status is Status.OPTIMAL
        assert found.value == pytest.approx(anew.value, abs=1e-8)
        assert np.array_equal(found.x[:3], np.round(found.x[:3]))
    kept.program.b[:2] = -100.0
    assert kept.solve().status is Status.INFEASIBLE


def test_a_linear_program_that_is_kept_answers_as_one_that_is_set_up_anew() -> None:
    rng = np.random.default_rng(0)
    programs = [replace(crews(rng, -rng.uniform(0.1, 2.0, 2)), integer=np.zeros(0, dtype=np.int64)) for _ in range(20)]
    first, rows = programs[0], np.arange(2)
    kept, entries = LinearSolver(first, varying_rows=rows), np.flatnonzero(first.A.indices == 3)[:2]
    for program in programs:
        anew = LinearSolver(first, varying_rows=rows)
        for solver in (kept, anew):
            solver.program.c[:] = program.c
            solver.change_rhs(rows, program.b[rows])
            solver.change_entries(entries, program.A.data[entries])
        assert np.array_equal(kept.solve_cold().x, anew.solve_cold().x)


@pytest.mark.parametrize("lie", [wrong, infeasible])
def test_a_program_that_is_kept_believes_no_search_against_its_relaxation(
    monkeypatch: pytest.MonkeyPatch, lie: Any
) -> None:
    expected, honest = solve(filling()), LinearSolver.solve
    monkeypatch.setattr(LinearSolver, "solve", lambda self: (lie if len(self.program.integer) else honest)(self))
    found = IntegerSolver(filling(), np.arange(1)).solve()
    assert (found.status, found.value) == (Status.OPTIMAL, expected.value)


def test_a_program_that_is_kept_is_solved_once_where_the_user_limits_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, expected = IntegerSolver(filling(), np.arange(1)), solve(filling())
    monkeypatch.setattr(kept, "_least", lambda: pytest.fail("a search without the user's options"))
    with ph.Solver(time_limit=10.0).in_force():
        found = kept.solve()
    assert (found.status, found.value) == (Status.OPTIMAL, expected.value)


def test_small_searches_leave_out_the_feasibility_jump() -> None:
    assert not LinearSolver(filling()).highs.getOptionValue("mip_heuristic_run_feasibility_jump")[1]


@pytest.mark.parametrize("curved", [False, True], ids=["linear", "squares"])
@pytest.mark.parametrize("factor", [1e8, 1e12])
def test_multipliers_that_prove_nothing_set_no_units(
    monkeypatch: pytest.MonkeyPatch, factor: float, curved: bool
) -> None:
    rng = np.random.default_rng(0)
    programs = [knapsack(rng.normal(size=4), 3.0) for _ in range(30)]
    if curved:
        P = sp.csr_array(np.diag([0.5, 1.0, 0.3, 0.8]))
        programs = [replace(program, P=P) for program in programs[:8]]
    honest = [solve_mixed_integer(program) for program in programs]
    monkeypatch.setitem(LIES, "too large", lambda answer: setattr(answer, "y", factor * answer.y))
    with lying(monkeypatch, "both", "too large"):
        claimed = [solve_mixed_integer(program) for program in programs]
    for found, right in zip(claimed, honest, strict=True):
        assert right.status is Status.OPTIMAL
        if found.status is Status.OPTIMAL:
            assert found.value == pytest.approx(right.value, abs=1e-5)


def coupled(rng: np.random.Generator) -> ConicProgram:
    """Integers that share two rows with each other and with a continuous column."""
    A = np.vstack([rng.uniform(1, 9, (2, 5)), np.eye(5), -np.eye(5)])
    b = np.concatenate([[70.3, 90.7], np.full(5, 40.0), np.zeros(5)])
    c = -rng.uniform(1, 9, 5)
    return ConicProgram(c, sp.csr_array(A), b, (Cone("nonneg", 12),), integer=np.arange(4))


@pytest.mark.parametrize("seed", range(4))
def test_integers_of_an_answer_are_integers_to_the_last_bit(seed: int) -> None:
    program = coupled(np.random.default_rng(seed))
    found = solve_mixed_integer(program)
    assert found.status is Status.OPTIMAL
    np.testing.assert_array_equal(found.x[:4], np.round(found.x[:4]))
    verifier = Verifier(program, Scaling.of(program))
    near = verifier.verify_integer(program, found.x + 1e-9 * (np.arange(5) < 4), 0.0, found.size)
    np.testing.assert_array_equal(near.x, found.x)
    assert near.value == program.value(found.x)
    far = verifier.verify_integer(program, found.x - 0.2 * (np.arange(5) < 4), 0.0, found.size)
    assert far.status is Status.FAILED


@pytest.mark.parametrize("seed", range(4))
def test_dual_finds_verified_optima_at_one_cost_after_another_or_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = replace(coupled(rng), integer=np.zeros(0, dtype=np.int64))
    scaling = Scaling.of(program)
    dual, verifier = DualProgram(program, scaling), Verifier(program, scaling)
    for _ in range(5):
        program = replace(program, c=program.c * rng.uniform(0.2, 3.0, size=len(program.c)))
        found, usual = dual.solve(program, verifier), LinearSolver(program).solve()
        assert found.status is usual.status is Status.OPTIMAL
        assert found.value == pytest.approx(usual.value)
    empty = replace(program, b=program.b - 99.0 * (np.arange(12) == 2))
    endless = ConicProgram(-program.c, program.A[:7], program.b[:7], (Cone("nonneg", 7),))
    for other in (empty, endless):
        own = Scaling.of(other)
        assert not DualProgram(other, own).solve(other, Verifier(other, own)).status.has_solution
