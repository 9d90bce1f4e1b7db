r"""The four tasks of the paper: a problem, its data, the four splits and the predictor.

| name       | data              | cost                                | train / learn / calibrate / test |
|------------|-------------------|-------------------------------------|----------------------------------|
| linear     | synthetic         | $(c + u)^\top z$, c = (-0.08, 0)    | 1200 / 300 / 300 / 1000          |
| quadratic  | same draws        | the same $+\ 0.08\,(z_1 - z_2)^2$   | 1200 / 300 / 300 / 1000          |
| newsvendor | synthetic         | overage 0.3, underage 0.7           | 1200 / 300 / 300 / 1000          |
| energy     | Energy Efficiency | as linear                           | 320 / 160 / 144 / 144            |

Decisions lie on the probability simplex in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from polyhedge.data import Split, load_energy_efficiency, make_synthetic
from polyhedge.data.splits import IndexArray
from polyhedge.problems import DecisionProblem, simplex_linear, simplex_newsvendor, simplex_quadratic
from polyhedge_study.feature_ridge import FeatureRidge
from polyhedge_study.inside import Array, check_count

__all__ = ["TASKS", "Task", "energy_task", "make_task", "synthetic_task"]

# Rows that train, learn, calibrate and test, as the paper deals them.
SYNTHETIC_SIZES = (1200, 300, 300, 1000)
ENERGY_SIZES = (320, 160, 144, 144)
# The paper's costs: the first action's advantage, the weight of the square, and a unit too many or too few.
ADVANTAGE, BETA, OVERAGE, UNDERAGE = 0.08, 0.08, 0.3, 0.7
# Penalty of the paper's ridge regression.
_PENALTY = 1e-3

# Linear and quadratic share their draws for a seed, newsvendor has its own, and no two data sets do.
_STREAMS = {"linear": 0, "quadratic": 0, "newsvendor": 1, "energy": 2}


@dataclass(frozen=True, eq=False)
class Task:
    """A decision problem with data that are already split.

    Attributes
    ----------
    name : str
        Short name, fit for a file name.
    problem : DecisionProblem
    X : ndarray of shape (n_samples, n_features)
    Y : ndarray of shape (n_samples, n_outcomes)
    split : Split
        Rows that train the predictor, learn the shape and calibrate the radius.
    test : ndarray of int
        Rows that serve for evaluation only.
    predictor : regressor
        Not fitted; on the paper's tasks the `FeatureRidge` of the paper.
    outcome_names : tuple of str
        What the outcomes are, for the axes of a picture.
    ratios : tuple of float, optional
        Where the cost separates into a newsvendor for each outcome, the share of demand that each should meet.
    in_time : bool
        Whether the parts follow one another in time.
    """

    name: str
    problem: DecisionProblem
    X: Array
    Y: Array
    split: Split
    test: IndexArray
    predictor: Any
    outcome_names: tuple[str, ...]
    ratios: tuple[float, ...] | None = None
    in_time: bool = False

    def rows(self, part: str) -> tuple[Array, Array]:
        """``(X, Y)`` of one part: "train", "learn", "calibrate" or "test"."""
        chosen = self.test if part == "test" else getattr(self.split, part)
        return self.X[chosen], self.Y[chosen]


def synthetic_task(
    seed: int, objective: str = "linear", *, n_outcomes: int = 2, sizes: Sequence[int] = SYNTHETIC_SIZES
) -> Task:
    """One of the paper's synthetic tasks with a fresh draw of all its data.

    Parameters
    ----------
    seed : int
        Seed of the draw; "linear" and "quadratic" have the same data for the same seed.
    objective : {"linear", "quadratic", "newsvendor"}, default="linear"
    n_outcomes : int, default=2
        Number of outcomes and of decisions. Only 2 is fully specified by the paper.
    sizes : sequence of 4 int, default=(1200, 300, 300, 1000)
        Rows of train, learn, calibrate and test.

    Returns
    -------
    Task

    Examples
    --------
    >>> task = synthetic_task(0, "newsvendor")
    >>> task.name, [len(task.rows(part)[1]) for part in ("train", "learn", "calibrate", "test")]
    ('newsvendor', [1200, 300, 300, 1000])
    """
    if objective not in _OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(_OBJECTIVES)}, got {objective!r}.")
    rng = _generator(objective, seed)
    X, Y = make_synthetic(sum(sizes), rng=rng, n_outcomes=n_outcomes)
    # The rows are independent draws, so cutting them in their order is a random split.
    split, test = _cut(np.arange(len(Y)), sizes)
    return Task(
        name=objective,
        problem=_OBJECTIVES[objective](n_outcomes),
        X=X,
        Y=Y,
        split=split,
        test=test,
        predictor=FeatureRidge(penalty=_PENALTY, features="paper" if n_outcomes == 2 else "all"),
        outcome_names=tuple(f"outcome {j + 1}" for j in range(n_outcomes)),
    )


def energy_task(seed: int) -> Task:
    """The Energy Efficiency task: a random partition of 768 buildings, cost affine in the two loads.

    All eight inputs and both outcomes are z-scored with the training rows' means and standard deviations.

    Parameters
    ----------
    seed : int
        Seed of the partition.

    Returns
    -------
    Task

    Examples
    --------
    >>> task = energy_task(0)
    >>> X, Y = task.rows("train")
    >>> X.shape, bool(np.allclose(Y.mean(axis=0), 0)), task.outcome_names[0]
    ((320, 8), True, 'heating load (z-score)')
    """
    data = load_energy_efficiency()
    order = _generator("energy", seed).permutation(len(data.Y))
    split, test = _cut(order, ENERGY_SIZES)
    return Task(
        name="energy",
        problem=_linear(2),
        X=_z_scores(data.X, split.train),
        Y=_z_scores(data.Y, split.train),
        split=split,
        test=test,
        predictor=FeatureRidge(penalty=_PENALTY),
        outcome_names=tuple(f"{name.replace('_', ' ')} (z-score)" for name in data.outcome_names),
    )


def make_task(name: str, seed: int) -> Task:
    """The task of this name, one of `TASKS`, as the paper specifies it.

    Examples
    --------
    >>> [make_task(name, 0).problem.name for name in TASKS]
    ['simplex linear', 'simplex quadratic', 'simplex newsvendor', 'simplex linear']
    """
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {name!r}.")
    return energy_task(seed) if name == "energy" else synthetic_task(seed, name)


# A problem never changes, so all seeds and methods share one: to compile it takes longer than many of them.
@cache
def _linear(n_outcomes: int) -> DecisionProblem:
    return simplex_linear(advantage(n_outcomes))


@cache
def _quadratic(n_outcomes: int) -> DecisionProblem:
    return simplex_quadratic(advantage(n_outcomes), beta=BETA)


@cache
def _newsvendor(n_outcomes: int) -> DecisionProblem:
    return simplex_newsvendor(overage=OVERAGE, underage=UNDERAGE, n_outcomes=n_outcomes)


_OBJECTIVES: dict[str, Callable[[int], DecisionProblem]] = {
    "linear": _linear,
    "quadratic": _quadratic,
    "newsvendor": _newsvendor,
}

TASKS = (*_OBJECTIVES, "energy")


def advantage(n_outcomes: int) -> Array:
    """The cost vector c: the first action has a slight advantage."""
    return np.concatenate([[-ADVANTAGE], np.zeros(n_outcomes - 1)])


def _generator(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([_STREAMS[name], check_count(seed, "seed", minimum=0)])


def _cut(order: IndexArray, sizes: Sequence[int]) -> tuple[Split, IndexArray]:
    if len(sizes) != 4 or sum(sizes) != len(order):
        raise ValueError(
            f"sizes must be four numbers (train, learn, calibrate, test) that sum to {len(order)}, got {sizes!r}."
        )
    train, learn, calibrate, test = np.split(order, np.cumsum(sizes)[:-1])
    return Split(train, learn, calibrate, n_rows=len(order)), test


def _z_scores(values: Array, train: IndexArray) -> Array:
    return (values - values[train].mean(axis=0)) / values[train].std(axis=0)
