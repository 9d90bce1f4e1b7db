"""Decisions with recourse: language, exact second stages, both guarantees, repair, and what is refused."""

from __future__ import annotations

import itertools
import pickle

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import polyhedge as ph
from polyhedge import DecisionProblem
from polyhedge.planning.pool import with_pool
from polyhedge.planning.residual_distributions import DevelopmentRows
from polyhedge.problems import NoSolutionError
from polyhedge.problems.layout import parameter_rows
from polyhedge.robust import decide, decide_knowing
from polyhedge.robust.adversary import Adversary
from polyhedge.robust.recourse import BothStages
from polyhedge.sets import Box

LEFT, MISSING, SHIP = np.array([1.0, 1.2, 1.4]), np.array([3.0, 4.0, 5.0]), 0.4


def shops(n=3, integer=False, **more):
    """Stock before demand is known, goods moved between shops once it is."""
    stock = cp.Variable(n, nonneg=True, name="stock")
    moved = cp.Variable((n, n), nonneg=True, name="moved", integer=integer)

    def cost(z, u, y):
        have = z - cp.sum(y, axis=1) + cp.sum(y, axis=0)
        return 0.1 * cp.sum(z) + LEFT[:n] @ cp.pos(have - u) + MISSING[:n] @ cp.pos(u - have) + SHIP * cp.sum(y)

    return DecisionProblem(
        decision=stock,
        recourse=moved,
        n_outcomes=n,
        cost=cost,
        constraints=[cp.sum(stock) <= 40 * n],
        recourse_constraints=lambda z, u, y: [cp.sum(y, axis=1) <= z],
        **more,
    )


def written_out(n, z, u, integer=False):
    """The cost of both stages, in CVXPY."""
    y = cp.Variable((n, n), nonneg=True, integer=integer)
    have = z - cp.sum(y, axis=1) + cp.sum(y, axis=0)
    cost = LEFT[:n] @ cp.pos(have - u) + MISSING[:n] @ cp.pos(u - have) + SHIP * cp.sum(y)
    problem = cp.Problem(cp.Minimize(cost), [cp.sum(y, axis=1) <= z])
    problem.solve(solver=cp.SCIPY)
    return 0.1 * z.sum() + problem.value


def table(n_rows, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(20, 40, size=(n_rows, d))
    return X, X * rng.uniform(0.6, 1.4, size=(n_rows, d))


class TestSecondStage:
    """Costs are those of the program that was written."""

    @pytest.mark.parametrize("integer", [False, True])
    @pytest.mark.parametrize("n", [2, 3])
    def test_costs_are_those_of_the_program_as_written(self, n, integer):
        rng = np.random.default_rng(n)
        z, u = rng.uniform(0, 40, (6, n)), rng.uniform(0, 60, (6, n))
        expected = [written_out(n, *row, integer=integer) for row in zip(z, u, strict=True)]
        np.testing.assert_allclose(shops(n, integer).evaluate(z, u), expected, rtol=1e-6)

    def test_costs_do_not_depend_on_the_rows_that_were_evaluated_before(self):
        rng = np.random.default_rng(0)
        z, u = rng.uniform(0, 40, (300, 3)), rng.uniform(0, 60, (300, 3))
        problem = shops()
        first, alone = problem.evaluate(z, u), [shops().evaluate(z[[i]], u[[i]])[0] for i in (0, 150, 299)]
        np.testing.assert_allclose(problem.evaluate(z[::-1], u[::-1])[::-1], first, rtol=1e-11)
        np.testing.assert_allclose(first[[0, 150, 299]], alone, rtol=1e-11)

    def test_listed_vertices_of_the_dual_give_the_same_costs(self):
        rng = np.random.default_rng(0)
        problem, z, u = shops(2), rng.uniform(0, 40, (200, 2)), rng.uniform(0, 60, (200, 2))
        by_pieces = problem.with_pool(problem.all_pieces).evaluate(z, u)
        np.testing.assert_allclose(by_pieces, problem.evaluate(z, u), rtol=1e-10)
        assert problem.structure.has_pieces

    def test_quadratic_second_stage_is_evaluated_and_its_cuts_touch_it(self):
        z, y = cp.Variable(2, nonneg=True), cp.Variable(2, name="more")
        problem = DecisionProblem(
            decision=z,
            recourse=y,
            n_outcomes=2,
            cost=lambda z, u, y: cp.sum(z) + cp.sum_squares(y) + 3 * cp.sum(cp.pos(u - z - y)),
        )
        rng = np.random.default_rng(0)
        at = rng.uniform(0, 3, (50, 2)), rng.uniform(0, 6, (50, 2))
        gap = np.maximum(at[1] - at[0], 0)
        expected = at[0].sum(axis=1) + np.where(gap < 1.5, gap**2, 2.25 + 3 * (gap - 1.5)).sum(axis=1)
        np.testing.assert_allclose(problem.evaluate(*at), expected, rtol=1e-6)
        pieces, rays = problem.second_stage.cuts(*at)
        values = problem.with_pool(pieces).evaluate(*at)
        np.testing.assert_allclose(values, expected, atol=1e-5)
        assert not len(rays)

    def test_an_outcome_may_multiply_the_first_decision(self):
        z, y = cp.Variable(1, nonneg=True), cp.Variable(1, nonneg=True, name="bought")
        problem = DecisionProblem(
            decision=z,
            recourse=y,
            n_outcomes=2,
            cost=lambda z, u, y: z[0] + 5 * y[0],
            recourse_constraints=lambda z, u, y: [u[0] * z[0] + y[0] >= u[1]],
        )
        rng = np.random.default_rng(0)
        z_, u = rng.uniform(0, 3, (40, 1)), rng.uniform(0, 3, (40, 2))
        expected = z_[:, 0] + 5 * np.maximum(u[:, 1] - u[:, 0] * z_[:, 0], 0)
        np.testing.assert_allclose(problem.evaluate(z_, u), expected, atol=1e-9)

    def test_infeasible_second_stages_cost_infinitely_much(self):
        problem = capped()
        costs = problem.evaluate(np.array([[1.0], [1.0], [9.0]]), np.array([[2.5], [3.5], [9.5]]))
        np.testing.assert_array_equal(np.isposinf(costs), [False, True, False])
        assert problem.all_pieces is None  # the dual has rays that matter

    def test_auxiliary_variables_and_several_recourse_variables(self):
        z, a = cp.Variable(2, nonneg=True, name="z"), cp.Variable(nonneg=True, name="a")
        b, slack = cp.Variable(2, integer=True, name="b"), cp.Variable(nonneg=True, name="slack")
        problem = DecisionProblem(
            decision={"z": z},
            recourse={"a": a, "b": b},
            n_outcomes=2,
            cost=lambda z, u, y: cp.sum(z["z"]) + 2 * y["a"] + cp.sum(y["b"]) + 9 * slack,
            recourse_constraints=lambda z, u, y: [
                z["z"][0] + y["a"] + y["b"][0] + slack >= u[0],
                z["z"][1] + y["b"][1] >= u[1],
                y["b"] >= 0,
                y["b"] <= 3,
            ],
        )
        costs = problem.evaluate(np.array([[0.0, 0.0]]), np.array([[4.5, 2.2]]))
        np.testing.assert_allclose(costs, [3 + 2 * 1.5 + 3], atol=1e-7)  # b = (3, 3), a = 1.5
        assert problem.recourse_layout.names == ("a", "b", "slack")
        assert problem.layout.names == ("z",)

    def test_parameters_of_rows_enter_limits_and_costs_of_the_first_decision(self):
        z, y = cp.Variable(1, nonneg=True, name="z"), cp.Variable(1, nonneg=True, name="y")
        stock, price = cp.Parameter(name="stock", nonneg=True), cp.Parameter(name="price", nonneg=True)
        for cost_of_y in (3.0, price):  # by affine parameters, and value by value
            problem = DecisionProblem(
                decision=z,
                recourse=y,
                n_outcomes=1,
                cost=lambda z, u, y, q=cost_of_y: price * z[0] + q * y[0],
                recourse_constraints=lambda z, u, y: [stock + z[0] + y[0] >= u[0]],
            )
            given = [{"stock": 1.0, "price": 2.0}, {"stock": 4.0, "price": 0.5}]
            values = np.array([[row[one.name] for one in problem.parameters] for row in given])
            costs = problem.evaluate(np.array([[1.0], [1.0]]), np.array([[5.0], [7.0]]), values)
            later = np.array([2.0, 0.5]) if cost_of_y is price else 3.0
            np.testing.assert_allclose(costs, np.array([2.0, 0.5]) + later * np.array([3.0, 2.0]), atol=1e-9)

    @pytest.mark.parametrize("moving", [("price",), ("cap",), ("price", "cap"), ("price", "cap", "share")], ids=str)
    def test_parameters_in_all_places_at_once_cost_what_the_program_costs(self, moving):
        rng, n = np.random.default_rng(0), 20
        leaves = [cp.Parameter(name="price", nonneg=True), cp.Parameter(2, name="cap"), cp.Parameter(name="share")]
        s, c, e = (leaf if leaf.name() in moving else np.full(leaf.shape, 0.5) for leaf in leaves)
        z, y = cp.Variable(2, nonneg=True), cp.Variable(2, nonneg=True, name="buy")

        def cost(z, u, y):
            return cp.sum(z) + s * cp.sum(y) + 9 * cp.sum(cp.pos(u - z - e * y))

        problem = DecisionProblem(
            decision=z,
            recourse=y,
            n_outcomes=2,
            cost=cost,
            constraints=[z <= 5],
            recourse_constraints=lambda z, u, y: [y <= c],
        )
        given = {leaf.name(): rng.uniform(0.2, 3, (n, *leaf.shape)) for leaf in leaves if leaf.name() in moving}
        values, at, u = (
            parameter_rows(problem.parameters, given, n),
            rng.uniform(0, 4, (n, 2)),
            rng.uniform(0, 8, (n, 2)),
        )
        expected = []
        for k in range(n):
            for leaf in leaves:
                leaf.value = given[leaf.name()][k] if leaf.name() in moving else None
            program = cp.Problem(cp.Minimize(cost(at[k], u[k], y)), [y <= c])
            expected.append(program.solve(solver=cp.SCIPY))
        np.testing.assert_allclose(problem.evaluate(at, u, values), expected, rtol=1e-7)
        for k in range(n):
            alone = problem.at_values(values[k]).evaluate(at[[k]], u[[k]], np.zeros((1, 0)))
            np.testing.assert_allclose(alone, expected[k], rtol=1e-7)

    def test_pickles_and_texts_have_both_stages(self):
        problem = shops(2)
        again = pickle.loads(pickle.dumps(problem))
        z, u = np.ones((1, 2)), np.full((1, 2), 3.0)
        np.testing.assert_allclose(again.evaluate(z, u), problem.evaluate(z, u))
        assert "and, once u is known, over moved (2 x 2, at least 0)" in repr(again)
        assert "over order (1, 0 to 10) and, once u is known, over bought (1, 0 to 2)" in repr(capped())


def capped():
    """At most 2 can be bought once demand is known, so that a small order may not do."""
    z, y = cp.Variable(1, bounds=[0, 10], name="order"), cp.Variable(1, bounds=[0, 2], name="bought")
    return DecisionProblem(
        decision=z,
        recourse=y,
        n_outcomes=1,
        cost=lambda z, u, y: z[0] + 3 * y[0],
        recourse_constraints=lambda z, u, y: [z[0] + y[0] >= u[0]],
    )


def test_a_price_that_is_a_parameter_of_the_row_is_planned_with():
    stock, bought = cp.Variable(1, nonneg=True, name="stock"), cp.Variable(1, nonneg=True, name="bought")
    price = cp.Parameter(name="price", nonneg=True)
    problem = DecisionProblem(
        decision=stock,
        recourse=bought,
        n_outcomes=1,
        cost=lambda z, u, y: 2 * z[0] + price * y[0],
        recourse_constraints=lambda z, u, y: [z[0] + y[0] >= u[0]],
    )
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(4, 6, 140), rng.choice([1.0, 9.0], 140)])
    Y, values = X[:, :1] + rng.uniform(-1, 1, size=(140, 1)), {"price": X[:, 1]}
    decider = ph.RobustDecider(problem, "linear", guarantee="cost", random_state=0)
    decider.fit(X[:120], Y[:120], parameters={"price": X[:120, 1]})
    now = decider.decide(X[120:], parameters={"price": X[120:, 1]})
    is_dear = values["price"][120:] > 5
    np.testing.assert_allclose(now.z[~is_dear], 0.0, atol=1e-6)  # what is cheap later is bought later
    assert (now.z[is_dear, 0] > X[120:, 0][is_dear] - 0.5).all()
    later = decider.repair(X[120:], Y[120:], now, parameters={"price": X[120:, 1]})
    expected = 2 * now.z[:, 0] + X[120:, 1] * np.maximum(Y[120:, 0] - now.z[:, 0], 0.0)
    np.testing.assert_allclose(later.cost, expected, atol=1e-7)


class TestRefused:
    """Each mistake by name, with what to do."""

    def problem(self, cost, rows=None, **more):
        z, y = cp.Variable(2, nonneg=True, name="z"), cp.Variable(2, nonneg=True, name="later")
        given = {"decision": z, "recourse": y, "n_outcomes": 2, "cost": cost, "recourse_constraints": rows} | more
        return DecisionProblem(**given)

    def test_outcome_that_multiplies_a_recourse_variable(self):
        with pytest.raises(ValueError, match=r"outcome u\[1\] multiplies the recourse variable later.*Multiply by"):
            self.problem(lambda z, u, y: cp.sum(z) + u[1] * y[0], lambda z, u, y: [z + y >= u])

    def test_cost_that_is_not_convex_in_both(self):
        with pytest.raises(ValueError, match=r"In cost, .* must be convex in both decisions together"):
            self.problem(lambda z, u, y: cp.multiply(z, y)[0] + cp.sum(y), lambda z, u, y: [y >= u])

    def test_constraint_that_is_not_convex_in_both(self):
        with pytest.raises(ValueError, match=r"In recourse_constraints, .* must be convex in both"):
            self.problem(lambda z, u, y: cp.sum(y), lambda z, u, y: [cp.square(y) >= u])

    def test_unbounded_second_stage(self):
        with pytest.raises(NoSolutionError, match=r"second stage is unbounded.*Bound the recourse variables"):
            self.problem(lambda z, u, y: cp.sum(z) - cp.sum(y), lambda z, u, y: [y >= u])

    def test_recourse_that_ignores_the_outcome(self):
        with pytest.raises(ValueError, match=r"nothing to wait for.*decision="):
            self.problem(lambda z, u, y: u @ z + cp.sum(y), lambda z, u, y: [y >= z])

    def test_names_that_clash(self):
        z, y = cp.Variable(2, name="a"), cp.Variable(2, name="a", nonneg=True)
        with pytest.raises(ValueError, match="must have a name of its own"):
            self.problem(lambda z, u, y: cp.sum(y), lambda z, u, y: [y >= u], decision=z, recourse=y)

    def test_a_variable_in_both_stages(self):
        z = cp.Variable(2, name="a")
        with pytest.raises(ValueError, match="part of the decision and of the recourse"):
            self.problem(lambda z, u, y: cp.sum(y), decision=z, recourse=z)

    def test_constraints_without_recourse(self):
        with pytest.raises(ValueError, match="recourse_constraints are given without recourse"):
            self.problem(lambda z, u: cp.sum(z), lambda z, u, y: [y >= u], recourse=None)

    def test_repair_of_a_problem_with_one_stage(self):
        X, Y = ph.data.make_synthetic(100, rng=np.random.default_rng(0))
        decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), "linear", random_state=0).fit(X, Y)
        with pytest.raises(ValueError, match="has no second stage"):
            decider.repair(X[:3], Y[:3], decider.decide(X[:3]))

    @pytest.mark.parametrize("integer", [True, False])
    def test_a_set_of_outcomes_where_the_worst_case_is_out_of_reach(self, integer):
        z, y = cp.Variable(2, nonneg=True), cp.Variable(2, nonneg=True, integer=integer, name="later")
        problem = DecisionProblem(
            decision=z,
            recourse=y,
            n_outcomes=2,
            cost=lambda z, u, y: cp.sum(z) + (cp.sum(y) if integer else cp.sum_squares(y)),
            recourse_constraints=lambda z, u, y: [y + z >= u],
        )
        X, Y = table(80, 2)
        with pytest.raises(ValueError, match=r'out of reach.*guarantee="cost"'):
            ph.RobustDecider(problem, "linear", guarantee="outcome", random_state=0).fit(X, Y).decide(X[:2])


class TestBothStages:
    """Programs of both stages against brute force."""

    def test_decision_that_knows_the_outcome_is_the_least_over_a_grid(self):
        problem, u = shops(2), np.array([[10.0, 30.0], [30.0, 3.0]])
        z, costs = decide_knowing(problem, u)
        grid = np.array(list(itertools.product(np.linspace(0, 40, 41), repeat=2)))
        for k in range(2):
            least = problem.evaluate(grid, np.tile(u[k], (len(grid), 1))).min()
            assert costs[k] <= least + 1e-9
            np.testing.assert_allclose(problem.evaluate(z[[k]], u[[k]]), costs[k], rtol=1e-8)

    @pytest.mark.parametrize(("n", "is_proven"), [(2, False), (3, False), (2, True)])
    def test_robust_decision_is_that_of_the_program_over_all_vertices(self, n, is_proven, monkeypatch):
        if is_proven:  # as over a set of many vertices: a local search, and a mixed-integer proof at its end
            monkeypatch.setattr(Adversary, "needs_proofs", True)
        problem, center, width = shops(n), np.full(n, 20.0), np.linspace(5, 9, n)
        found = decide(problem, Box(width), 1.0, center[None])
        vertices = center + width * np.array(list(itertools.product((-1, 1), repeat=n)))
        z, worst = cp.Variable(n, nonneg=True), cp.Variable()
        rows = [cp.sum(z) <= 40 * n]
        for u in vertices:
            y = cp.Variable((n, n), nonneg=True)
            have = z - cp.sum(y, axis=1) + cp.sum(y, axis=0)
            cost = 0.1 * cp.sum(z) + LEFT[:n] @ cp.pos(have - u) + MISSING[:n] @ cp.pos(u - have) + SHIP * cp.sum(y)
            rows += [cost <= worst, cp.sum(y, axis=1) <= z]
        cp.Problem(cp.Minimize(worst), rows).solve(solver=cp.SCIPY)
        np.testing.assert_allclose(found.cost_bound, worst.value, rtol=1e-6)

    def test_mixed_integer_adversary_finds_the_worst_vertex(self):
        problem, z = shops(2), np.array([25.0, 0.0])
        adversary = Adversary(problem, Box([6.0, 9.0]), 1.0, np.array([20.0, 20.0]))
        vertices = adversary.vertices
        worst = problem.evaluate(np.tile(z, (len(vertices), 1)), vertices).max()
        np.testing.assert_allclose(adversary._over_both_stages(z).value, worst, rtol=1e-7)

    def test_sample_average_is_that_of_the_program_written_out(self):
        rng = np.random.default_rng(0)
        u = rng.uniform(0, 40, (5, 2))
        solution, z = BothStages(shops(2)).solve(u)
        mean = np.mean([written_out(2, z, one) for one in u])
        np.testing.assert_allclose(solution.value, mean, rtol=1e-6)
        others = [
            np.mean([written_out(2, np.maximum(z + step, 0), one) for one in u]) for step in rng.normal(size=(6, 2))
        ]
        assert mean <= min(others) + 1e-6


class TestPool:
    """A pool bounds costs from below, misses little of them, and its rays price infeasible second stages."""

    def rows(self, d, n=120):
        X, Y = table(n, d)
        return DevelopmentRows(X, X, Y, np.zeros((n, 0)), np.arange(n) % 5)

    @pytest.mark.parametrize("integer", [False, True])
    def test_pool_is_a_lower_bound_that_misses_little(self, integer):
        problem, rows = shops(3, integer), self.rows(3)
        seen = with_pool(problem, rows)
        z = np.tile(decide_knowing(shops(3), rows.centers.mean(axis=0)[None])[0], (len(rows), 1))
        nothing = np.zeros((len(rows), 0))
        planned = seen.joint.evaluate(z, rows.outcomes) + seen.alone(z, nothing)
        exact = problem.evaluate(z, rows.outcomes)
        assert (planned <= exact + 1e-7 * np.abs(exact)).all()
        if not integer:
            assert (exact - planned).mean() <= 0.01 * exact.std()

    def test_rays_make_orders_that_may_not_do_expensive(self):
        seen = with_pool(
            capped(),
            DevelopmentRows(
                np.zeros((40, 1)),
                np.full((40, 1), 5.0),
                np.linspace(3, 9, 40)[:, None],
                np.zeros((40, 0)),
                np.arange(40) % 5,
            ),
        )
        few, many = np.array([[2.0]]), np.array([[8.0]])
        at = np.full((1, 1), 9.0)
        assert seen.joint.evaluate(few, at) > 20 + seen.joint.evaluate(many, at)


class TestGuarantee:
    """The exact law of coverage, whatever the pool misses."""

    @pytest.mark.parametrize(("integer", "seed"), [(False, 1), (True, 2)])
    def test_bound_holds_by_the_exact_law_on_shuffled_rows(self, integer, seed):
        m, n_test, models, alpha = 19, 25, 24, 0.1
        rng, held = np.random.default_rng(seed), 0
        problem = shops(2, integer)
        X, Y = table(100 + models * (m + n_test), 2, seed)
        decider = ph.RobustDecider(problem, "linear", alpha, guarantee="cost", random_state=0).fit(X[:100], Y[:100])
        rest = 100 + rng.permutation(len(X) - 100).reshape(models, m + n_test)
        for rows in rest:
            decider.recalibrate(X[rows[:m]], Y[rows[:m]])
            now = decider.decide(X[rows[m:]])
            held += int((problem.evaluate(now.flat, Y[rows[m:]]) <= now.cost_bound + 1e-9).sum())
        # Coverage of one model is Beta(k, m + 1 - k), so that held rows are beta-binomial.
        k = int(np.ceil((1 - alpha) * (m + 1)))
        one = stats.betabinom(n_test, k, m + 1 - k)
        mean, deviation = models * one.mean(), np.sqrt(models * one.var())
        assert abs(held - mean) <= 4 * deviation

    def test_infeasible_rows_are_named_and_score_infinity(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(4, 6, size=(400, 1))
        Y = X + np.where(rng.uniform(size=(400, 1)) < 0.06, 30.0, rng.uniform(-1, 1, size=(400, 1)))
        decider = ph.RobustDecider(capped(), "linear", 0.2, guarantee="cost", random_state=0)
        with pytest.warns(ph.DiagnosticWarning, match=r"Second stage: \d+ of 100 calibration rows score"):
            decider.fit(X, Y)
        scores = decider.model_.radii.scores
        assert np.isposinf(scores).any()
        assert np.isfinite(decider.radius_)

    @pytest.mark.parametrize("guarantee", ["cost", "outcome"])
    def test_uncertain_constraints_of_the_first_stage_hold_with_the_bound(self, guarantee, tmp_path):
        problem = shops(3, uncertain_constraints=lambda z, u: [cp.sum(z) >= 0.8 * cp.sum(u)])
        X, Y = table(330, 3)
        decider = ph.RobustDecider(problem, "linear", guarantee=guarantee, random_state=0).fit(X[:300], Y[:300])
        e = decider.evaluate(X[300:], Y[300:])
        assert e.promise_held > 0.75
        now = decider.decide(X[300:])
        both = (problem.evaluate(now.flat, Y[300:]) <= now.cost_bound + 1e-7) & (
            now.z.sum(axis=1) >= 0.8 * Y[300:].sum(axis=1) - 1e-7
        )
        np.testing.assert_allclose(e.promise_held, both.mean())
        decider.save(tmp_path / "m.polyhedge")
        again = ph.load(tmp_path / "m.polyhedge").decide(X[300:])
        np.testing.assert_allclose(again.cost_bound, now.cost_bound, rtol=1e-7)

    @pytest.mark.parametrize("guarantee", ["cost", "outcome"])
    def test_files_decide_the_same(self, guarantee, tmp_path):
        X, Y = table(160, 2)
        decider = ph.RobustDecider(shops(2), "linear", guarantee=guarantee, random_state=0).fit(X[:150], Y[:150])
        decider.save(tmp_path / "model.polyhedge")
        now, again = decider.decide(X[150:]), ph.load(tmp_path / "model.polyhedge").decide(X[150:])
        np.testing.assert_allclose(again.cost_bound, now.cost_bound, rtol=1e-9)

    def test_repair_costs_what_the_program_costs_and_keeps_its_constraints(self):
        X, Y = table(220, 3)
        decider = ph.RobustDecider(shops(3), "linear", guarantee="cost", random_state=0).fit(X[:200], Y[:200])
        now = decider.decide(X[200:])
        later = decider.repair(X[200:], Y[200:], now)
        expected = [written_out(3, z, u) for z, u in zip(now.z, Y[200:], strict=True)]
        np.testing.assert_allclose(later.cost, expected, rtol=1e-6)
        assert (later["moved"].sum(axis=2) <= now.z + 1e-7).all()
        np.testing.assert_array_equal(later.is_within, later.cost <= now.cost_bound)
        frame = later.to_frame()
        assert list(frame.columns[:2]) == ["moved_1_1", "moved_1_2"]
        assert list(frame.columns[-6:]) == ["first_cost", "second_cost", "cost", "cost_bound", "is_within", "status"]
        e = decider.evaluate(X[200:], Y[200:])
        np.testing.assert_allclose(e.first_cost + e.second_cost, e.realised_cost)
        np.testing.assert_allclose(e.realised_cost, later.cost.mean())
        rows, known = pd.DataFrame(X[200:]), pd.DataFrame(Y[200:])
        framed = decider.decide(rows)
        with pytest.raises(ValueError, match="decisions of these very rows, got others by their index"):
            decider.repair(rows[::-1], known[::-1], framed)
        with pytest.raises(TypeError, match=r"got ndarray\. For decisions of your own pass bound"):
            decider.repair(rows, known, framed.z)
        alone = decider.repair(X[200:201], Y[200:201], now[:1])
        np.testing.assert_allclose(alone.flat, later.flat[:1])


def rushed(cap, integer=False):
    """What is missing is made in a rush, at most so much in sum."""
    z, y = cp.Variable(2, nonneg=True, name="make"), cp.Variable(2, nonneg=True, name="rush", integer=integer)
    return DecisionProblem(
        decision=z,
        recourse=y,
        n_outcomes=2,
        constraints=[cp.sum(z) <= 45],
        cost=lambda z, u, y: cp.sum(z) + 3 * cp.sum(y) + 0.2 * cp.sum(cp.pos(z - u)),
        recourse_constraints=lambda z, u, y: [z + y >= u, cp.sum(y) <= cap],
    )


@pytest.mark.filterwarnings("ignore::polyhedge.DiagnosticWarning")
@pytest.mark.filterwarnings("ignore:.*no feasible second decision")
@pytest.mark.parametrize(("cap", "integer"), [(4, False), (9, False), (50, False), (50, True)])
def test_plans_avoid_infeasible_second_stages_and_every_face_shows_what_they_cost(cap, integer, tmp_path):
    rng, n = np.random.default_rng(23), 380
    X = rng.normal(size=(n, 1))
    Y = np.hstack([10 + 3 * X, np.full((n, 1), 12.0)]) + rng.gamma(2, 2, (n, 2))
    decider = ph.RobustDecider(rushed(cap, integer), "linear", guarantee="cost", random_state=0).fit(X[:300], Y[:300])
    now, e = decider.decide(X[300:]), decider.evaluate(X[300:], Y[300:])
    lost = np.isposinf(decider.repair(X[300:], Y[300:], now).second_cost)
    assert lost.mean() <= 0.05
    assert e.n_infeasible == lost.sum()
    assert ("infinite cost" in str(e)) == lost.any()
    if integer:  # the pool has the pieces of the relaxation, which costs less
        assert e.expected_cost is None
    else:
        assert abs(e.expected_cost - e.realised_cost) <= 0.1 * e.realised_cost
    page = tmp_path / "page.html"
    decider.report(page, X[300:], Y[300:])
    assert "rush" in page.read_text()
    changed = decider.bound(X[300:302], 1.1 * now.z[:2])
    assert (changed.cost_bound >= now.cost_bound[:2] - 2).all()
    assert not np.isfinite(changed.cost_bound).any() or not integer


def test_error_names_the_second_stage_and_the_rows_where_too_many_are_infeasible():
    X = np.linspace(0, 1, 100)[:, None]
    Y = np.hstack([X, X]) + np.random.default_rng(0).uniform(10, 35, (100, 2))
    with pytest.raises(ValueError, match=r"calibration rows \(the first: .* second stage is infeasible: no second"):
        ph.RobustDecider(rushed(4), "linear", guarantee="cost", random_state=0).fit(X, Y)
