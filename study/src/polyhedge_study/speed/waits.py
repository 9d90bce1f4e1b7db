"""What a user waits for, as a program of its own: fits, single rows, first calls, start-up.

It uses nothing but the public names of polyhedge, so that it measures any commit's package: `compare.py` runs it in one
environment for each. Asked for a case on standard input, it answers with seconds of the processor on standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ALPHA = 0.1
"""The default of the library, written out: another commit's may differ."""
_LONG_ENOUGH = 0.05
"""Seconds that a measurement takes at least: quick calls are repeated."""
Timed = tuple[Callable[[], Any], Callable[[Any], list[float]]]
"""What is timed, and the numbers of its result that are compared."""
Case = Callable[[Path], Timed]
"""Prepares a case, untimed, in a folder of models."""


def demand(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Demand (n, d) for d products: a level by weather and weekday, and a spread that grows with the level."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, n), rng.integers(0, 7, n), rng.uniform(0, 1, n)])
    level = 12 + 4 * X[:, :1] * np.linspace(0.5, 1.5, d) + 3 * np.isin(X[:, 1:2], (5, 6)) + 2 * X[:, 2:]
    shared, own = rng.normal(size=(n, 1)), rng.normal(size=(n, d))
    return X, np.maximum(level * (1 + 0.12 * shared + 0.18 * own), 0.0)


def prices(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Prices (n, d) that move together, with tails heavier than normal ones."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    mixed = rng.standard_t(5, size=(n, d)) @ (0.5 * np.eye(d) + 0.5 / d)
    level = np.sin(np.linspace(0, 2 * np.pi, d)) + X @ rng.normal(scale=0.3, size=(6, d))
    return X, 3 + level + (0.3 + 0.2 * (X[:, :1] > 0)) * mixed


def uneven(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Prices (n, d) that half of the rows know five times as well as the others: a set is scaled by their spread."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, 3 + X[:, :d] + np.where(X[:, :1] > 0, 1.0, 0.2) * rng.normal(size=(n, d))


def orders(d: int, **settings: Any) -> Any:
    """A newsvendor with d products that share a capacity."""
    from polyhedge.problems import newsvendor

    return newsvendor(1.0, 3.0, d, capacity=14.0 * d, **settings)


def split_evenly(d: int) -> Any:
    """Shares of a budget at unknown prices."""
    from polyhedge.problems import simplex_linear

    return simplex_linear(np.zeros(d))


def charging(d: int = 24) -> Any:
    """Energy within a day: at most 1 in an hour, 10 in all."""
    import cvxpy as cp

    from polyhedge.problems import DecisionProblem

    z = cp.Variable(d, bounds=[0, 1], name="charge")
    return DecisionProblem(decision=z, cost=lambda z, u: u @ z, constraints=[cp.sum(z) == 10], n_outcomes=d)


def shares(d: int) -> Any:
    """A portfolio with a quadratic risk."""
    from polyhedge.problems import portfolio

    return portfolio(0.5 * np.eye(d) + 0.5 / d, risk_aversion=0.2)


TASKS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[np.ndarray, np.ndarray]]]] = {
    "newsvendor-4": (lambda: orders(4), lambda: demand(480, 4)),
    "newsvendor-7": (lambda: orders(7), lambda: demand(585, 7)),
    "shifts-6": (lambda: orders(6, integer=True), lambda: demand(480, 6)),
    "one-product": (lambda: orders(1), lambda: demand(400, 1)),
    "portfolio-20": (lambda: shares(20), lambda: prices(1500, 20)),
    "charging-24": (charging, lambda: prices(1500, 24)),
    "linear-5": (lambda: split_evenly(5), lambda: prices(20_000, 5)),
    "linear-2": (lambda: split_evenly(2), lambda: prices(100_000, 2)),
    "linear-2-n1000": (lambda: split_evenly(2), lambda: prices(1000, 2)),
    "linear-2-n10000": (lambda: split_evenly(2), lambda: prices(10_000, 2)),
    "uneven-2": (lambda: split_evenly(2), lambda: uneven(2000, 2)),
    "linear-5-n1000": (lambda: split_evenly(5), lambda: prices(1000, 5)),
    "linear-10-n1000": (lambda: split_evenly(10), lambda: prices(1000, 10)),
}
"""Problems with the rows that a decider is fitted on."""


FACETS = {"newsvendor-4": 32, "newsvendor-7": 56, "shifts-6": 48, "charging-24": 25}
"""Facets of the default's sets: for the time of a decision, sets that were learned in few steps will do."""


def fitted(task: str, guarantee: str, folder: Path) -> Any:
    """The model of a task out of the folder; fitted and kept there if it is missing."""
    import polyhedge as ph

    path = folder / f"{task}-{guarantee}.phg"
    if not path.exists():
        problem, rows = TASKS[task]
        learner = None
        if guarantee == "outcome" and task in FACETS:
            learner = ph.learners.Descent(FACETS[task], n_steps=2, max_contexts=20)
        chosen = ph.RobustDecider(problem(), None, alpha=ALPHA, guarantee=guarantee, learner=learner, random_state=0)
        chosen.fit(*rows()).save(path)
    return ph.load(path)


def fit_case(task: str, guarantee: str, **settings: Any) -> Case:
    """Fitting a decider, and its bounds at ten rows."""

    def prepare(folder: Path) -> Timed:
        import polyhedge as ph

        problem, (X, Y) = TASKS[task][0](), TASKS[task][1]()
        learner = ph.learners.Auto(**settings) if settings else None

        def run() -> Any:
            chosen = ph.RobustDecider(problem, None, alpha=ALPHA, guarantee=guarantee, learner=learner, random_state=0)
            return chosen.fit(X, Y)

        return run, lambda decider: [float(decider.radius_)]

    return prepare


def decide_case(task: str, guarantee: str, n: int) -> Case:
    """Deciding n rows with a model out of a file: the same file for all that are compared."""

    def prepare(folder: Path) -> Timed:
        model, X = fitted(task, guarantee, folder), TASKS[task][1]()[0]
        rows = np.resize(X, (n, X.shape[1]))
        return lambda: model.decide(rows), lambda decisions: decisions.cost_bound[:100].tolist()

    return prepare


def start_case(command: str = "", *, module: str = "", arguments: tuple[str, ...] = ()) -> Case:
    """A Python of its own that runs one line, or a module; seconds of the child."""
    what = ["-m", module, *arguments] if module else ["-c", command]

    def prepare(folder: Path) -> Timed:
        def run() -> None:
            subprocess.run([sys.executable, *what], check=True, capture_output=True)

        return run, lambda nothing: []

    return prepare


def contexts_case(cost: str, d: int, K: int, n: int, facets: str = "one-sided") -> Case:
    """Decisions with a set alone, without predictor and calibration, as `bench decisions` times them.

    Facets are along the axes and along mixtures of outcomes, with one far facet that closes the harmless side, or with
    facets on both sides; where they are "random", predictions vary as much as the set is wide and thousands of distinct
    decisions occur.
    """

    def prepare(folder: Path) -> Timed:
        from polyhedge import problems
        from polyhedge.robust import decide
        from polyhedge.sets import Polyhedron

        rng = np.random.default_rng([0, d, K])
        residuals = rng.normal(size=(4000, d)) * rng.gamma(4.0, 0.25, size=(4000, 1))
        W = normals(d, K, facets, rng)
        reach = np.quantile(residuals @ W.T, 0.98, axis=0)
        if facets == "one-sided":
            reach[d] *= 10.0
        radius = float(np.quantile((residuals @ W.T - reach).max(axis=1), 1 - ALPHA))
        centers = (2.0 if facets == "random" else 3.0) * rng.normal(size=(n, d))
        advantage = np.concatenate([[-0.08], np.zeros(d - 1)])
        if cost == "newsvendor":
            scale, problem = 0.2 / d, problems.simplex_newsvendor(0.3, 0.7, d)
            reach, radius, centers = reach * scale, radius * scale, 1.0 / d + scale * centers
        elif cost == "quadratic":
            problem = problems.simplex_quadratic(advantage, 0.08)
        else:
            problem = problems.simplex_linear(advantage)
        shape = Polyhedron(W, -reach)
        return lambda: decide(problem, shape, radius, centers), lambda decisions: decisions.cost_bound[:1000].tolist()

    return prepare


def normals(d: int, K: int, facets: str, rng: np.random.Generator) -> np.ndarray:
    """Normals (K, d) of the facets."""
    if facets == "random":
        W = rng.normal(size=(K, d))
        return np.asarray(W / np.linalg.norm(W, axis=1, keepdims=True))
    behind = -np.eye(d) if facets == "two-sided" else -np.ones((1, d)) / np.sqrt(d)
    return np.vstack([np.eye(d), behind, rng.dirichlet(np.ones(d), size=K - d - len(behind)) * np.sqrt(d)])


CONTEXTS: dict[str, Case] = {
    "decide d2-K4, a million": contexts_case("linear", 2, 4, 1_000_000),
    "decide d2-K8, a million": contexts_case("linear", 2, 8, 1_000_000),
    "decide d5-K20, 100 000": contexts_case("linear", 5, 20, 100_000),
    "decide d10-K40, 100 000": contexts_case("linear", 10, 40, 100_000),
    "decide d10-K40-hard, 20 000": contexts_case("linear", 10, 40, 20_000, "random"),
    "decide d20-K80, 20 000": contexts_case("linear", 20, 80, 20_000),
    "decide d20-K80-hard, 20 000": contexts_case("linear", 20, 80, 20_000, "random"),
    "decide newsvendor-d6, 20 000": contexts_case("newsvendor", 6, 24, 20_000, "two-sided"),
    "decide quadratic-d2, a million": contexts_case("quadratic", 2, 4, 1_000_000),
    "decide quadratic-d10, 20 000": contexts_case("quadratic", 10, 40, 20_000),
}
"""The regimes of `bench decisions`, in sizes that take seconds at most."""
_SUPPORTED = ("newsvendor-4", "newsvendor-7", "shifts-6", "one-product")
_OTHERS = ("portfolio-20", "charging-24", "linear-5", "linear-2")
KINDS: dict[str, dict[str, Case]] = {
    "fit": {
        **{f"fit {task}": fit_case(task, "outcome") for task in (*_SUPPORTED, *_OTHERS)},
        **{f"plan {task}": fit_case(task, "cost") for task in ("newsvendor-4", "charging-24", "linear-2-n10000")},
    },
    "latency": {
        **{
            f"one row of {task}": decide_case(task, "outcome", 1)
            for task in ("newsvendor-4", "newsvendor-7", "shifts-6", "charging-24")
        },
        "147 rows of newsvendor-7": decide_case("newsvendor-7", "outcome", 147),
        "100 rows of charging-24": decide_case("charging-24", "outcome", 100),
        "a million rows of linear-2-n10000": decide_case("linear-2-n10000", "outcome", 1_000_000),
        "a million rows of uneven-2, scaled by a spread": decide_case("uneven-2", "outcome", 1_000_000),
        **{f"planned row of {task}": decide_case(task, "cost", 1) for task in ("newsvendor-4", "charging-24")},
        "a million planned rows of linear-2-n10000": decide_case("linear-2-n10000", "cost", 1_000_000),
        **CONTEXTS,
    },
    "startup": {
        "import polyhedge": start_case("import polyhedge"),
        "import the decider": start_case("import polyhedge as ph; ph.RobustDecider"),
        "python -m polyhedge --version": start_case(module="polyhedge", arguments=("--version",)),
    },
}
"""Cases by the command that measures them."""
GROWTH: dict[str, tuple[str, int, Case]] = {
    **{f"fit, n = {n}": ("n", n, fit_case(f"linear-2-n{n}", "outcome")) for n in (1000, 10_000)},
    **{f"fit, d = {d}": ("d", d, fit_case(f"linear-{d}-n1000", "outcome")) for d in (2, 5, 10)},
    **{f"fit, K = {K}": ("K", K, fit_case("linear-5-n1000", "outcome", n_facets=K)) for K in (10, 20, 40)},
    **{f"decide, N = {N}": ("N", N, decide_case("linear-5-n1000", "outcome", N)) for N in (1000, 10_000, 100_000)},
}
"""Cases along which a time grows: the parameter, its value, and the case."""


def main() -> None:
    """Answer one case a line: seconds of the processor, and numbers that must be equal whoever computes them."""
    folder = Path(sys.argv[1])
    known = {name: case for cases in KINDS.values() for name, case in cases.items()}
    known |= {name: case for name, (_, _, case) in GROWTH.items()}
    ready: dict[str, Timed] = {}
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        name = json.loads(line)
        if name not in ready:
            ready.clear()  # what another case holds must not slow this one
            ready[name] = known[name](folder)
        run, numbers = ready[name]
        began, n_calls = _seconds(), 0
        while True:
            result, n_calls = run(), n_calls + 1
            seconds = _seconds() - began
            if seconds >= _LONG_ENOUGH:
                break
        print(json.dumps({"seconds": seconds / n_calls, "numbers": numbers(result)}), flush=True)


def _seconds() -> float:
    """Seconds of the processor, of this process and of children that ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


if __name__ == "__main__":
    main()
