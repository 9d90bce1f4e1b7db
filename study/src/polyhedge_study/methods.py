"""The methods of the study, one row each: adding a method is adding a row.

Every conformal rank is exact. Several public implementations round the rank in floating point or take it from
`numpy.quantile`, which is off by one for many sample sizes; the baselines here are corrected versions of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from sklearn.base import clone

from polyhedge.calibration import conformal_radius
from polyhedge.data import Split
from polyhedge.data.splits import IndexArray
from polyhedge.estimator import RobustDecider
from polyhedge.fitting import training_rows_to_learn_from
from polyhedge.learners import (
    CCG,
    Auto,
    Descent,
    Learner,
    LearnResult,
    OneSidedBox,
    PcaBox,
    Pinball,
    Samples,
    Scenario,
    Spread,
    learn_with_spread,
)
from polyhedge.predictors.regressor import as_predictor
from polyhedge.regions import LearnedSet
from polyhedge.rows import Rows
from polyhedge.sets import mean_volume
from polyhedge_study.baselines import (
    bonferroni_box,
    conformal_ellipsoid,
    conformal_l_2,
    conformal_l_inf,
    f_croms,
    nominal,
    oracle,
    pcp,
    picnn,
    sample_average,
)
from polyhedge_study.hull_volume import hull_volume_of_shape
from polyhedge_study.inside import Array
from polyhedge_study.learners.boxes import MinVolume, RotatedBoxGrid
from polyhedge_study.measure import Measured, measure_decisions, measure_set
from polyhedge_study.tasks import Task

__all__ = [
    "GROUPS",
    "METHODS",
    "OF_THE_PAPER",
    "POLYHEDGE",
    "QUICK",
    "Method",
    "find_methods",
    "learned",
    "learned_without_recalibration",
]

Run = Callable[[Task, float, int], Measured]

GROUPS = ("learner", "baseline", "ablation", "reference")
OF_THE_PAPER = ("grid", "pinball", "ccg", "scenario")
"""Keys of the learners that solve the paper's learning problem: its template as we read it, its algorithms, exactly."""
N_CONTEXTS = 10
"""Contexts of the learning split that CCG plans for: its master grows with them, and 30 gave the same costs."""
POLYHEDGE = "polyhedge"
"""Key of the library's set, guarantee="outcome" with its default learner: all others are compared with it."""


@dataclass(frozen=True)
class Method:
    """One method of the study.

    Attributes
    ----------
    key : short name for files and the command line.
    name : as it stands in the tables.
    group : one of `GROUPS`.
    run : task, alpha and seed -> what it achieves.
    guarantee : "exact" where the coverage, given the calibration rows, has the Beta law of `coverage_law`; "at least"
        where it is at least 1 - alpha in the mean, without an exact law; "none" where nothing is guaranteed.
    calibrated_on : the rows that set the radius: "calibrate", "pooled" (learn and calibrate), or "" without a set.
    paper : the paper's name of the row it is compared with; empty if there is none.
    extra : optional dependency of the study that it needs.
    is_long : whether it takes too long for a quick study; such rows answer questions of detail.
    """

    key: str
    name: str
    group: str
    run: Run
    guarantee: str = "exact"
    calibrated_on: str = "calibrate"
    paper: str = ""
    extra: str = ""
    is_long: bool = False


def learned(task: Task, alpha: float, seed: int, *, learner: Learner | None) -> Measured:
    """Learn with `RobustDecider` on the task's splits; None is the default learner."""
    decider = RobustDecider(
        task.problem, task.predictor, alpha=alpha, learner=learner, guarantee="outcome", random_state=seed
    )
    split = task.split
    began = time.perf_counter()
    decider.fit(task.X, task.Y, train=split.train, learn=split.learn, calibrate=split.calibrate)
    seconds = time.perf_counter() - began
    X, Y = task.rows("test")
    centers = decider.predictor_.predict(X)
    scales = decider.scales(X)
    inside = decider.set_.contains((Y - centers) / scales[:, None], decider.radius_)
    volume = mean_volume(decider.set_, decider.radius_, scales, rng=np.random.default_rng(0))
    within = hull_volume_of_shape(Y - centers, decider.set_, decider.radius_, scales)
    detail = decider.learn_result_.detail
    return measure_decisions(task, centers, decider.decide(X), inside, volume, alpha, seconds, detail, within)


def learned_without_recalibration(task: Task, alpha: float, seed: int, *, learner: Learner) -> Measured:
    """Learn the shape and set the radius on the same rows, learn and calibrate together: no guarantee."""
    predictor = clone(task.predictor).fit(*task.rows("train"))
    began = time.perf_counter()
    pooled, (X, _) = np.concatenate([task.split.learn, task.split.calibrate]), task.rows("test")
    centers, test_centers = (np.asarray(predictor.predict(rows)) for rows in (task.X[pooled], X))
    result, spread = _learned_from(task, pooled, centers, alpha, seed, learner)
    family = LearnedSet(task.problem, as_predictor("precomputed", task.problem.n_outcomes), result.set, spread)
    placed = family.around(centers, task.X[pooled])
    radius = conformal_radius(placed.scores(task.Y[pooled]), alpha)
    seconds = time.perf_counter() - began
    residuals, scales = placed.residuals(task.Y[pooled]), family.scales(X, test_centers)
    return measure_set(task, test_centers, result.set, radius, alpha, seconds, residuals, result.detail, scales)


def _learned_from(
    task: Task, rows: IndexArray, centers: Array, alpha: float, seed: int, learner: Learner
) -> tuple[LearnResult, Spread | None]:
    """Learn from these rows, and from the training rows where the learner does that, as `RobustDecider` would."""
    more, predicted = training_rows_to_learn_from(
        learner,
        lambda: as_predictor(task.predictor, task.problem.n_outcomes),
        Rows(task.X, task.Y),
        Split(task.split.train, rows, np.zeros(0, dtype=np.int64)),
    )
    rows, centers = np.concatenate([more, rows]), np.vstack([predicted, centers])
    objective = Samples(task.Y[rows] - centers, centers, task.problem, alpha)
    result, spread = learn_with_spread(learner, objective, task.X[rows], seed=seed)
    return result, spread


def _learner(key: str, name: str, learner: Learner, *, paper: str = "", is_long: bool = False) -> Method:
    """A decision-aware learner with recalibration."""
    return Method(key, name, "learner", partial(learned, learner=learner), paper=paper, is_long=is_long)


def _with_and_without(
    key: str, name: str, learner: Learner, *, paper: str = "", is_long: bool = False
) -> tuple[Method, Method]:
    """A decision-aware learner with recalibration and without."""
    return (
        _learner(key, name, learner, paper=paper, is_long=is_long),
        _without_recalibration(key, name, learner, paper=paper, is_long=key != "grid"),
    )


def _without_recalibration(key: str, name: str, learner: Learner, *, paper: str = "", is_long: bool = True) -> Method:
    """The same learner, whose radius the rows set that it has learned from."""
    return Method(
        f"{key}-no-recal",
        f"{name} (w/o recal)",
        "ablation",
        partial(learned_without_recalibration, learner=learner),
        guarantee="none",
        calibrated_on="pooled",
        paper=f"{paper} (w/o recal)" if paper else "",
        is_long=is_long,
    )


def _pooled(key: str, name: str, run: Run, *, guarantee: str = "exact", paper: str = "") -> Method:
    """A baseline that learns no shape from the learning rows, so that these help to calibrate."""
    return Method(key, name, "baseline", run, guarantee=guarantee, calibrated_on="pooled", paper=paper)


def _f_croms(n_candidates: int) -> Method:
    name = f"F-CROMS ({n_candidates})"
    run = partial(f_croms, n_candidates=n_candidates)
    # Selection and radius see the same rows.
    return Method(f"f-croms-{n_candidates}", name, "baseline", run, guarantee="none", paper=name)


def _picnn(key: str, name: str, run: Run, *, paper: str = "", is_long: bool = True) -> Method:
    # Where the radius lies below the least score of a context it is raised, which can only add coverage.
    return Method(key, name, "baseline", run, guarantee="at least", paper=paper, extra="picnn", is_long=is_long)


def _reference(key: str, name: str, run: Run) -> Method:
    return Method(key, name, "reference", run, guarantee="none", calibrated_on="")


_ROWS = (
    _learner(POLYHEDGE, "Polyhedge, set", Auto(), paper="Ours"),
    replace(_learner("one-sided-box", "One-sided box", OneSidedBox()), calibrated_on="pooled"),
    *_with_and_without("grid", "Rotated-box grid (our reading of the paper)", RotatedBoxGrid(), paper="Ours"),
    *_with_and_without("pinball", "Pinball (the paper's Algorithm 2)", Pinball()),
    _learner("ccg", f"CCG (Algorithm 1, valid master, {N_CONTEXTS} contexts)", CCG(contexts=N_CONTEXTS)),
    *_with_and_without("scenario", "Scenario (the paper's problem, exact)", Scenario()),
    *_with_and_without("descent", "Descent", Descent()),
    _without_recalibration(POLYHEDGE, "Polyhedge, set", Auto(), paper="Ours"),
    _pooled("bonferroni", "Bonferroni box", bonferroni_box, guarantee="at least", paper="Bonferroni box"),
    _pooled("l-inf", "Conformal (l_inf)", conformal_l_inf, paper="Conformal (l_inf)"),
    _pooled("l-2", "Conformal (l_2)", conformal_l_2, paper="Conformal (l_2)"),
    Method("ellipsoid", "Conformal ellipsoid", "baseline", conformal_ellipsoid),
    _pooled("pcp", "PCP (high density)", pcp, paper="PCP"),
    _pooled("pcp-plain", "PCP (plain)", partial(pcp, variant="plain")),
    _pooled("pcp-redraw", "PCP (redraw)", partial(pcp, variant="redraw")),
    _f_croms(10),
    _f_croms(20),
    Method(
        "f-croms-exact",
        "F-CROMS (20, full conformal)",
        "baseline",
        partial(f_croms, n_candidates=20, exact=True),
        guarantee="at least",
    ),
    _picnn("picnn", "Yeh et al. (PICNN)", picnn, paper="Yeh et al."),
    _picnn("picnn-steps", "PICNN, 200 minibatch steps", partial(picnn, full_passes=False), is_long=False),
    _picnn(
        "picnn-realised",
        "PICNN, realised loss, 200 minibatch steps",
        partial(picnn, loss="realised", full_passes=False),
    ),
    Method("polyhedron", "Polyhedron", "ablation", partial(learned, learner=PcaBox()), paper="Polyhedron"),
    Method(
        "min-size",
        "Polyhedron (min size)",
        "ablation",
        partial(learned, learner=MinVolume()),
        paper="Polyhedron (min size)",
    ),
    _reference("nominal", "Nominal decision", nominal),
    _reference("sample-average", "Sample-average decision", sample_average),
    _reference("oracle", "Oracle (outcome known)", oracle),
)

METHODS = {row.key: row for row in _ROWS}
"""All methods by key, in the order of the tables."""
QUICK = tuple(key for key, row in METHODS.items() if not row.is_long)
"""Keys of the rows that a quick study runs."""


def find_methods(keys: tuple[str, ...] = ()) -> tuple[Method, ...]:
    """The methods of these keys in the order of the registry; all if none are named.

    Examples
    --------
    >>> [method.name for method in find_methods(("polyhedge", "one-sided-box"))]
    ['Polyhedge, set', 'One-sided box']
    """
    unknown = [key for key in keys if key not in METHODS]
    if unknown:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {', '.join(map(repr, unknown))}.")
    return tuple(method for key, method in METHODS.items() if not keys or key in keys)
