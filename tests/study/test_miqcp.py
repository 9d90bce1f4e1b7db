"""The paper's MIQCP: equal to brute force on tiny instances, and no solver can take the caller down with it."""

import itertools
import re
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

import polyhedge as ph
import shared
from polyhedge.learners import Samples
from polyhedge.learners.paper.model import excess_over_selected
from polyhedge.learners.starts import axis_box, one_sided
from polyhedge.solvers.program import Status
from polyhedge_study.learners import bilinear
from polyhedge_study.learners.miqcp import MIQCP, _Model
from shared import brute_force, check_evidence

PROBLEMS = {
    "linear": lambda: ph.problems.simplex_linear([-0.08, 0.0]),
    "quadratic": lambda: ph.problems.simplex_quadratic([-0.08, 0.0], 0.08),
    "newsvendor": lambda: ph.problems.simplex_newsvendor(0.3, 0.7, 2),
}


learning_data = partial(shared.learning_data, size=0.3)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_miqcp_for_the_mean_context_equals_brute_force_over_selections(name, seed):
    pytest.importorskip("pyscipopt")
    residuals, centers = learning_data(9, seed=seed)
    problem = PROBLEMS[name]()
    result = MIQCP(relative_gap=1e-6).learn(Samples(residuals, centers, problem, 0.2))
    mean = centers.mean(axis=0)[None]
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(brute_force(problem, residuals, mean, 0.2), abs=1e-5)
    assert result.gap <= 1e-5
    assert "the mean prediction" in result.detail
    check_evidence(result, residuals, mean, problem, 0.2)


@pytest.mark.parametrize("name", ["linear", pytest.param("quadratic", marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_program_with_multipliers_that_sum_to_one_has_no_more_binaries_than_printed_and_the_optimum_of_brute_force(
    name, seed
):
    pytest.importorskip("pyscipopt")
    residuals, centers = learning_data(8, seed=seed)
    problem, mean = PROBLEMS[name](), centers.mean(axis=0)[None]
    samples, truth = Samples(residuals, centers, problem, 0.25), brute_force(problem, residuals, mean, 0.25)
    literal = MIQCP(n_facets=3, normalisation="multipliers", aggregated_rows=False, time_limit=1)
    model = _Model(literal, replace(samples, centers=mean), problem.pieces)
    assert np.array_equal(model.program.integer, model.set.t)
    # SCIP hardly ever certifies the printed program, but what it finds and what it excludes must bracket the truth.
    result = literal.learn(samples)
    assert result.objective == pytest.approx(truth, abs=1e-6)
    assert result.lower_bound <= truth + 1e-6
    check_evidence(result, residuals, mean, problem, 0.25)
    # With the aggregated rows, which cut off no set, the same program is certified.
    certified = replace(literal, aggregated_rows=True, relative_gap=1e-5, time_limit=None).learn(samples)
    assert certified.objective == pytest.approx(truth, abs=1e-6)
    assert certified.gap <= 1e-5


@pytest.mark.needs("pyscipopt")
@pytest.mark.parametrize(
    ("settings", "name", "got"),
    [({"contexts": 2}, "linear", "2 context.* and 1 piece"), ({}, "newsvendor", "1 context.* and 4 piece")],
)
def test_multipliers_sum_to_one_for_one_context_and_one_piece_only(settings, name, got):
    residuals, centers = learning_data(10)
    with pytest.raises(ValueError, match=rf"one context and a cost affine in the outcome, got {got}.*Use 'facets'"):
        MIQCP(normalisation="multipliers", **settings).learn(Samples(residuals, centers, PROBLEMS[name](), 0.2))


@pytest.mark.parametrize("name", PROBLEMS)
def test_aggregated_rows_cut_off_no_set(name):
    residuals, centers = learning_data(9)
    problem, rng = PROBLEMS[name](), np.random.default_rng(0)
    objective = Samples(residuals, centers[:2], problem, 0.3)
    models = [_Model(MIQCP(aggregated_rows=rows), objective, problem.pieces) for rows in (True, False)]
    for _ in range(10):
        angles = np.sort(rng.uniform(0, np.pi / 2, size=4)) + np.arange(4) * np.pi / 2
        W = np.column_stack([np.cos(angles), np.sin(angles)])
        shape = objective.normalised(ph.Polyhedron(W, 0.3 * rng.normal(size=4)))
        with_rows, without = (model.completed(shape) for model in models)
        assert with_rows.status is without.status
        assert with_rows.value == pytest.approx(without.value, abs=1e-6, nan_ok=True)
        if without.status is Status.OPTIMAL:
            assert without.value >= objective.value(shape, np.arange(2)) - 1e-6


@pytest.mark.parametrize("name", ["linear", pytest.param("quadratic", marks=pytest.mark.slow), "newsvendor"])
def test_miqcp_for_several_contexts_equals_brute_force_over_shared_selections(name):
    pytest.importorskip("pyscipopt")
    residuals, centers = learning_data(7)
    problem, chosen = PROBLEMS[name](), [1, 4]
    result = MIQCP(contexts=chosen, relative_gap=1e-5, time_limit=120).learn(Samples(residuals, centers, problem, 0.25))
    truth = brute_force(problem, residuals, centers[chosen], 0.25)
    assert result.objective == pytest.approx(truth, abs=1e-4)
    assert result.lower_bound <= truth + 1e-6
    assert "2 given context(s)" in result.detail
    check_evidence(result, residuals, centers[chosen], problem, 0.25)


def test_miqcp_takes_integer_decisions():
    pytest.importorskip("pyscipopt")
    z = cp.Variable(2, integer=True)
    problem = ph.DecisionProblem(
        decision=z, cost=lambda z, u: u @ z, constraints=[z >= -1, z <= 2, cp.sum(z) == 1], n_outcomes=2
    )
    residuals, centers = learning_data(8)
    result = MIQCP(relative_gap=1e-6).learn(Samples(residuals, centers, problem, 0.25))
    truth = brute_force(problem, residuals, centers.mean(axis=0)[None], 0.25)
    assert result.objective == pytest.approx(truth, abs=1e-5)


def test_big_m_bounds_the_excess_of_every_residual_over_every_selection():
    residuals, _ = learning_data(7)
    rank = 5
    rng = np.random.default_rng(0)
    low, high = np.array([[-1.0, -1.0], [0.0, 0.2]]), np.array([[1.0, 0.5], [0.4, 0.3]])
    M = excess_over_selected(residuals, low, high, rank)
    for chosen in itertools.combinations(range(7), rank):
        for _ in range(20):
            box = rng.integers(2)
            v = rng.uniform(low[box], high[box])
            assert (residuals @ v - (residuals[list(chosen)] @ v).max() <= M + 1e-12).all()


def test_miqcp_out_of_time_returns_a_valid_set_that_is_no_worse_than_its_starts():
    pytest.importorskip("pyscipopt")
    residuals, centers = learning_data(30)
    problem, mean = PROBLEMS["linear"](), centers.mean(axis=0)[None]
    for limit in (0.0, 0.3):
        result = MIQCP(aggregated_rows=False, time_limit=limit).learn(Samples(residuals, centers, problem, 0.1))
        assert result.status is Status.STOPPED_EARLY
        assert result.seconds < limit + 10
        check_evidence(result, residuals, mean, problem, 0.1)
        whole = Samples(residuals, centers, problem, 0.1)
        judge = Samples(residuals, mean, problem, 0.1)
        starts = [axis_box(whole), one_sided(whole, 4)]
        assert result.objective <= min(judge.value(shape, np.array([0])) for shape in starts) + 1e-9


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", r"crashed \(SIGSEGV\)"),
        ("import sys; print('licence broken', file=sys.stderr); sys.exit(3)", "exit code 3; licence broken"),
    ],
)
def test_a_crash_of_the_solver_is_a_reported_failure_with_the_start_as_set(monkeypatch, code, message):
    pytest.importorskip("pyscipopt")
    monkeypatch.setattr(bilinear, "_command", lambda: [sys.executable, "-c", code])
    residuals, centers = learning_data(12)
    problem = PROBLEMS["linear"]()
    result = MIQCP().learn(Samples(residuals, centers, problem, 0.2))
    assert result.status is Status.FAILED
    assert re.search(message, result.detail)
    assert result.lower_bound == -np.inf
    check_evidence(result, residuals, centers.mean(axis=0)[None], problem, 0.2)


def tiny_program():
    """Minimise -x0 x1 over the unit square through an epigraph row."""
    return bilinear.BilinearProgram(
        c=np.array([0.0, 0.0, 1.0]),
        A=bilinear.sp.csr_array(np.array([[0.0, 0.0, -1.0]])),
        row_lower=np.array([-np.inf]),
        row_upper=np.array([0.0]),
        products=np.array([[0, 0, 1]]),
        product_values=np.array([-1.0]),
        lower=np.array([0.0, 0.0, -5.0]),
        upper=np.array([1.0, 1.0, 5.0]),
        integer=np.zeros(0, dtype=np.int64),
    )


def test_bilinear_program_is_solved_to_its_global_optimum():
    pytest.importorskip("pyscipopt")
    found = bilinear.solve_bilinear(tiny_program())
    assert found.status is Status.OPTIMAL
    assert found.value == pytest.approx(-1.0, abs=1e-5)
    assert found.lower_bound <= found.value + 1e-9
    assert found.x[:2] == pytest.approx([1.0, 1.0], abs=1e-4)


def test_a_solver_that_ignores_its_time_limit_is_ended(monkeypatch):
    pytest.importorskip("pyscipopt")
    monkeypatch.setattr(bilinear, "_command", lambda: [sys.executable, "-c", "import time; time.sleep(60)"])
    began = time.perf_counter()
    found = bilinear.solve_bilinear(tiny_program(), time_limit=0.1, grace=0.3)
    assert time.perf_counter() - began < 10
    assert found.status is Status.FAILED
    assert "did not stop within" in found.detail


def test_an_interrupt_ends_the_child_and_reaches_the_caller(monkeypatch):
    pytest.importorskip("pyscipopt")
    children = []

    class Interrupted(subprocess.Popen):
        def communicate(self, *args, **kwargs):
            if self not in children:
                children.append(self)
                raise KeyboardInterrupt("by the user")
            return super().communicate(*args, **kwargs)

    monkeypatch.setattr(bilinear, "_command", lambda: [sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(bilinear.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt, match="by the user"):
        bilinear.solve_bilinear(tiny_program())
    assert children[0].poll() is not None


def test_missing_scip_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyscipopt", None)
    residuals, centers = learning_data(10)
    with pytest.raises(ImportError, match=r"pip install 'polyhedge\[exact\]'"):
        MIQCP().learn(Samples(residuals, centers, PROBLEMS["linear"](), 0.2))


def unsupported_problems():
    z = cp.Variable(2, nonneg=True)
    simplex = [cp.sum(z) == 1]
    parts = {"decision": z, "n_outcomes": 2}
    yield (
        "concave in the outcome",
        ph.DecisionProblem(cost=lambda z, u: u @ z - cp.sum_squares(u), constraints=simplex, **parts),
    )
    yield "'soc'", ph.DecisionProblem(cost=lambda z, u: u @ z, constraints=[cp.norm(z - 1) <= 1], **parts)
    yield (
        "outcome_support",
        ph.DecisionProblem(cost=lambda z, u: u @ z, constraints=simplex, outcome_support=lambda u: [u >= -9], **parts),
    )


@pytest.mark.parametrize(
    ("reason", "problem"), list(unsupported_problems()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_miqcp_says_where_it_does_not_apply_and_what_does(reason, problem):
    residuals, centers = learning_data(10)
    with pytest.raises(ValueError, match=rf"MIQCP does not apply: .*{reason}.*Use Descent, or Scenario"):
        MIQCP().learn(Samples(residuals, centers, problem, 0.2))


@pytest.mark.needs("pyscipopt")
def test_an_unbounded_feasible_set_is_an_error_that_says_so():
    z = cp.Variable(2, nonneg=True)
    problem = ph.DecisionProblem(decision=z, cost=lambda z, u: (u + 9) @ z, constraints=[cp.sum(z) >= 1], n_outcomes=2)
    residuals, centers = learning_data(10)
    with pytest.raises(ValueError, match=r"needs a bounded feasible set.*use Descent"):
        MIQCP().learn(Samples(residuals, centers, problem, 0.2))


@pytest.mark.needs("pyscipopt")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_facets": 2}, r"n_facets must be at least n_outcomes \+ 1 = 3"),
        ({"normalisation": "rows"}, "normalisation must be 'facets' or 'multipliers', got 'rows'"),
    ],
)
def test_settings_out_of_range_are_errors(settings, message):
    residuals, centers = learning_data(10)
    with pytest.raises(ValueError, match=message):
        MIQCP(**settings).learn(Samples(residuals, centers, PROBLEMS["linear"](), 0.2))
