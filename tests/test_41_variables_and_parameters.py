"""Problems with several variables, auxiliary variables and parameters, against the same problems written out."""

import pickle
from dataclasses import replace
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.lin_ops import lin_utils
from cvxpy.transforms.partial_optimize import partial_optimize

import polyhedge as ph
from polyhedge.problems import DecisionProblem
from polyhedge.problems.stored import problem_from_state, problem_to_state
from polyhedge.robust import decide
from polyhedge.sets import Box
from polyhedge.solvers.linear import LinearSolver
from polyhedge.solvers.program import Cone, ConicProgram, Status

RNG = np.random.default_rng(0)
QUICK = ph.learners.PcaBox()
CENTERS = RNG.normal(size=(6, 2))
WIDTHS = np.array([0.5, 1.0])
CORNERS = WIDTHS * np.array(list(product((-1.0, 1.0), repeat=2)))


def written_out(variables, cost, constraints, center, uncertain=None):
    """The least worst cost over the corners of the box around a prediction, by CVXPY alone."""
    t = cp.Variable()
    rows = [t >= cost(variables, center + corner) for corner in CORNERS] + list(constraints)
    rows += [row for corner in CORNERS for row in (uncertain(variables, center + corner) if uncertain else [])]
    return cp.Problem(cp.Minimize(t), rows).solve(solver=cp.SCIP)


def bounds_written_out(variables, cost, constraints, centers=CENTERS, uncertain=None):
    return np.array([written_out(variables, cost, constraints, center, uncertain) for center in centers])


def plant():
    """Two units that are switched on as whole ones, a matrix of flows and a scalar level."""
    on = cp.Variable(2, boolean=True, name="on")
    flow = cp.Variable((2, 2), nonneg=True, name="flow")
    level = cp.Variable(bounds=[-1.0, 4.0], name="level")

    def cost(z, u):
        on, flow, level = z
        return u @ cp.sum(flow, axis=0) + 1.5 * cp.sum(on) + cp.max(u) * 0.1 + 2 * cp.abs(level - 1) - 0.5 * u[0]

    constraints = [cp.sum(flow, axis=1) <= 3 * on, cp.sum(flow) + level >= 4, flow <= 2]
    return [on, flow, level], cost, constraints


class TestSeveralVariables:
    def test_bounds_equal_the_problem_written_out_at_the_vertices(self):
        variables, cost, constraints = plant()
        problem = DecisionProblem(decision=variables, cost=cost, constraints=constraints, n_outcomes=2)
        found = decide(problem, Box(WIDTHS), 1.0, CENTERS)
        np.testing.assert_allclose(found.cost_bound, bounds_written_out(variables, cost, constraints), atol=1e-6)
        np.testing.assert_allclose(problem.evaluate(found.flat, found.worst_outcome), found.cost_bound, atol=1e-6)
        assert found["on"].shape == (6, 2)
        assert set(found["on"].ravel()) <= {0.0, 1.0}
        assert found["flow"].shape == (6, 2, 2)
        assert (found["flow"].sum(axis=2) <= 3 * found["on"] + 1e-7).all()
        assert found["level"].shape == (6,)
        np.testing.assert_array_equal(
            found.z, np.column_stack([found["on"], found["flow"].reshape(6, 4), found["level"]])
        )
        assert problem.decision_names == ("on_1", "on_2", "flow_1_1", "flow_1_2", "flow_2_1", "flow_2_2", "level")

    @pytest.mark.parametrize("structure", ["tuple", "dict", "closure"])
    def test_the_structure_of_the_decision_changes_nothing(self, structure):
        variables, cost, constraints = plant()
        named = {"a": variables[0], "b": variables[1], "c": variables[2]}
        decision, given_cost = {
            "tuple": (tuple(variables), cost),
            "dict": (named, lambda z, u: cost([z["a"], z["b"], z["c"]], u)),
            "closure": (list(variables), lambda z, u: cost(variables, u)),
        }[structure]
        problem = DecisionProblem(decision=decision, cost=given_cost, constraints=constraints, n_outcomes=2)
        reference = DecisionProblem(decision=variables, cost=cost, constraints=constraints, n_outcomes=2)
        found, wanted = (decide(p, Box(WIDTHS), 1.0, CENTERS) for p in (problem, reference))
        np.testing.assert_array_equal(found.flat, wanted.flat)
        np.testing.assert_array_equal(found.cost_bound, wanted.cost_bound)
        if structure == "dict":
            np.testing.assert_array_equal(found["b"], wanted["flow"])

    def test_a_list_that_changes_later_changes_nothing(self):
        variables, cost, constraints = plant()
        problem = DecisionProblem(decision=variables, cost=cost, constraints=constraints, n_outcomes=2)
        variables.clear()
        constraints.clear()
        assert len(problem.decision) == 3
        assert len(problem.constraints) == 3

    def test_costs_without_pieces_and_uncertain_constraints_equal_the_problem_written_out(self):
        x, y = cp.Variable(2, nonneg=True), cp.Variable(2, bounds=[-1.0, 1.0])

        def cost(z, u):
            return cp.sum_squares(z[0] + z[1] - u) + cp.sum(z[0])

        def uncertain(z, u):
            return [u @ z[1] <= 1 + cp.sum(z[0])]

        problem = DecisionProblem(decision=[x, y], cost=cost, n_outcomes=2, uncertain_constraints=uncertain)
        found = decide(problem, Box(WIDTHS), 1.0, CENTERS[:3])
        wanted = bounds_written_out([x, y], cost, [], CENTERS[:3], uncertain)
        np.testing.assert_allclose(found.cost_bound, wanted, atol=1e-5)

    def test_one_variable_in_a_list_decides_as_the_variable_itself(self):
        z = cp.Variable(2, nonneg=True)
        alone = DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 1], n_outcomes=2)
        listed = DecisionProblem(decision=[z], cost=lambda z, u: u @ z[0], constraints=[cp.sum(z) == 1], n_outcomes=2)
        first, second = (decide(p, Box(WIDTHS), 1.0, CENTERS) for p in (alone, listed))
        np.testing.assert_array_equal(first.z, second.z)
        np.testing.assert_array_equal(first["z"], first.z)

    @pytest.mark.parametrize(
        ("decision", "error", "message"),
        [
            ([], TypeError, "a list or a dictionary of them, got list"),
            ([cp.Variable(2), 3.0], TypeError, "nothing but cvxpy.Variables, got float"),
            ([cp.Variable(name="a"), cp.Variable(name="a")], ValueError, "Two variables are called 'a'"),
            ({1: cp.Variable(2)}, ValueError, "called by non-empty texts"),
            ([*[cp.Variable(2)] * 2], ValueError, "the same variable twice"),
        ],
    )
    def test_what_is_no_decision_is_refused(self, decision, error, message):
        with pytest.raises(error, match=message):
            DecisionProblem(decision=decision, cost=lambda z, u: cp.sum(u), n_outcomes=2)

    def test_decisions_are_looked_up_by_name_only(self):
        problem = ph.problems.simplex_linear([0.0, 0.0])
        found = decide(problem, Box(WIDTHS), 1.0, CENTERS)
        with pytest.raises(KeyError, match=r"There is no variable 'power'\. Known are z"):
            found["power"]
        with pytest.raises(TypeError, match="by the name of a variable, got 0"):
            found[0]


def tracking(n=2):
    """The cost |z - 1| written with an auxiliary variable, and without it."""
    z, w = cp.Variable(n, bounds=[-3.0, 3.0], name="z"), cp.Variable(n, name="w")
    with_auxiliary = DecisionProblem(
        decision=z, cost=lambda z, u: u @ z + cp.sum(w), constraints=[w >= z - 1, w >= 1 - z], n_outcomes=n
    )
    plain = DecisionProblem(decision=z, cost=lambda z, u: u @ z + cp.norm1(z - 1), n_outcomes=n)
    return with_auxiliary, plain


class TestAuxiliaryVariables:
    @pytest.mark.parametrize("n_rows", [6, 300])
    def test_an_epigraph_variable_decides_as_the_function_it_bounds(self, n_rows):
        problem, plain = tracking()
        centers = np.random.default_rng(1).normal(size=(n_rows, 2))
        found, wanted = (decide(p, Box(WIDTHS), 1.0, centers) for p in (problem, plain))
        np.testing.assert_allclose(found.cost_bound, wanted.cost_bound, atol=1e-7)
        assert found.is_optimal.all()
        assert found.z.shape == (n_rows, 2)
        np.testing.assert_allclose(found["w"], np.abs(found.z - 1), atol=1e-7)

    def test_the_realised_cost_counts_the_auxiliary_variable(self):
        problem, plain = tracking()
        rng = np.random.default_rng(2)
        X, Y = rng.normal(size=(400, 2)), rng.normal(size=(400, 2))
        fitted = [
            ph.RobustDecider(p, "precomputed", learner=QUICK, random_state=0).fit(X * 0, Y) for p in (problem, plain)
        ]
        results = [decider.evaluate(X[:50] * 0, Y[:50]) for decider in fitted]
        assert results[0].bound_held.value >= results[0].coverage.value
        assert results[0].realised_cost.value == pytest.approx(results[1].realised_cost.value, abs=1e-6)
        assert results[0].worst_case_cost.value == pytest.approx(results[1].worst_case_cost.value, abs=1e-6)

    def test_auxiliary_variables_are_no_columns_of_tables(self):
        pd = pytest.importorskip("pandas")
        problem, _ = tracking()
        X = np.random.default_rng(3).normal(size=(100, 2))
        decider = ph.RobustDecider(problem, "precomputed", learner=QUICK, random_state=0).fit(X, X + 0.1)
        table = ph.batches.decide_rows(ph.batches.Model.of(decider), pd.DataFrame(X[:3]))
        assert list(table.columns[:3]) == ["z_1", "z_2", "cost_bound"]

    @pytest.mark.parametrize("place", ["cost", "constraints"])
    def test_integer_auxiliary_variables_stay_integer(self, place):
        z, lots = cp.Variable(2, bounds=[0.0, 3.0]), cp.Variable(integer=True, bounds=[0, 10])

        def cost(z, u):
            return u @ z + (0.3 * lots if place == "cost" else 0.0)

        constraints = [cp.sum(z) == 0.75 * lots, lots >= 1.2]
        problem = DecisionProblem(decision=z, cost=cost, constraints=constraints, n_outcomes=2)
        found = decide(problem, Box(WIDTHS), 1.0, CENTERS)
        np.testing.assert_allclose(found.cost_bound, bounds_written_out(z, cost, constraints), atol=1e-6)
        assert np.abs(found.z.sum(axis=1) / 0.75 - np.round(found.z.sum(axis=1) / 0.75)).max() < 1e-6

    @pytest.mark.parametrize(
        "options",
        [
            {"uncertain_constraints": lambda z, u, w: [u @ z <= w]},
            {"outcome_support": lambda u, w: [u >= w]},
        ],
        ids=["uncertain_constraints", "outcome_support"],
    )
    def test_recourse_is_refused_by_name(self, options):
        z, w = cp.Variable(2), cp.Variable(name="topup", nonneg=True)
        ((place, rows),) = options.items()
        with pytest.raises(ValueError, match=rf"{place} holds the variable topup.*decision=\[\.\.\., topup\]"):
            DecisionProblem(
                decision=z, cost=lambda z, u: u @ z + w, n_outcomes=2, **{place: lambda *given: rows(*given, w)}
            )

    def test_a_partial_minimum_is_refused_by_name(self):
        z, topup = cp.Variable(2), cp.Variable(name="topup")

        def cost(z, u):
            inner = cp.Problem(cp.Minimize(topup), [topup >= u @ z])
            return partial_optimize(inner, opt_vars=[topup])

        with pytest.raises(ValueError, match=r"partial_optimize over topup.*recourse"):
            DecisionProblem(decision=z, cost=cost, n_outcomes=2)

    def test_a_declared_variable_may_bound_uncertain_rows(self):
        z, level = cp.Variable(2, bounds=[0.5, 2.0]), cp.Variable(name="level")
        problem = DecisionProblem(
            decision=[z, level],
            cost=lambda v, u: v[1] + cp.sum(v[0]),
            uncertain_constraints=lambda v, u: [u @ v[0] <= v[1]],
            n_outcomes=2,
        )
        plain = DecisionProblem(decision=z, cost=lambda z, u: u @ z + cp.sum(z), n_outcomes=2)
        first, second = (decide(p, Box(WIDTHS), 1.0, CENTERS).cost_bound for p in (problem, plain))
        np.testing.assert_allclose(first, second, atol=1e-7)


class TestNoSilentNaN:
    def test_a_solver_never_calls_a_program_without_numbers_optimal(self):
        A = sp.csr_array(-np.eye(2))
        for c, offset in (([np.nan, 1.0], 0.0), ([1.0, 1.0], np.nan)):
            program = ConicProgram(c=np.array(c), A=A, b=np.ones(2), cones=(Cone("nonneg", 2),), offset=offset)
            assert LinearSolver(program).solve().status is Status.FAILED

    def test_coefficients_that_are_no_numbers_are_refused_when_the_problem_is_written(self):
        with pytest.raises(ValueError, match="must be finite numbers"):
            DecisionProblem(decision=cp.Variable(2), cost=lambda z, u: u @ z + np.nan, n_outcomes=2)

    def test_decisions_cannot_be_optimal_without_a_bound(self):
        found = decide(ph.problems.simplex_linear([0.0, 0.0]), Box(WIDTHS), 1.0, CENTERS)
        broken = np.where(np.arange(6) == 2, np.nan, found.cost_bound)
        status = replace(found, cost_bound=broken).status
        assert status[2] is Status.FAILED
        assert all(status[i] is Status.OPTIMAL for i in (0, 1, 3, 4, 5))


def named_plant():
    variables, cost, constraints = plant()
    return DecisionProblem(
        decision=dict(zip("abc", variables, strict=True)),
        cost=lambda z, u: cost([z["a"], z["b"], z["c"]], u),
        constraints=constraints,
        n_outcomes=2,
    )


class TestFiles:
    @pytest.mark.parametrize("make", [lambda: tracking()[0], lambda: named_plant()], ids=["auxiliary", "several"])
    def test_problems_with_several_variables_come_back_from_files(self, make):
        problem = make()
        twin = problem_from_state(problem_to_state(problem))
        first, second = (decide(p, Box(WIDTHS), 1.0, CENTERS) for p in (problem, twin))
        np.testing.assert_array_equal(first.flat, second.flat)
        assert first.layout == second.layout
        assert problem_to_state(twin)["cost"] == problem_to_state(problem)["cost"]
        u = CENTERS[0]
        given = {"a": np.ones(2), "b": np.ones((2, 2)), "c": 1.0} if isinstance(twin.decision, dict) else np.ones(2)
        assert str(twin.cost(given, u)) == str(problem.expression(given, u)).replace("w", twin.layout.names[-1])

    def test_a_problem_in_another_process_meets_no_variable_of_its_number(self, monkeypatch):
        x, y = cp.Variable(2, nonneg=True), cp.Variable(2, bounds=[-1.0, 1.0])
        rows = [cp.sum(x) + cp.sum(y) >= 1]
        problem = DecisionProblem(decision=[x, y], cost=_squares, n_outcomes=2, constraints=rows)
        wanted = decide(problem, Box(WIDTHS), 1.0, CENTERS[:1]).cost_bound
        stored = pickle.dumps(problem)
        monkeypatch.setattr(lin_utils.ID_COUNTER, "count", x.id - 2)  # a process that has yet to make as many
        found = decide(pickle.loads(stored), Box(WIDTHS), 1.0, CENTERS[:1]).cost_bound
        np.testing.assert_allclose(found, wanted, atol=1e-7)


def _squares(z, u):
    return cp.sum_squares(z[0] + z[1] - u)
