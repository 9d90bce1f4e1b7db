"""Fits across the library whose decisions, bounds and expected costs stay the same while its inside is rebuilt.

`python tests/golden.py` writes what they give now to tests/golden.json; names of cases after it write only those anew.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from typer.testing import CliRunner

import polyhedge as ph
from polyhedge.app import cli
from polyhedge.calibration import ByCategory, Online, Recent, ThisModel, Weighted
from polyhedge.learners import CCG, Descent, OneSidedBox, PcaBox, Pinball, Scenario
from polyhedge_study.cases import make_case
from polyhedge_study.learners.boxes import MinVolume, RotatedBoxGrid
from polyhedge_study.tasks import energy_task, synthetic_task

GOLDEN = Path(__file__).with_suffix(".json")
N_SHOWN = 5
Result = dict[str, list[float]]


def result(decisions: Any, bounds: Any, expected: Any, costs: Any) -> Result:
    """Flat figures of a case; the spread of its costs says which differences are none."""
    figures = {"decisions": decisions, "bounds": bounds, "expected": [] if expected is None else expected}
    figures["spread"] = [np.ptp(costs) or np.abs(bounds).max()]  # a cost may be certain
    return {name: np.ravel(values).astype(float).tolist() for name, values in figures.items()}


def shown(decider: ph.RobustDecider, X: Any, Y: Any, costs: Any = None, **more: Any) -> Result:
    """What is decided at these rows; costs are those of the first decision at outcomes Y."""
    found = decider.decide(X, **more)
    if costs is None:
        Y = np.asarray(Y, dtype=float)
        costs = decider.problem_.evaluate(np.tile(found.flat[0], (len(Y), 1)), Y)
    return result(found.flat, found.cost_bound, found.expected_cost, costs)


def fitted(problem: Any, X: Any, Y: Any, predictor: Any = None, groups: Any = None, **settings: Any) -> Result:
    """All rows but the last few fit, the last are decided."""
    decider = ph.RobustDecider(problem, predictor, random_state=0, **settings)
    return shown(decider.fit(X[:-N_SHOWN], Y[:-N_SHOWN], groups=groups), X[-N_SHOWN:], Y)


def on_draws(make: Callable[[], ph.DecisionProblem], n: int = 120, **settings: Any) -> Result:
    problem = make()
    X, Y = ph.data.make_synthetic(n, rng=np.random.default_rng(7), n_outcomes=max(problem.n_outcomes, 2))
    return fitted(problem, X, np.abs(Y)[:, : problem.n_outcomes], **settings)


# The pages


def readme() -> Result:
    shop = ph.data.make_example("newsvendor")
    products = ["bread", "salad", "soup"]
    cost = lambda z, u: [1, 2, 1.5] @ cp.pos(z - u) + [2, 4, 4] @ cp.pos(u - z)  # noqa: E731
    problem = written(cost, 3, lambda z: [cp.sum(z) <= 160])
    decider = ph.RobustDecider(problem, alpha=0.1, random_state=0)
    decider.fit(shop.history.drop(columns=products), shop.history[products])
    return shown(decider, shop.new, shop.fresh[products])


def tutorial(example: str, outcomes: list[str], *options: str) -> Result:
    """The commands of the tutorial, with the predictor that is chosen there, and what they write."""

    def polyhedge(*command: str) -> None:
        done = CliRunner().invoke(cli.app, command)
        assert done.exit_code == 0, done.output

    with TemporaryDirectory() as folder, chdir(folder):
        polyhedge("example", example, "--out", ".")
        polyhedge("fit", "history.csv", "--problem", "problem.toml", *options, "--out", "model.polyhedge")
        polyhedge("decide", "model.polyhedge", "new.csv", "--out", "decisions.csv")
        table = pd.read_csv("decisions.csv", float_precision="round_trip")
        fresh = pd.read_csv("fresh.csv")[outcomes].to_numpy(dtype=float)
        problem = ph.problems.from_toml("problem.toml")
    decisions = table[table.columns[: len(outcomes)]].to_numpy()
    costs = problem.evaluate(np.tile(decisions[0], (len(fresh), 1)), fresh)
    return result(decisions, table["cost_bound"], table.get("expected_cost"), costs)


# The paper's tasks and real data


def paper(name: str, seed: int, guarantee: str) -> Result:
    task = energy_task(seed) if name == "energy" else synthetic_task(seed, name, sizes=(60, 30, 30, 20))
    rows = [task.rows(part) for part in ("train", "learn", "calibrate")]
    X, Y = (np.concatenate([row[k] for row in rows]) for k in (0, 1))
    decider = ph.RobustDecider(task.problem, task.predictor, guarantee=guarantee, random_state=0)
    decider.fit(X[-120:], Y[-120:])
    return shown(decider, task.rows("test")[0][:N_SHOWN], Y)


def real(name: str, n: int, **settings: Any) -> Result:
    task = make_case(name)
    return fitted(task.problem, task.X[:n], task.Y[:n], task.predictor, split="time", **settings)


# Other problems


def written(cost: Any, n_outcomes: int, constraints: Any, **more: Any) -> ph.DecisionProblem:
    z = cp.Variable(n_outcomes, **more.pop("kinds", {"nonneg": True}))
    return ph.DecisionProblem(decision=z, cost=cost, constraints=constraints(z), n_outcomes=n_outcomes, **more)


def whole() -> ph.DecisionProblem:
    cost = lambda z, u: u @ z + 0.3 * cp.sum(z)  # noqa: E731
    return written(cost, 2, lambda z: [cp.sum(z) >= 1], kinds={"boolean": True})


def two_budgets() -> ph.DecisionProblem:
    cost = lambda z, u: 0.3 * cp.sum(cp.pos(z - u)) + 0.7 * cp.sum(cp.pos(u - z))  # noqa: E731
    return written(cost, 3, lambda z: [cp.sum(z) == 1, z[0] + 2 * z[1] <= 1])


def uncertain() -> ph.DecisionProblem:
    cost = lambda z, u: np.array([1.0, 1.5]) @ z + cp.pos(u[0] - z[0])  # noqa: E731
    rows = lambda z, u: [z[0] + 0.5 * z[1] >= u[0], z[1] >= u[1] - 1]  # noqa: E731
    return written(cost, 2, lambda z: [z <= 20], uncertain_constraints=rows)


def concave() -> ph.DecisionProblem:
    cost = lambda z, u: cp.sum(z) + 4 * cp.sqrt(u[0] + 1) - u @ z * 0.1  # noqa: E731
    return written(cost, 2, lambda z: [cp.sum(z) == 1], outcome_support=lambda u: [u >= 0])


def square(d: int) -> ph.DecisionProblem:
    return written(lambda z, u: u @ z + 0.2 * cp.sum_squares(z), d, lambda z: [cp.sum(z) == 1])


def row_parameters() -> Result:
    price = cp.Parameter(2, name="price")
    problem = written(lambda z, u: (u + price) @ z, 2, lambda z: [cp.sum(z) == 1])
    X, Y = ph.data.make_synthetic(205, rng=np.random.default_rng(7))
    prices = np.random.default_rng(2).uniform(size=(205, 2))
    decider = ph.RobustDecider(problem, None, guarantee="outcome", random_state=0)
    decider.fit(X[:200], Y[:200], parameters={"price": prices[:200]})
    return shown(decider, X[200:], Y, costs=Y + prices, parameters={"price": prices[200:]})


def linear() -> ph.DecisionProblem:
    return ph.problems.simplex_linear([-0.08, 0.0])


def scaled() -> Result:
    """Residuals grow with the first feature: a spread is found."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(305, 2))
    return fitted(linear(), X, rng.normal(size=(305, 2)) * np.exp(2.5 * X[:, :1]), guarantee="outcome")


def precomputed() -> Result:
    Y = np.random.default_rng(1).normal(size=(205, 2)) + 4
    return fitted(ph.problems.newsvendor(0.3, 0.7, 2), Y * 0.5 + 2, Y, "precomputed")


def calibrated(calibration: Any, column: bool = False, n_fed: int = 0, **settings: Any) -> Result:
    """With a column of categories or weights, 1 or 2, where asked for; later outcomes are fed."""
    X, Y = ph.data.make_synthetic(240, rng=np.random.default_rng(5))
    if column:
        kinds = 1.0 + np.arange(240)[:, None] % 2
        X, Y = np.hstack([X, kinds]), Y * kinds
    decider = ph.RobustDecider(linear(), None, calibration=calibration, random_state=0, **settings)
    decider.fit(X[:200], Y[:200])
    for k in range(200, 200 + n_fed):
        decider.update(X[k : k + 1], Y[k : k + 1])
    return shown(decider, X[-N_SHOWN:], Y)


BOX = OneSidedBox()
COST = ("--group", "building", "--predictor", "boosting")
SET = ("--time-column", "date", "--guarantee", "outcome", "--predictor", "ridge")
LEARNERS = (
    *(Pinball(n_steps=200, n_starts=2), CCG(max_iterations=20), RotatedBoxGrid(n_angles=4, n_aspects=3)),
    *(MinVolume(n_angles=4, n_aspects=3), PcaBox(), Scenario(), Descent(), BOX),
)
CASES: dict[str, Callable[[], Result]] = {
    "readme": readme,
    "tutorial, energy": partial(tutorial, "energy", ["heating_load", "cooling_load"], *COST),
    "tutorial, shops": partial(tutorial, "newsvendor", ["bread", "salad", "soup"], *SET),
    **{
        f"{name}, seed {seed}, {guarantee}": partial(paper, name, seed, guarantee)
        for name in ("linear", "quadratic", "newsvendor", "energy")
        for seed in (0, 1)
        for guarantee in ("cost", "outcome")
    },
    "real, bakery": partial(real, "bakery", 160),
    "real, restaurant": partial(real, "restaurant", 160),
    "real, bikes": partial(real, "bikes", 160),
    "real, bikes, set": partial(real, "bikes", 160, learner=BOX),
    "real, portfolio": partial(real, "portfolio", 300, learner=BOX, guarantee="cost"),
    "real, portfolio, set": partial(real, "portfolio", 300, learner=BOX),
    "whole numbers": partial(on_draws, whole, n=41),
    "whole numbers, set": partial(on_draws, whole, learner=BOX),
    "uncertain constraints": partial(on_draws, uncertain, n=60),
    "uncertain constraints, set": partial(on_draws, uncertain, learner=BOX),
    "two budgets": partial(on_draws, two_budgets, n=45),
    "two budgets, set": partial(on_draws, two_budgets, learner=BOX),
    "square": partial(on_draws, partial(square, 2), n=60),
    "square, set": partial(on_draws, partial(square, 4), learner=BOX),
    "square, plan against a set": partial(on_draws, partial(square, 4), learner=BOX, guarantee="cost"),
    "no pieces": partial(on_draws, concave, n=45, learner=BOX),
    "one outcome": partial(on_draws, partial(ph.problems.newsvendor, 0.3, 0.7, 1)),
    "groups": partial(on_draws, linear, n=125, groups=np.arange(120) // 3, learner=BOX),
    "row parameters": row_parameters,
    "spread": scaled,
    "precomputed": precomputed,
    "by category": partial(calibrated, ByCategory(-1), column=True, learner=BOX),
    "weighted": partial(calibrated, Weighted(weights=-1), column=True, learner=BOX),
    "online": partial(calibrated, Online(), n_fed=30, split="time"),
    "online, radius": partial(calibrated, Online(step=0.05, follow="radius"), n_fed=30, split="time", learner=BOX),
    "recent": partial(calibrated, Recent(40), split="time", learner=BOX),
    "this model": partial(calibrated, ThisModel(), learner=BOX),
    **{f"learner {type(one).__name__}": partial(on_draws, linear, n=64, learner=one) for one in LEARNERS},
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    named = sys.argv[1:] or list(CASES)
    found = json.loads(GOLDEN.read_text()) if sys.argv[1:] else {}
    for name in named:
        began = process_time()
        found[name] = CASES[name]()
        print(f"{process_time() - began:6.2f} s  {name}", flush=True)
    GOLDEN.write_text(json.dumps(found, indent=0) + "\n")
