"""Decision problems: what a callable says is read exactly, and what it must not say is refused."""

import copy

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from polyhedge.problems import (
    Curvature,
    DecisionProblem,
    Pieces,
    SumOfMaxima,
    newsvendor,
    portfolio,
    simplex_linear,
    simplex_newsvendor,
    simplex_quadratic,
)
from polyhedge.problems.decompose import decompose
from polyhedge.problems.pieces import PIECE_LIMIT, maximum_of
from polyhedge.robust import decide, decide_knowing
from polyhedge.sets import Box

RNG = np.random.default_rng(0)
A23, B32 = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 2))
PARAMETER = cp.Parameter(3, value=RNG.normal(size=3))


def written(cost, shape=3, n_outcomes=3, **options):
    z = cp.Variable(shape, **options)
    return DecisionProblem(decision=z, cost=cost, n_outcomes=n_outcomes, constants=[PARAMETER])


def value(expression):
    return float(np.asarray(expression.value).item())


# Each spelling with the shape of the decision; all are (maxima of) biaffine functions of (z, u) plus g_0(z).
AFFINE = {
    "inner product": (3, lambda z, u: u @ z),
    "sum of products": (3, lambda z, u: cp.sum(cp.multiply(z, u))),
    "matrix between": (2, lambda z, u: z @ A23 @ u + 1.0),
    "index and slice": (4, lambda z, u: z[0] * u[2] + cp.sum(z[1:] * u[0]) - z[3]),
    "matrix decision": ((2, 3), lambda z, u: cp.sum(z @ u)),
    "trace": ((3, 3), lambda z, u: cp.trace(z @ cp.diag(u))),
    "axis and order": ((2, 3), lambda z, u: cp.sum(z, axis=0) @ u + cp.sum(cp.vec(z, order="F")[:2])),
    "stacked": (2, lambda z, u: cp.hstack([z, 1.0]) @ u),
    "parameter": (3, lambda z, u: (PARAMETER + u) @ z + PARAMETER @ z),
    "outcome alone": (3, lambda z, u: cp.sum(u) - 2.0),
    "nonlinear in z alone": (3, lambda z, u: u @ z + cp.sum_squares(z) + cp.exp(z[0]) + cp.norm(z)),
    "weighted nonlinear part": (3, lambda z, u: 2.5 * (u @ z + cp.max(cp.square(z)))),
    "cumulative": (3, lambda z, u: cp.sum(cp.multiply(cp.cumsum(z), u))),
    "constant": (3, lambda z, u: 3.0),
}
MAX_AFFINE = {
    "maximum": (3, lambda z, u: cp.maximum(u @ z, z[0] - 1.0, 0.0)),
    "positive part": (3, lambda z, u: np.array([1.0, 2.0, 3.0]) @ cp.pos(z - u) + cp.sum(cp.neg(z - u))),
    "absolute value": (3, lambda z, u: cp.sum(cp.abs(u - z)) + u[0]),
    "norm 1": (3, lambda z, u: cp.norm(u - z, 1)),
    "norm inf": (3, lambda z, u: cp.norm(cp.multiply(z, u) - 1.0, "inf")),
    "max of a vector": (3, lambda z, u: cp.max(cp.multiply(u, z))),
    "nested maxima": (3, lambda z, u: cp.maximum(cp.abs(u[0] - z[0]) + cp.pos(u[1]), cp.max(u) - z[2])),
    "maximum of a sum of maxima": (3, lambda z, u: cp.pos(cp.sum(cp.abs(u - z)) - 1.0)),
    "max along rows": ((2, 3), lambda z, u: cp.sum(cp.max(cp.multiply(z, cp.vstack([u, u])), axis=1))),
    "norm 1 of columns": ((2, 3), lambda z, u: cp.max(cp.norm(z - cp.vstack([u, u]), 1, axis=0))),
    "kept dimensions": ((2, 3), lambda z, u: cp.sum(cp.max(z - cp.vstack([u, u]), axis=1, keepdims=True))),
    "broadcast maximum": ((2, 3), lambda z, u: cp.sum(cp.maximum(z, cp.vstack([u, -u])))),
    "scalar against vector": (3, lambda z, u: cp.sum(cp.maximum(u, z[0]))),
    "revenue": (3, lambda z, u: cp.sum(z) - 4 * cp.sum(cp.minimum(z, u))),
    "least entry": (3, lambda z, u: -cp.min(u - z)),
    "scalar decision": ((), lambda z, u: cp.abs(z - u[0]) + 0.5 * cp.maximum(u[1] * z, u[2])),
    "with a nonlinear part": (3, lambda z, u: cp.max(u - z) + cp.sum_squares(z)),
    "parameter weight": (3, lambda z, u: cp.abs(PARAMETER) @ cp.pos(u - z)),
}
SPELLINGS = AFFINE | MAX_AFFINE


class TestEverySpellingIsReadExactly:
    @pytest.mark.parametrize("spelling", SPELLINGS)
    def test_arrays_equal_the_callable(self, spelling):
        shape, cost = SPELLINGS[spelling]
        problem = written(cost, shape)
        expected = Curvature.AFFINE if spelling in AFFINE else Curvature.MAX_AFFINE
        assert problem.curvature is expected
        rng = np.random.default_rng(1)
        z, u = rng.normal(size=(8, problem.n_decisions)), rng.normal(size=(8, 3))
        direct = [
            value(problem.expression(cp.Constant(a.reshape(shape)), cp.Constant(b))) for a, b in zip(z, u, strict=True)
        ]
        np.testing.assert_allclose(problem.evaluate(z, u), direct, atol=1e-9)
        decision_part = problem.evaluate(z, u) - problem.sum_of_maxima.evaluate(z, u)
        np.testing.assert_allclose(problem.pieces.evaluate(z, u) + decision_part, direct, atol=1e-9)

    @pytest.mark.parametrize("entry", range(6))
    def test_every_entry_of_a_matrix_expression_is_read_in_row_major_order(self, entry):
        z, u = cp.Variable((2, 3)), cp.Variable(3)
        rows = decompose(cp.multiply(z, cp.vstack([u, 2 * u])) + cp.abs(z - 1) + cp.pos(z - u[0]), z, u)
        assert len(rows) == 6
        rng = np.random.default_rng(2)
        a, b = rng.normal(size=(2, 3)), rng.normal(size=3)
        direct = (a * np.vstack([b, 2 * b]) + np.maximum(a - b[0], 0)).ravel()[entry]
        assert rows[entry].joint_part.evaluate(a.reshape(1, -1), b[None])[0] == pytest.approx(direct)

    @pytest.mark.parametrize(
        "cost",
        [
            lambda z, u: cp.sum_squares(u - z),
            lambda z, u: cp.exp(u @ z),
            lambda z, u: cp.norm(u - z),
            lambda z, u: cp.maximum(cp.square(z[0]) - u[0], 0),
            lambda z, u: cp.log_sum_exp(u + z),
        ],
    )
    def test_a_convex_cost_without_pieces_is_convex(self, cost):
        problem = written(cost)
        assert problem.curvature is Curvature.CONVEX
        assert problem.pieces is None

    @pytest.mark.parametrize(
        "cost",
        [
            lambda z, u: u @ z - cp.sum_squares(u),
            lambda z, u: cp.sum_squares(z) + cp.min(u),
            lambda z, u: cp.minimum(u[0], u[1]) + u @ z,
        ],
    )
    def test_a_concave_cost_is_concave(self, cost):
        assert written(cost).curvature is Curvature.CONCAVE

    def test_known_signs_decide_where_dcp_needs_them(self):
        cost = lambda z, u: z @ cp.log(u)  # noqa: E731
        assert written(cost, nonneg=True).curvature is Curvature.CONCAVE
        with pytest.raises(ValueError, match="declare the variable nonneg=True"):
            written(cost)
        squares = lambda z, u: u @ cp.square(z)  # noqa: E731
        with pytest.raises(ValueError, match="if it needs u >= 0, say so in outcome_support"):
            written(squares)
        problem = DecisionProblem(
            decision=cp.Variable(3), cost=squares, n_outcomes=3, outcome_support=lambda u: [u >= 0]
        )
        assert problem.curvature is Curvature.CONCAVE

    def test_the_users_variable_and_its_value_are_left_alone(self):
        z = cp.Variable(2, nonneg=True)
        problem = DecisionProblem(
            decision=z, cost=lambda z, u: cp.max(u - z), constraints=[cp.sum(z) <= 1], n_outcomes=2
        )
        decide(problem, Box([1.0, 1.0]), 1.0, np.zeros((1, 2)))
        assert problem.decision is z
        assert z.value is None
        z.value = np.array([0.25, 0.5])
        DecisionProblem(decision=z, cost=lambda z, u: cp.max(u - z), n_outcomes=2)
        np.testing.assert_array_equal(z.value, [0.25, 0.5])

    def test_a_deep_copy_is_the_problem_itself(self):
        problem = simplex_linear([0.0, 1.0])
        assert copy.deepcopy({"problem": problem})["problem"] is problem


finite = st.floats(-3, 3).map(lambda x: round(x, 3))


class TestPieces:
    @settings(max_examples=15, deadline=None)
    @given(arrays(float, (3, 4, 3), elements=finite))
    def test_a_random_problem_is_compiled_to_its_own_coefficients(self, M):
        pieces = Pieces.from_coefficients(M)
        problem = written(
            lambda z, u: cp.maximum(*[(Q @ z + q) @ u + p @ z + c for Q, q, p, c in zip(
                pieces.Q, pieces.q, pieces.p, pieces.c, strict=True)]),
            3,
            2,
        )  # fmt: skip
        compiled = problem.pieces
        rng = np.random.default_rng(0)
        z, u = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
        np.testing.assert_allclose(compiled.evaluate(z, u), pieces.evaluate(z, u), atol=1e-9)
        assert len(compiled) <= len(pieces)

    @settings(max_examples=40, deadline=None)
    @given(arrays(float, (3, 2, 2, 2), elements=finite), arrays(float, 3, elements=st.sampled_from([-2.0, 0.5, 1.0])))
    def test_merging_parallel_segments_keeps_the_function(self, groups, factors):
        twins = [np.stack([g[0], g[0] + f * (g[1] - g[0])]) for g, f in zip(groups, factors, strict=True)]
        total = SumOfMaxima(np.ones((2, 2)), (*groups, *twins))
        rng = np.random.default_rng(0)
        z, u = rng.normal(size=(5, 1)), rng.normal(size=(5, 1))
        assert len(total.merged().groups) <= 3 + sum(not (g[1] - g[0]).any() for g in groups) * 2
        np.testing.assert_allclose(total.merged().evaluate(z, u), total.evaluate(z, u), atol=1e-9)
        np.testing.assert_allclose(total.pieces().evaluate(z, u), total.evaluate(z, u), atol=1e-9)

    def test_nearly_parallel_segments_are_not_merged(self):
        tilt = np.array([[0.0, 1e-6], [1.0, 0.0]])
        straight = np.array([[0.0, 0.0], [1.0, 0.0]])
        total = SumOfMaxima(np.zeros((2, 2)), tuple(np.stack([0 * a, a]) for a in (tilt, straight)))
        assert len(total.merged().groups) == 2

    def test_a_large_constant_does_not_make_segments_parallel(self):
        total = lambda z, u: 2 * cp.pos(u[0] - z[0] - 1e6) + cp.pos(1e6 + (1 + 1e-7) * z[0] - u[0])  # noqa: E731
        problem = written(total, 1, 1)
        z, u = np.array([[1e5], [-3e5]]), np.array([[1.1e6], [7e5]])
        assert problem.evaluate(z, u) == pytest.approx([1e-2, 0.0], rel=1e-6)

    @pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
    @pytest.mark.parametrize("shift", [0.0, 1e6])
    def test_coefficients_are_exact_next_to_large_constants(self, unit, shift):
        problem = written(lambda z, u: (0.1 * unit) * (u - shift) @ z + shift * unit * z[0] + shift, 2, 2)
        np.testing.assert_allclose(problem.pieces.Q[0], 0.1 * unit * np.eye(2), rtol=1e-12)
        assert not problem.pieces.q.any()

    def test_a_sum_with_too_many_pieces_has_no_list(self):
        n = PIECE_LIMIT.bit_length()
        problem = simplex_newsvendor(1.0, 2.0, n)
        assert problem.pieces is None
        assert problem.sum_of_maxima.n_pieces == 2**n > PIECE_LIMIT
        assert problem.curvature is Curvature.MAX_AFFINE
        assert maximum_of([problem.sum_of_maxima]) is None

    @pytest.mark.parametrize("d", [2, 3, 6])
    def test_the_newsvendor_has_the_two_slopes_of_every_product(self, d):
        over, under = np.arange(1.0, d + 1), 2.0 * np.arange(1.0, d + 1)
        pieces = simplex_newsvendor(over, under, d).pieces
        assert len(pieces) == 2**d
        assert {tuple(q) for q in pieces.q.round(9)} == {
            tuple(np.where(bits, under, -over)) for bits in np.ndindex(*[2] * d)
        }
        np.testing.assert_allclose(pieces.p, -pieces.q, atol=1e-12)


READY_MADE = {
    "simplex linear": (lambda: simplex_linear([-0.1, 0.2]), lambda z, u: (np.array([-0.1, 0.2]) + u) @ z),
    "simplex quadratic": (
        lambda: simplex_quadratic([0.1, 0.0, 0.3], 0.7),
        lambda z, u: (
            (np.array([0.1, 0.0, 0.3]) + u) @ z + 0.7 * sum((z[i] - z[j]) ** 2 for i in range(3) for j in range(i))
        ),
    ),
    "simplex newsvendor": (
        lambda: simplex_newsvendor(1.0, [2.0, 3.0], 2),
        lambda z, u: np.maximum(z - u, 0).sum() + np.array([2.0, 3.0]) @ np.maximum(u - z, 0),
    ),
    "newsvendor": (
        lambda: newsvendor([1.0, 2.0], 5.0, 2, capacity=3.0, sizes=[1.0, 2.0]),
        lambda z, u: np.array([1.0, 2.0]) @ np.maximum(z - u, 0) + 5 * np.maximum(u - z, 0).sum(),
    ),
    "portfolio": (
        lambda: portfolio([[2.0, 0.5], [0.5, 1.0]], risk_aversion=3.0),
        lambda z, u: -u @ z + 3.0 * z @ np.array([[2.0, 0.5], [0.5, 1.0]]) @ z,
    ),
}


class TestReadyMade:
    @pytest.mark.parametrize("name", READY_MADE)
    def test_cost_is_the_formula(self, name):
        make, formula = READY_MADE[name]
        problem = make()
        rng = np.random.default_rng(0)
        z, u = rng.uniform(size=(2, 10, problem.n_outcomes))
        expected = [formula(a, b) for a, b in zip(z, u, strict=True)]
        np.testing.assert_allclose(problem.evaluate(z, u), expected, atol=1e-9)
        assert problem.name == name

    def test_the_newsvendors_options_reach_the_decision(self):
        problem = newsvendor(1.0, 4.0, 2, capacity=5.0, sizes=[1.0, 3.0], integer=True)
        z, cost = decide_knowing(problem, np.array([[1.4, 1.4]]))
        options = [(a, b) for a in range(6) for b in range(6) if a + 3 * b <= 5]
        costs = problem.evaluate(np.array(options, float), np.full((len(options), 2), 1.4))
        assert cost[0] == pytest.approx(costs.min())
        assert tuple(z[0]) in options
        assert len(problem.support_rows[0]) == 2
        assert not len(newsvendor(1.0, 1.0, 2, nonnegative_demand=False).support_rows[0])


class TestMistakes:
    def test_a_callable_is_called_once_and_its_formula_kept(self):
        factors = iter([2.0, 7.0])
        problem = written(lambda z, u: next(factors) * (u @ z))
        z, u = np.ones((1, 3)), np.full((1, 3), 5.0)
        assert problem.evaluate(z, u) == pytest.approx([30.0])
        assert value(problem.cost_at(z[0], u[0])) == pytest.approx(30.0)

    @pytest.mark.parametrize(
        "cost",
        [
            lambda z, u: u @ u,
            lambda z, u: u[0] * u[1] * z[0],
            lambda z, u: z[0] / u[0],
            lambda z, u: cp.sum_squares(u) + cp.sqrt(u[0]) + cp.sum(z),
        ],
    )
    def test_a_cost_that_is_neither_convex_nor_concave_is_refused(self, cost):
        with pytest.raises(ValueError, match="neither affine, concave nor convex in the outcome"):
            written(cost)

    def test_a_cost_that_is_not_convex_in_the_decision_is_refused(self):
        with pytest.raises(ValueError, match="must be convex in the decision for every outcome"):
            written(lambda z, u: u @ z - cp.sum_squares(z))

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"decision": np.zeros(2)}, TypeError, "decision must be a cvxpy.Variable, a list or .* got array"),
            ({"n_outcomes": 0}, ValueError, "n_outcomes must be a positive integer, got 0"),
            ({"n_outcomes": 2.0}, ValueError, r"n_outcomes must be a positive integer, got 2\.0"),
            ({"cost": lambda z, u: cp.multiply(z, u)}, ValueError, r"must return one number.*shape \(2,\)"),
            ({"n_outcomes": 3}, ValueError, "Incompatible dimensions"),
            ({"outcome_support": lambda u: u >= 0}, TypeError, "outcome_support must be a list"),
            ({"outcome_support": lambda u: [cp.norm(u) <= 1]}, ValueError, "must give linear constraints on u"),
            ({"outcome_support": lambda u: [u >= 1, u <= 0]}, ValueError, "outcome_support is empty"),
            ({"uncertain_constraints": lambda z, u: u @ z <= 1}, TypeError, "uncertain_constraints must be a list"),
            ({"uncertain_constraints": lambda z, u: [u @ z == 1]}, ValueError, "only inequalities can hold"),
            ({"uncertain_constraints": lambda z, u: [u @ u <= z[0]]}, ValueError, "must be affine in the outcome"),
            (
                {"uncertain_constraints": lambda z, u: [u @ z <= cp.sum_squares(z)]},
                ValueError,
                "convex in the decision",
            ),
        ],
    )  # fmt: skip
    def test_mistakes_are_named_when_the_problem_is_written(self, options, error, message):
        defaults = {"decision": cp.Variable(2), "cost": lambda z, u: u @ z, "n_outcomes": 2}
        with pytest.raises(error, match=message):
            DecisionProblem(**(defaults | options))

    @pytest.mark.parametrize(
        "constraints",
        [lambda z: [z >= 2, cp.sum(z) <= 3], lambda z: [cp.norm(z) <= 1, cp.sum(z) >= 2], lambda z: [z <= -1]],
    )
    def test_an_infeasible_feasible_set_is_refused(self, constraints):
        z = cp.Variable(2, nonneg=True)
        with pytest.raises(ValueError, match="The feasible set of the decision problem is empty"):
            DecisionProblem(decision=z, cost=lambda z, u: u @ z, n_outcomes=2, constraints=constraints(z))

    def test_an_attribute_without_meaning_here_is_refused(self):
        with pytest.raises(ValueError, match="has the attribute PSD=True, which is not supported"):
            written(lambda z, u: cp.trace(z) + cp.sum(u), (3, 3), PSD=True)


class TestFeasibleSet:
    @pytest.mark.needs("pyscipopt")
    def test_attributes_bound_the_decision_as_cvxpy_would(self):
        u = np.array([1.0, -1.0, 0.5])
        for options in (
            {"bounds": [-1.0, 2.0]},
            {"bounds": [np.array([-1.0, 0.0, 1.0]), np.array([2.0, 3.0, np.inf])]},
            {"boolean": True},
            {"boolean": [(0, 2)], "bounds": [-2.0, 2.0]},
            {"integer": [(1,)], "bounds": [-1.5, 1.5]},
        ):
            problem = written(lambda z, u: u @ z, **options)
            z = cp.Variable(3, **options)
            reference = cp.Problem(cp.Minimize(u @ z)).solve(solver=cp.SCIP)
            assert decide_knowing(problem, u[None])[1][0] == pytest.approx(reference, abs=1e-7), options

    def test_known_support_is_read_with_both_sides_of_equations(self):
        problem = DecisionProblem(
            decision=cp.Variable(2),
            cost=lambda z, u: u @ z,
            n_outcomes=2,
            outcome_support=lambda u: [u >= 0, cp.sum(u) == 1, 2 * u[0] <= 3 - u[1]],
        )
        A, h = problem.support_rows
        inside, outside = np.array([0.25, 0.75]), np.array([0.25, 0.5])
        assert np.all(A @ inside <= h + 1e-12)
        assert not np.all(A @ outside <= h)
        assert problem.outcomes_are_nonneg


def test_decisions_without_their_auxiliary_variables_cannot_be_costed():
    z, extra = cp.Variable(2, bounds=[0, 3]), cp.Variable(nonneg=True, name="extra")
    problem = DecisionProblem(
        decision=z, cost=lambda z, u: u @ z + 10 * extra, constraints=[cp.sum(z) >= 4 - extra], n_outcomes=2
    )
    with pytest.raises(ValueError, match=r"z must have shape \(N, 3\), as Decisions.flat has, got \(1, 2\)"):
        problem.evaluate(np.ones((1, 2)), np.ones((1, 2)))
