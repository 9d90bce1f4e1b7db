r"""A predicted spread of residuals that scales a set, and its selection by cross-fitting on the learning rows.

$$\{u : W (u - \hat f(x)) / s(x) + b \le r\}$$

One shape serves all contexts, scaled by s(x). The conformal radius is set on residuals divided by their spread, so that
the guarantee is the same for any s that was learned without the calibration rows. The levels of s are few ($2^{k/4}$),
because each of them is a set, and decisions for many contexts are fast for one set.

The shape stays as it was learned. Candidates are forests with two sizes of leaves and two powers of their predictions.
Each is fitted without a fold and predicts it; the mean cost at the radius of the scaled scores is its score. A spread
saves little compared with the noise of few rows: it is scored on many more rows than a shape is learned from.

Selection among candidates by a cross-validated score and a complexity penalty.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
from sklearn.model_selection import GroupKFold, KFold

from polyhedge._support.stored import stored
from polyhedge._support.tolerances import SELECTION_TIE
from polyhedge._support.validation import Array, Indices
from polyhedge.calibration import conformal_radius, minimum_samples
from polyhedge.data import take_rows
from polyhedge.data.splits import evenly_chosen
from polyhedge.learners.samples import Learner, LearnResult, Samples, standard_deviations
from polyhedge.predictors.trees import Forest
from polyhedge.robust import decide_knowing
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status

logger = logging.getLogger(__name__)
Candidate = TypeVar("Candidate")
Model = TypeVar("Model")


@dataclass(frozen=True)
class Selection:
    """What was chosen, and the scores behind the choice.

    Attributes
    ----------
    chosen : name of the candidate with the least penalised score.
    scores : cross-validated scores by name, without penalties.
    penalties : complexity penalties by name.
    failed : names of candidates that could not be fitted.
    """

    chosen: str
    scores: Mapping[str, float]
    penalties: Mapping[str, float]
    failed: tuple[str, ...]


def cross_validated(
    candidates: Mapping[str, Candidate],
    fit: Callable[[Candidate, int], Model],
    score: Callable[[Sequence[Model]], float],
    folds: Sequence[Indices],
    penalty: Callable[[str, float], float] = lambda name, simplest: 0.0,
) -> Selection:
    """Fit every candidate without each fold, score its models on the folds, and choose the least penalised score.

    Parameters
    ----------
    candidates : the simplest first; of those that tie, the first is chosen.
    fit : (candidate, k) -> model fitted without fold k. A ValueError excludes a candidate where the simplest has a
        finite score.
    score : models, one for each fold -> score of the candidate on all folds together; lower is better.
    folds : rows that are left out in turn.
    penalty : (name, score of the simplest candidate) -> what its complexity adds to a candidate's score.
    """
    simplest, *_ = candidates
    scores: dict[str, float] = {}
    failed = []
    for name, candidate in candidates.items():
        try:
            models = [fit(candidate, k) for k in range(len(folds))]
        except ValueError as error:
            if not np.isfinite(scores.get(simplest, np.inf)):
                raise
            logger.info("%s cannot be fitted here: %s", name, error)
            failed.append(name)
            continue
        scores[name] = score(models)
        logger.info("%s: cross-validated score %g", name, scores[name])
    penalties = {name: penalty(name, scores[simplest]) for name in scores}
    best = min(scores, key=lambda name: scores[name] + penalties[name])
    return Selection(best, scores, penalties, tuple(failed))


_ONE_SIZE = "one size"
_CANDIDATES = {f"leaves of {leaf}, power {power}": (leaf, power) for leaf in (5, 20) for power in (0.5, 1.0)}
"""Leaves that follow the data and leaves that smooth; the square root of a spread, and all of it."""
_N_FOLDS, _MIN_SAMPLES = 3, 100
"""Folds that score a spread, and samples below which none is tried: a fold must fill several leaves."""
_PENALTIES = 2.0
"""Times the complexity penalty of a shape: the best of several is taken, and every decision takes longer."""
_SCORED_ROWS, _TREE_ROWS = 8, 0.5
"""Rows that score a spread, and rows that a tree draws then, for each row that the shape is learned from."""


@stored("spread")
@dataclass(frozen=True, eq=False)
class Spread(Forest):
    """A small forest that predicts the size of residuals, relative to their mean size.

    Attributes
    ----------
    n_trees, feature, threshold, child, value, missing_left, names, columns, fill : as in `Forest`.
    power : exponent of the forest's prediction; below 1, contexts differ less.
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value.shape[1] != 1 or not (self.value > 0).all() or not 0 < self.power <= 1:
            raise ValueError("A spread must have one positive value for each node and a power in (0, 1].")

    @classmethod
    def fit(  # type: ignore[override]
        cls, X: Any, centers: Array, sizes: Array, *, min_leaf: int, seed: int, rows_a_tree: int | None = None
    ) -> Spread:
        """Learn from rows X, predictions (n, d) and sizes of their residuals (n,); learning rows only.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(400, 1))
        >>> sizes = np.where(X[:, 0] > 0.5, 3.0, 1.0)
        >>> Spread.fit(X, np.zeros((400, 1)), sizes, min_leaf=20, seed=0)([[0.1], [0.9]], np.zeros((2, 1)))
        array([0.5       , 1.41421356])
        """
        settings: dict[str, Any] = {"n_trees": 32, "max_depth": 16, "max_features": 32}
        relative = (sizes / (sizes.mean() or 1.0))[:, None]
        forest, _ = Forest.fit(X, centers, relative, min_leaf=min_leaf, seed=seed, rows_a_tree=rows_a_tree, **settings)
        # Residuals of 0 must not give a set without extent.
        nodes = {each.name: getattr(forest, each.name) for each in fields(forest)}
        return cls(**{**nodes, "value": np.maximum(forest.value, 1e-3)})

    def __call__(self, X: Any, centers: Array) -> Array:
        """Levels (N,) at rows X with their predictions (N, d)."""
        return levels(self.sizes(X, centers), self.power)

    def sizes(self, X: Any, centers: Array) -> Array:
        """The forest's predictions (N,), without power and levels."""
        return super().__call__(X, centers)[:, 0]

    def summary(self) -> dict[str, Any]:
        """The columns of X and the power, without the trees."""
        return {"names": list(self.names), "n_columns": len(self.columns), "power": self.power}


def levels(sizes: Array, power: float) -> Array:
    """The level (N,) of each size, to the power: four a doubling, within a factor of 8 of the mean size."""
    octaves = np.clip(power * np.log2(sizes), -3.0, 3.0)
    return np.asarray(2.0 ** (np.round(octaves * 4) / 4))


def learn_with_spread(
    learner: Learner, samples: Samples, X: Any, *, seed: int, groups: Any = None
) -> tuple[LearnResult, Spread | None]:
    """Learn a shape, and the spread that scales it if the learner's needs allow one and it lowers the cost.

    Parameters
    ----------
    learner : gives the shape; `complexity_penalty` of its needs holds for the spread too.
    samples : learning rows only.
    X : features of these samples, row by row.
    seed : of the learner, of folds and of forests.
    groups : labels of rows that are near-copies of each other.
    """
    needs, n = learner.needs, samples.n
    most = n if needs.samples_an_outcome is None else needs.samples_an_outcome * samples.problem.n_outcomes
    some = samples.take(evenly_chosen(n, most)) if most < n else samples
    result = learner.learn(some, random_state=seed)
    if most < n:
        result = replace(result, detail=f"{result.detail}; from {some.n} of {n} rows, evenly chosen")
    if not needs.may_scale:
        return result, None
    if _SCORED_ROWS * most < n:
        rows = evenly_chosen(n, _SCORED_ROWS * most)
        samples, X = samples.take(rows), take_rows(X, rows)
        groups = None if groups is None else np.asarray(groups)[rows]
    chosen, spread = choose_spread(
        result,
        samples,
        X,
        complexity_penalty=needs.complexity_penalty,
        seed=seed,
        groups=groups,
        rows_a_tree=max(int(_TREE_ROWS * some.n), 1) if most < n else None,
    )
    if spread is not None and most < n:
        chosen = replace(chosen, lower_bound=-np.inf)  # the bound and the objective are of different rows
    return chosen, spread


def choose_spread(
    result: LearnResult,
    samples: Samples,
    X: Any,
    *,
    complexity_penalty: float,
    seed: int,
    groups: Any = None,
    rows_a_tree: int | None = None,
) -> tuple[LearnResult, Spread | None]:
    """The result scaled by the spread that lowers its cost, and that spread; else the result unscaled, and None.

    Parameters
    ----------
    result : the learned shape.
    samples : learning rows only: those that the shape was learned from, or more.
    X : features of these samples, row by row.
    complexity_penalty : twice this share of the premium, over the square root of the number of samples, must be saved.
    seed : of folds and forests.
    groups : labels of rows that are near-copies of each other; they stay in one fold.
    rows_a_tree : rows that each tree of a forest draws, where there are more; None for as many as there are.
    """
    facets, n = result.set.facets(), samples.n
    n_groups = n if groups is None else len(np.unique(groups))
    is_stopped = result.status is Status.STOPPED_EARLY or not samples.problem.structure.has_pieces
    if facets is None or is_stopped or n < max(_MIN_SAMPLES, minimum_samples(samples.alpha)) or n_groups < _N_FOLDS:
        return result, None
    shape, relaxed = facets, replace(samples, problem=samples.problem.relaxed())
    residuals, centers, contexts = samples.residuals, samples.centers, relaxed.scored_contexts(relaxed.max_contexts)
    sizes = (np.abs(residuals) / standard_deviations(residuals)).mean(axis=1)
    splitter = KFold(_N_FOLDS, shuffle=True, random_state=seed) if groups is None else GroupKFold(_N_FOLDS)
    splits = list(splitter.split(residuals, groups=groups))

    def spread_of(rows: Indices, min_leaf: int) -> Spread:
        settings: dict[str, Any] = {"min_leaf": min_leaf, "seed": seed, "rows_a_tree": rows_a_tree}
        return Spread.fit(take_rows(X, rows), centers[rows], sizes[rows], **settings)

    @cache
    def left_out_sizes(k: int, min_leaf: int) -> Array:
        rest, rows = splits[k]
        return spread_of(rest, min_leaf).sizes(take_rows(X, rows), centers[rows])

    def left_out_levels(candidate: tuple[int, float] | None, k: int) -> Array:
        if candidate is None:
            return np.ones(len(splits[k][1]))
        return levels(left_out_sizes(k, candidate[0]), candidate[1])

    def radius(scales: Array) -> float:
        return conformal_radius(shape.scores(residuals / scales[:, None]), samples.alpha)

    def cost(scales: Array, rows: Indices = contexts) -> float:
        """Mean worst-case cost at the radius that these scales would get."""
        at, total = radius(scales), 0.0
        for scale in np.unique(scales[rows]):
            own = rows[scales[rows] == scale]
            total += len(own) * relaxed.cost_at(shape.scaled(float(scale)), at, own)
        return total / len(rows)

    def score(fold_levels: Any) -> float:
        scales = np.empty(n)
        for (_, rows), each in zip(splits, fold_levels, strict=True):
            scales[rows] = each
        return cost(scales)

    nominal = float(np.nanmean(decide_knowing(relaxed.problem, centers[contexts])[1]))

    def penalty(name: str, simplest: float) -> float:
        premium = max(simplest - nominal, 0.0) if name != _ONE_SIZE and np.isfinite(simplest) else 0.0
        return (_PENALTIES * complexity_penalty / np.sqrt(n) + SELECTION_TIE) * premium

    selection = cross_validated(
        {_ONE_SIZE: None, **_CANDIDATES}, left_out_levels, score, [rows for _, rows in splits], penalty
    )
    if selection.chosen == _ONE_SIZE:
        return result, None
    min_leaf, power = _CANDIDATES[selection.chosen]
    spread = replace(spread_of(np.arange(n), min_leaf), power=power)
    scales = spread(X, centers)
    scaled = replace(
        result,
        set=Polyhedron(shape.W, shape.b - radius(scales)),
        # A certificate is for all contexts.
        objective=cost(scales, np.arange(n) if np.isfinite(result.lower_bound) else contexts),
        detail=f"{result.detail}; scaled by a predicted spread: cross-validated extra cost "
        f"{selection.scores[selection.chosen] - nominal:.4g}, at one size {selection.scores[_ONE_SIZE] - nominal:.4g}",
    )
    return scaled, spread
