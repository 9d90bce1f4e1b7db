"""Problems with several variables, auxiliary variables and parameters, against the same problems written out."""

import pickle
from dataclasses import replace
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.transforms.partial_optimize import partial_optimize
from sklearn.linear_model import LinearRegression

import polyhedge as ph
from polyhedge.fitting import reference_values
from polyhedge.learners import LearnResult
from polyhedge.problems import DecisionProblem, problem_from_data, problem_to_data
from polyhedge.problems.layout import parameter_rows
from polyhedge.robust import decide, decide_knowing
from polyhedge.sets import Box
from polyhedge.solvers.program import Status

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
    pytest.importorskip("pyscipopt")
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
        [{"uncertain_constraints": lambda z, u, w: [u @ z <= w]}, {"outcome_support": lambda u, w: [u >= w]}],
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
    def test_coefficients_that_are_no_numbers_are_refused_when_the_problem_is_written(self):
        with pytest.raises(ValueError, match="must be finite numbers"):
            DecisionProblem(decision=cp.Variable(2), cost=lambda z, u: u @ z + np.nan, n_outcomes=2)


def price(**more):
    return cp.Parameter(2, name="price", **more)


def cap():
    return cp.Parameter(name="cap", nonneg=True)


def lot(**more):
    return cp.Variable(2, bounds=[0.0, 3.0], name="z", **more)


def shortage(z, u, stock):
    return 4 * cp.sum(cp.pos(u - z - stock)) + cp.sum(cp.pos(z + stock - u))


# Decision, parameters, then cost(z, u, p), constraints(z, p) and uncertain constraints(z, u, p) in terms of their list
# p; and whether one compiled program serves all values.
CASES = {
    "costs": (lot(), [price()], lambda z, u, p: u @ z + p[0] @ z, lambda z, p: [cp.sum(z) >= 1], None, True),
    "costs, maxima and right-hand side": (
        lot(),
        [price(), cp.Parameter(2, name="stock"), cap()],
        lambda z, u, p: p[0] @ z + shortage(z, u, p[1]) + 2 * p[0][0],
        lambda z, p: [cp.sum(z) <= p[2]],
        None,
        True,
    ),
    "turnover": (lot(), [price()], lambda z, u, p: u @ z + cp.norm1(z - p[0]), lambda z, p: [], None, True),
    "tracking": (lot(), [price()], lambda z, u, p: u @ z + cp.sum_squares(z - p[0]), lambda z, p: [], None, True),
    "cone": (lot(), [price()], lambda z, u, p: u @ z, lambda z, p: [cp.norm(z - cp.abs(p[0])) <= 1], None, False),
    "integers": (
        lot(integer=True),
        [price(), cap()],
        lambda z, u, p: (u + p[0]) @ z,
        lambda z, p: [cp.sum(z) >= p[1]],
        None,
        True,
    ),
    "uncertain constraints": (
        lot(),
        [cap()],
        lambda z, u, p: cp.sum(z),
        lambda z, p: [],
        lambda z, u, p: [z[0] + z[1] >= u[0] + p[0], (1 + p[0]) * z[1] >= u[1]],
        True,
    ),
    "times the outcome": (
        lot(), [cap()], lambda z, u, p: p[0] * (u @ z) + cp.sum(z), lambda z, p: [cp.sum(z) >= 1], None, False
    ),
    "quadratic form": (
        lot(),
        [cp.Parameter((2, 2), name="S", PSD=True)],
        lambda z, u, p: u @ z + cp.quad_form(z, p[0]),
        lambda z, p: [cp.sum(z) >= 1],
        None,
        False,
    ),
    "no pieces": (lot(), [price()], lambda z, u, p: cp.sum_squares(u - z) + p[0] @ z, lambda z, p: [], None, False),
}  # fmt: skip


QUICK_CASES = ("costs", "costs, maxima and right-hand side", "integers", "uncertain constraints", "times the outcome")


def slow(name):
    return pytest.param(name, marks=pytest.mark.slow)


def some_values(parameters, n, seed=3):
    """Values for n rows that the parameters may have, none of them twice."""
    rng = np.random.default_rng(seed)
    rows = {}
    for parameter in parameters:
        values = rng.normal(size=(n, *parameter.shape))
        values = values @ values.transpose(0, 2, 1) if parameter.attributes["PSD"] else values
        rows[parameter.name()] = np.abs(values) if parameter.is_nonneg() else values
    return rows


def with_parameters(name, **more):
    z, parameters, cost, constraints, uncertain, _ = CASES[name]
    return DecisionProblem(
        decision=z,
        cost=lambda z, u: cost(z, u, parameters),
        constraints=constraints(z, parameters),
        uncertain_constraints=None if uncertain is None else lambda z, u: uncertain(z, u, parameters),
        n_outcomes=2,
        **more,
    )


def written_out_at(name, values, i, center):
    z, parameters, cost, constraints, uncertain, _ = CASES[name]
    p = [cp.Constant(values[parameter.name()][i]) for parameter in parameters]
    sure = None if uncertain is None else lambda z, u: uncertain(z, u, p)
    return written_out(z, lambda z, u: cost(z, u, p), constraints(z, p), center, sure)


class TestParameters:
    @pytest.mark.parametrize("name", CASES)
    def test_bounds_and_costs_equal_the_problem_written_out_at_the_vertices(self, name):
        problem, values = with_parameters(name), some_values(CASES[name][1], len(CENTERS))
        assert (problem.lifted is not None) == CASES[name][-1]
        found = decide(problem, Box(WIDTHS), 1.0, CENTERS, parameters=values)
        wanted = [written_out_at(name, values, i, center) for i, center in enumerate(CENTERS)]
        np.testing.assert_allclose(found.cost_bound, wanted, rtol=1e-5, atol=1e-5)
        assert found.is_optimal.all()
        rows = parameter_rows(problem.parameters, values, len(CENTERS))
        worst = problem.evaluate(found.flat, found.worst_outcome, rows)
        np.testing.assert_allclose(worst, found.cost_bound, rtol=1e-6, atol=1e-6)
        _, parameters, cost, *_ = CASES[name]
        for i in range(2):
            p = [cp.Constant(values[parameter.name()][i]) for parameter in parameters]
            direct = float(cost(cp.Constant(found.z[i]), cp.Constant(CENTERS[i]), p).value)
            assert problem.evaluate(found.flat[[i]], CENTERS[[i]], rows[[i]])[0] == pytest.approx(direct)
            assert problem.at_values(rows[i]).evaluate(found.flat[[i]], CENTERS[[i]])[0] == pytest.approx(direct)

    @pytest.mark.parametrize("name", QUICK_CASES)
    def test_every_row_is_decided_as_if_it_came_alone_in_any_order(self, name):
        problem, values = with_parameters(name), some_values(CASES[name][1], len(CENTERS))
        together = decide(problem, Box(WIDTHS), 1.0, CENTERS, parameters=values)
        order = np.random.default_rng(5).permutation(len(CENTERS))
        mixed = decide(
            problem, Box(WIDTHS), 1.0, CENTERS[order], parameters={key: v[order] for key, v in values.items()}
        )
        np.testing.assert_allclose(mixed.cost_bound, together.cost_bound[order], rtol=1e-6, atol=1e-6)
        for i in range(len(CENTERS)):
            one = {key: v[i] for key, v in values.items()}
            alone = decide(problem, Box(WIDTHS), 1.0, CENTERS[[i]], parameters=one).cost_bound[0]
            assert alone == pytest.approx(together.cost_bound[i], rel=1e-6, abs=1e-6)
            at_value = decide(problem.at(one), Box(WIDTHS), 1.0, CENTERS[[i]]).cost_bound[0]
            assert at_value == pytest.approx(together.cost_bound[i], rel=1e-6, abs=1e-6)

    @pytest.mark.parametrize("name", ["costs", "times the outcome"])
    def test_the_value_of_a_parameter_object_is_never_looked_at(self, name):
        parameters, values = CASES[name][1], some_values(CASES[name][1], len(CENTERS))
        problem = with_parameters(name)
        before = decide(problem, Box(WIDTHS), 1.0, CENTERS, parameters=values).cost_bound
        for parameter in parameters:
            parameter.value = 7 + np.zeros(parameter.shape)
        again = with_parameters(name)
        for each in (problem, again):
            found = decide(each, Box(WIDTHS), 1.0, CENTERS, parameters=values)
            np.testing.assert_array_equal(found.cost_bound, before)
            with pytest.raises(ValueError, match=rf"parameter {parameters[0].name()} without a value.*constants=\["):
                decide(each, Box(WIDTHS), 1.0, CENTERS)
        for parameter in parameters:
            parameter.value = None

    def test_a_constant_keeps_the_value_that_it_had_when_the_problem_was_written(self):
        own = CASES["costs"][1][0]
        own.value = np.array([0.3, -0.4])
        problem = with_parameters("costs", constants=[own])
        wanted = decide(problem, Box(WIDTHS), 1.0, CENTERS).cost_bound
        own.value = np.array([30.0, 40.0])
        state = problem_to_data(problem)
        for twin in (problem, replace(problem, name="twin"), problem_from_data(state), pickle.loads(dumps(problem))):
            found = decide(twin, Box(WIDTHS), 1.0, CENTERS)
            np.testing.assert_array_equal(found.cost_bound, wanted)
            np.testing.assert_allclose(twin.evaluate(found.flat, found.worst_outcome), wanted, atol=1e-9)
        given = decide(with_parameters("costs"), Box(WIDTHS), 1.0, CENTERS, parameters={own: [0.3, -0.4]})
        np.testing.assert_allclose(given.cost_bound, wanted, atol=1e-9)
        own.value = None
        with pytest.raises(ValueError, match="The constant price has no value"):
            with_parameters("costs", constants=[own])
        with pytest.raises(TypeError, match=r"constants must be a list of cvxpy\.Parameters"):
            with_parameters("costs", constants=["price"])

    def test_other_attributes_are_checked_too(self):
        z, whole = cp.Variable(2), cp.Parameter(name="whole", integer=True)
        S = cp.Parameter((2, 2), name="S", PSD=True)
        problem = DecisionProblem(decision=z, cost=lambda z, u: u @ z + cp.quad_form(z, S) + whole, n_outcomes=2)
        with pytest.raises(ValueError, match=r"The parameter whole must be integer, got 1\.5"):
            problem.at({"whole": 1.5, "S": np.eye(2)})
        with pytest.raises(ValueError, match="The parameter S must be a PSD matrix"):
            problem.at({"whole": 1.0, "S": -np.eye(2)})

    @pytest.mark.parametrize("name", ["costs", "times the outcome"])
    def test_values_without_a_feasible_decision_leave_the_other_rows_alone(self, name):
        z, parameters, cost, *_ = CASES[name]
        own = cp.Parameter(name="floor")
        problem = DecisionProblem(
            decision=z, cost=lambda z, u: cost(z, u, parameters), n_outcomes=2, constraints=[cp.sum(z) >= own],
        )  # fmt: skip
        values = {k: v for k, v in some_values(parameters, 6).items() if k in {p.name for p in problem.parameters}}
        found = decide(problem, Box(WIDTHS), 1.0, CENTERS, parameters=values | {own: [1, 1, 9, 1, 1, 9]})
        expected = [Status.INFEASIBLE if i in (2, 5) else Status.OPTIMAL for i in range(6)]
        assert list(found.status) == expected

    def test_what_is_known_of_outcomes_must_not_depend_on_parameters(self):
        floor = cp.Parameter(name="floor")
        with pytest.raises(ValueError, match=r"outcome_support holds the parameter floor.*constants=\[floor\]"):
            DecisionProblem(
                decision=cp.Variable(2), cost=lambda z, u: u @ z, n_outcomes=2, outcome_support=lambda u: [u >= floor]
            )

    def test_a_parameter_out_of_reach_is_refused(self):
        M = cp.Parameter(nonneg=True, name="M", value=1.0)
        for constants in ([], [M]):
            with pytest.raises(ValueError, match="cost holds the parameter M as a setting of a function"):
                DecisionProblem(
                    decision=cp.Variable(2),
                    cost=lambda z, u: u @ z + cp.sum(cp.huber(z, M)),
                    n_outcomes=2,
                    constants=constants,
                )


class _Remembers:
    """A learner that keeps the problem it was given."""

    needs = ph.learners.Needs()

    def learn(self, samples, random_state=None):
        self.problem = samples.problem
        return LearnResult(Box(WIDTHS).as_polyhedron(), 0.0, Status.OPTIMAL, 0.0)


def some_rows(n=120, seed=7):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X + 0.3 * rng.normal(size=(n, 2))


class TestFittedDeciders:
    @pytest.mark.parametrize(
        "name", ["costs, maxima and right-hand side", slow("times the outcome"), slow("no pieces")]
    )
    def test_decide_measure_and_evaluate_agree_at_the_values_of_every_row(self, name):
        X, Y = some_rows()
        values, new = some_values(CASES[name][1], len(X)), some_values(CASES[name][1], 8, seed=9)
        decider = ph.RobustDecider(with_parameters(name), "precomputed", alpha=0.2, learner=QUICK, random_state=0)
        decider.fit(X, Y, parameters=values)
        found, measured = decider.decide(X[:8], parameters=new), decider.measure(X[:8], Y[:8], parameters=new)
        np.testing.assert_allclose(found.cost_bound, measured.cost_bound, rtol=1e-9, atol=1e-9)
        for i in range(4):
            at = decider.problem.at({key: v[i] for key, v in new.items()})
            wanted = decide(at, decider.set_, decider.radius_, X[[i]])
            assert found.cost_bound[i] == pytest.approx(wanted.cost_bound[0], rel=1e-6, abs=1e-6)
            realised = at.evaluate(found.flat[[i]], Y[[i]])[0]
            assert measured.realised[i] == pytest.approx(realised, abs=1e-9)
            assert measured.regret[i] == pytest.approx(realised - decide_knowing(at, Y[[i]])[1][0], abs=1e-5)
        evaluation = decider.evaluate(X[:8], Y[:8], parameters=new)
        assert evaluation.realised_cost.value == pytest.approx(measured.realised.mean())
        with pytest.raises(ValueError, match="without a value"):
            decider.evaluate(X[:8], Y[:8])

    def test_a_set_is_learned_at_the_median_and_covers_whatever_the_parameters_are(self):
        X, Y = some_rows()
        values, learner = some_values(CASES["costs"][1], len(X)), _Remembers()
        decider = ph.RobustDecider(with_parameters("costs"), "precomputed", learner=learner, random_state=0)
        decider.fit(X, Y, parameters=values)
        learning = np.concatenate([decider.split_.train, decider.split_.learn])
        np.testing.assert_array_equal(decider.parameters_["price"], np.median(values["price"][learning], axis=0))
        at_median = decide(decider.problem, Box(WIDTHS), 1.0, CENTERS, parameters=decider.parameters_)
        np.testing.assert_array_equal(
            decide(learner.problem, Box(WIDTHS), 1.0, CENTERS).cost_bound, at_median.cost_bound
        )
        radius = decider.radius_
        decider.recalibrate(X, Y)
        again = decider.radius_
        decider.recalibrate(X, Y, parameters=values)
        assert decider.radius_ == again
        values["price"][decider.split_.calibrate] += 100.0  # rows that calibrate have no say in what is learned
        twin = ph.RobustDecider(with_parameters("costs"), "precomputed", learner=_Remembers(), random_state=0)
        twin.fit(X, Y, parameters=values)
        np.testing.assert_array_equal(twin.parameters_["price"], decider.parameters_["price"])
        assert twin.radius_ == radius

    def test_where_the_median_will_not_do_the_nearest_value_that_occurs_does(self):
        z, whole = cp.Variable(2, bounds=[0.0, 1.0]), cp.Parameter(name="whole", integer=True)
        floor = cp.Parameter(name="floor")
        problem = DecisionProblem(
            decision=z, cost=lambda z, u: u @ z + whole, constraints=[cp.sum(z) >= floor], n_outcomes=2
        )
        # The median of `whole` is 2.5, and above a floor of 2 nothing is feasible.
        values = np.array([[1, 0.5], [2, 1.0], [3, 9.0], [4, 9.0]])
        assert reference_values(problem, values).tolist() == [2.0, 1.0]
        with pytest.raises(ValueError, match="No decision is feasible at the parameters of these rows"):
            reference_values(problem, values[2:])
        X, Y = some_rows()
        decider = ph.RobustDecider(problem, "precomputed", learner=_Remembers(), random_state=0)
        decider.fit(X, Y, parameters={"whole": np.tile([1, 2], 60), "floor": 0.5})
        assert decider.parameters_["whole"] in (1.0, 2.0)

    def test_columns_of_a_table_hold_parameters(self):
        pd = pytest.importorskip("pandas")
        X, Y = some_rows()
        values = some_values(CASES["turnover"][1], len(X))["price"]
        table = pd.DataFrame(X, columns=["a", "b"]).assign(p1=values[:, 0], p2=values[:, 1])
        problem, names = with_parameters("turnover"), {"price": ["p1", "p2"]}
        decider = ph.RobustDecider(problem, LinearRegression(), learner=QUICK, random_state=0)
        decider.fit(table, Y, parameters=names)
        wanted = decider.decide(table, parameters={"price": values}).cost_bound
        np.testing.assert_array_equal(decider.decide(table, parameters=names).cost_bound, wanted)
        with pytest.raises(ValueError, match=r"There is no column 'p3'.*The table has a, b, p1, p2"):
            decider.decide(table, parameters={"price": ["p1", "p3"]})
        decider.fit(table[["a", "b"]], Y, parameters={"price": values})
        wanted = decider.decide(table[["a", "b"]], parameters={"price": values}).cost_bound
        table.loc[3, "p2"] = np.nan
        found = ph.distributed.decide_rows(decider.model_, table, names)
        assert found["status"][3] == "not decided"
        assert found["note"][3] == "missing: price"
        others = np.arange(len(X)) != 3
        np.testing.assert_allclose(found["cost_bound"][others], wanted[others], atol=1e-9)


def dumps(problem):
    cloudpickle = pytest.importorskip("cloudpickle")
    return cloudpickle.dumps(problem)


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
        twin = problem_from_data(problem_to_data(problem))
        first, second = (decide(p, Box(WIDTHS), 1.0, CENTERS) for p in (problem, twin))
        np.testing.assert_array_equal(first.flat, second.flat)
        assert first.layout == second.layout
        assert problem_to_data(twin)["cost"] == problem_to_data(problem)["cost"]
        u = CENTERS[0]
        given = {"a": np.ones(2), "b": np.ones((2, 2)), "c": 1.0} if isinstance(twin.decision, dict) else np.ones(2)
        assert str(twin.cost(given, u)) == str(problem.expression(given, u)).replace("w", twin.layout.names[-1])

    def test_a_problem_made_from_another_is_pickled_by_how_it_was_made(self):
        problem = with_parameters("integers")
        one = {key: value[0] for key, value in some_values(CASES["integers"][1], 1).items()}
        for twin in (problem.at(one), problem.at(one).relaxed(), problem.at(one).relaxed().labelled(name="twin")):
            again = pickle.loads(pickle.dumps(twin))
            assert again.name == twin.name
            first, second = (decide(p, Box(WIDTHS), 1.0, CENTERS).cost_bound for p in (twin, again))
            np.testing.assert_allclose(first, second, atol=1e-9)

    def test_rows_whose_parameters_cannot_be_used_are_marked_and_the_others_decided(self):
        X, Y = some_rows()
        problem, values = with_parameters("integers"), some_values(CASES["integers"][1], 6)
        decider = ph.RobustDecider(problem, "precomputed", learner=QUICK, random_state=0)
        decider.fit(X, Y, parameters=some_values(CASES["integers"][1], len(X)))
        whole = decider.decide(X[:6], parameters=values)
        caps = np.array(values["cap"], dtype=float)
        caps[[1, 4]] = np.nan, -2.0
        with pytest.warns(RuntimeWarning, match="2 of 6 decisions: not decided"):
            found = decider.decide(X[:6], parameters={**values, "cap": caps})
        assert (found.detail[1], found.detail[4]) == ("missing: cap", "cap must be nonneg, got -2.0")
        np.testing.assert_array_equal(np.isnan(found.cost_bound), np.isin(np.arange(6), [1, 4]))
        np.testing.assert_allclose(np.delete(found.flat, [1, 4], 0), np.delete(whole.flat, [1, 4], 0))

    @pytest.mark.parametrize("name", ["costs, maxima and right-hand side", slow("quadratic form")])
    def test_deciders_with_parameters_come_back_from_files(self, name, tmp_path):
        X, Y = some_rows()
        problem, values = with_parameters(name), some_values(CASES[name][1], 8)
        decider = ph.RobustDecider(problem, "precomputed", learner=QUICK, random_state=0)
        decider.fit(X, Y, parameters=some_values(CASES[name][1], len(X))).save(tmp_path / "model")
        twin = ph.load(tmp_path / "model")
        shapes = [(p.name, p.shape, p.attributes()) for p in problem.parameters]
        assert [(p.name, p.shape, p.attributes()) for p in twin.problem.parameters] == shapes
        first, second = (d.decide(X[:8], parameters=values) for d in (decider, twin))
        np.testing.assert_array_equal(first.cost_bound, second.cost_bound)
        np.testing.assert_array_equal(first.flat, second.flat)
        measured = [d.measure(X[:8], Y[:8], parameters=values).realised for d in (decider, twin)]
        np.testing.assert_array_equal(*measured)
        with pytest.raises(ValueError, match="without a value"):
            twin.decide(X[:8])


def test_interpolated_problems_are_those_compiled_at_the_values():
    problem, rng = with_parameters("times the outcome"), np.random.default_rng(4)
    assert problem.lifted is None
    assert problem.interpolated is not None
    z, u = rng.uniform(size=(9, problem.n_decisions)), rng.normal(size=(9, 2))
    for values in rng.uniform(0.1, 9.0, (4, 1)):
        quick, slow = problem.at_values(values), problem.compiled_at(values)
        np.testing.assert_allclose(quick.evaluate(z, u), slow.evaluate(z, u))
        for part in ("Q", "q", "p", "c"):
            np.testing.assert_allclose(getattr(quick.pieces, part), getattr(slow.pieces, part), atol=1e-12)
        ours, theirs = quick.feasible.program, slow.feasible.program
        for one, other in ((ours.c, theirs.c), (ours.b, theirs.b), (ours.A.toarray(), theirs.A.toarray())):
            np.testing.assert_allclose(one, other, atol=1e-12)


EMPTY = {
    "number": (cp.Parameter(name="s"), lambda s, z: cp.pos(s - z[0])),
    "integer": (cp.Parameter(2, name="s", integer=True), lambda s, z: cp.sum(cp.pos(s - z))),
    "matrix": (cp.Parameter((2, 2), name="s", PSD=True), lambda s, z: cp.pos(s[0, 0] - z[0])),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_no_rows_are_no_rows_with_parameters_too(kind):
    own, extra = EMPTY[kind]
    z = cp.Variable(2)
    problem = DecisionProblem(
        decision=z,
        cost=lambda z, u: cp.sum(cp.pos(z - u)) + 3 * cp.sum(cp.pos(u - z)) + extra(own, z),
        constraints=[z >= -5, z <= 5],
        n_outcomes=2,
    )
    for values in (np.zeros((0, *own.shape)), np.zeros(own.shape)):
        found = decide(problem, Box(np.ones(2)), 1.0, np.zeros((0, 2)), parameters={"s": values})
        assert (len(found), found.z.shape, found.cost_bound.shape) == (0, (0, 2), (0,))
        assert parameter_rows(problem.parameters, {"s": values}, 0).shape == (0, own.size)
