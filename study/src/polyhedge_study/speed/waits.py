"""What a user waits for, as a program of its own: fits, single rows, first calls, start-up.

It uses nothing but the public names of polyhedge, so that it measures any commit's package: `compare.py` runs it in one
environment for each. Asked for a case on standard input, it answers with seconds of the processor on standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ALPHA = 0.1
Case = Callable[[], Callable[[], Any]]
"""Prepares a case, untimed, and gives what is timed."""


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


def decider(problem: Any, guarantee: str) -> Any:
    """The default decider that promises this."""
    import polyhedge as ph

    return ph.RobustDecider(problem, alpha=ALPHA, guarantee=guarantee, random_state=0)


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
    "linear-2-small": (lambda: split_evenly(2), lambda: prices(10_000, 2)),
}


def fitted(task: str, guarantee: str, folder: Path) -> Any:
    """The model of a task out of the folder; fitted and kept there if it is missing."""
    import polyhedge as ph

    path = folder / f"{task}-{guarantee}.phg"
    if not path.exists():
        problem, rows = TASKS[task]
        decider(problem(), guarantee).fit(*rows()).save(path)
    return ph.load(path)
