"""How exact and approximate learners scale with the learning split: the paper's Table 1, and more.

Two modes. *single*: one context, the mean prediction of the learning split, which is how we read the paper's table.
*shared*: one set for all learning contexts, which is what the method uses in the end. For each seed the predictor,
the calibration and the test split stay the same for all n, and smaller learning splits are parts of larger ones.

Every set is recalibrated on the calibration split before it is evaluated; the test split only evaluates.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from polyhedge._files import replace_file
from polyhedge._validation import Array, check_count
from polyhedge.benchmark.tasks import synthetic_task
from polyhedge.calibration import conformal_radius
from polyhedge.learners import CCG, MIQCP, Descent, Learner, LearningObjective, LearnResult, Pinball, Scenario
from polyhedge.problems import DecisionProblem
from polyhedge.problems.segment import as_segment
from polyhedge.robust import decide, decide_knowing
from polyhedge.solvers.bilinear import available_backend

__all__ = [
    "METHODS",
    "PaperRow",
    "Progress",
    "ScalingRow",
    "ScalingRun",
    "ScalingSettings",
    "environment",
    "paper_table1",
    "run_scaling",
]

logger = logging.getLogger(__name__)

MODES = ("single", "shared")
_LEARN_ROWS = 600
_ROUNDING = 1e-7
"""Absolute gap at which the solvers stop: a relative one means nothing where costs are close to 0."""
_PACKAGES = ("polyhedge", "numpy", "scipy", "scikit-learn", "cvxpy", "highspy", "clarabel", "pyscipopt", "gurobipy")


@dataclass(frozen=True)
class ScalingSettings:
    """What is run, and how long it may take.

    Attributes
    ----------
    task : "linear", "quadratic" or "newsvendor", on the synthetic data.
    sizes : learning samples n, in the order in which they are run.
    seeds : seeds 0, 1, ... of the data; all sizes and methods of a seed are done before the next one starts.
    alpha : miscoverage level.
    tolerance : relative gap at which a run counts as certified.
    n_train, n_calibrate, n_test : rows of the other splits.
    exact_limit : seconds for Scenario, CCG and MIQCP with aggregated rows on one context.
    printed_limit : seconds for MIQCP as printed, which hardly ever ends by itself.
    shared_limit : seconds for MIQCP on `shared_contexts` contexts.
    heuristic_limit : seconds for Pinball and Descent.
    shared_contexts : contexts that MIQCP plans for in the shared mode.
    budget : seconds for the whole run; what does not fit is left out and can be added by running again.
    """

    task: str = "linear"
    sizes: tuple[int, ...] = (20, 40, 80, 160, 300, 600)
    seeds: int = 5
    alpha: float = 0.1
    tolerance: float = 1e-4
    n_train: int = 1200
    n_calibrate: int = 300
    n_test: int = 1000
    exact_limit: float = 60.0
    printed_limit: float = 3.0
    shared_limit: float = 3.0
    heuristic_limit: float = 5.0
    shared_contexts: int = 4
    budget: float = 840.0

    def __post_init__(self) -> None:
        if self.task not in ("linear", "quadratic", "newsvendor"):
            raise ValueError(f"task must be linear, quadratic or newsvendor, got {self.task!r}.")
        check_count(self.seeds, "seeds", minimum=1)

    @classmethod
    def quick(cls, task: str = "linear", seeds: int = 2) -> ScalingSettings:
        """Few sizes, at most two seeds and short limits: under two minutes."""
        return cls(
            task,
            sizes=(20, 80, 300),
            seeds=min(seeds, 2),
            exact_limit=15.0,
            printed_limit=1.5,
            shared_limit=2.0,
            heuristic_limit=3.0,
            budget=100.0,
        )


@dataclass(frozen=True)
class Method:
    """One learner of the comparison.

    Attributes
    ----------
    name : as it stands in the results.
    make : settings, time limit and n -> learner.
    limit : which of the settings' limits applies in each mode; a mode without one is left out ...
    reason : ... for this reason.
    backend : solver that must be installed.
    """

    name: str
    make: Callable[[ScalingSettings, float, int], Learner]
    limit: dict[str, str]
    reason: str = ""
    backend: str = ""

    def missing(self) -> str:
        """Why the method cannot run here; empty if it can."""
        try:
            if self.backend:
                available_backend(self.backend)
        except ImportError as error:
            return str(error)
        return ""


def _miqcp(backend: str, *, aggregated_rows: bool) -> Callable[[ScalingSettings, float, int], Learner]:
    def make(settings: ScalingSettings, limit: float, n: int) -> Learner:
        return MIQCP(
            aggregated_rows=aggregated_rows, backend=backend, time_limit=limit, relative_gap=settings.tolerance / 2
        )

    return make


METHODS = (
    Method(
        "Scenario",
        lambda settings, limit, n: Scenario(time_limit=limit),
        {"single": "exact_limit", "shared": "exact_limit"},
    ),
    Method(
        "CCG",
        lambda settings, limit, n: CCG(tolerance=1e-6, time_limit=limit),
        {"single": "exact_limit"},
        reason="its master has a decision and cuts for every context",
    ),
    Method(
        "Descent",
        lambda settings, limit, n: Descent(max_contexts=n, time_limit=limit),
        {"single": "heuristic_limit", "shared": "heuristic_limit"},
    ),
    Method(
        "Pinball",
        lambda settings, limit, n: Pinball(max_contexts=n, time_limit=limit),
        {"single": "heuristic_limit", "shared": "heuristic_limit"},
    ),
    Method(
        "MIQCP aggregated (SCIP)",
        _miqcp("scip", aggregated_rows=True),
        {"single": "exact_limit", "shared": "shared_limit"},
        backend="scip",
    ),
    Method(
        "MIQCP as printed (SCIP)",
        _miqcp("scip", aggregated_rows=False),
        {"single": "printed_limit"},
        reason="it does not certify even one context",
        backend="scip",
    ),
    Method(
        "MIQCP as printed (Gurobi)",
        _miqcp("gurobi", aggregated_rows=False),
        {"single": "printed_limit"},
        reason="it does not certify even one context",
        backend="gurobi",
    ),
)


@dataclass(frozen=True)
class ScalingRow:
    """One method on one learning split.

    Attributes
    ----------
    mode, n, method, seed : which run.
    status : how the learner ended; FAILED where it raised an error, which is in `detail`.
    seconds, limit : wall-clock time of `learn`, and its time limit.
    n_contexts, planned_contexts : contexts of the objective, and those that the learner planned for.
    objective : mean worst-case cost over all contexts of the mode at the learning radius.
    lower_bound : the learner's own bound for these contexts (-inf where it proves none).
    gap : objective - lower_bound.
    certified : whether the gap is at most the tolerance times the objective's size (or 1e-7).
    nominal : mean cost over these contexts if the predictions were true; objective - nominal is the premium.
    recalibrated : mean worst-case cost over the same contexts at the calibrated radius.
    test_cost, test_premium, test_coverage : mean worst-case cost, the same less the nominal cost, and the share of
        outcomes inside their sets, on the test split.
    detail : what the learner says about its result.
    """

    mode: str
    n: int
    method: str
    seed: int
    status: str
    seconds: float
    limit: float
    n_contexts: int
    planned_contexts: int
    objective: float
    lower_bound: float
    gap: float
    certified: bool
    nominal: float
    recalibrated: float
    test_cost: float
    test_premium: float
    test_coverage: float
    detail: str

    @property
    def key(self) -> tuple[str, int, str, int]:
        """(mode, n, method, seed)."""
        return self.mode, self.n, self.method, self.seed


@dataclass(frozen=True)
class Progress:
    """How far a run is: finished and all runs, what comes next, and about how many seconds are left."""

    done: int
    total: int
    next: str
    seconds_left: float


@dataclass(frozen=True)
class ScalingRun:
    """All rows of a run with what made them.

    Attributes
    ----------
    settings, machine : what was run, and where.
    rows : in the order in which they were run.
    left_out : why methods or runs are missing, in words.
    n_known : rows that an earlier, unfinished run had left.
    """

    settings: ScalingSettings
    machine: dict[str, Any]
    rows: tuple[ScalingRow, ...]
    left_out: tuple[str, ...]
    n_known: int = 0


def run_scaling(
    settings: ScalingSettings,
    *,
    folder: Path | None = None,
    stem: str = "scaling",
    methods: Iterable[Method] = METHODS,
    report: Callable[[Progress], None] | None = None,
) -> ScalingRun:
    """Run every method on every size and seed.

    Parameters
    ----------
    settings : ScalingSettings
    folder, stem : Path and str, optional
        Where `<stem>.csv` (one row a run, whole after each) and `<stem>.json` (settings, machine) are kept. Rows
        there that were made with the same settings on the same machine are not run again.
    methods : the methods to run.
    report : called before each run and at the end.

    Returns
    -------
    ScalingRun
    """
    machine, began = environment(), time.perf_counter()
    methods = tuple(methods)
    usable = [method for method in methods if not method.missing()]
    todo = [
        _Run(mode, n, method, seed)
        for seed in range(settings.seeds)
        for n in settings.sizes
        for mode in MODES
        for method in usable
        if mode in method.limit
    ]
    store = None if folder is None else _Store(folder, stem, settings, machine)
    rows = {} if store is None else {row.key: row for row in store.known()}
    n_known, n_late = len(rows), 0
    data: _Data | None = None
    for position, run in enumerate(todo):
        if run.key in rows:
            continue
        left = settings.budget - (time.perf_counter() - began)
        if report is not None:
            report(Progress(len(rows), len(todo), run.label, min(_forecast(todo[position:], rows, settings), left)))
        if left < 1.0:
            n_late += 1
            continue
        if data is None or data.seed != run.seed:
            data = _draw(settings, run.seed)
        rows[run.key] = _evaluate(run, data, settings, min(run.limit(settings), left))
        if store is not None:
            store.write(rows.values())
    if report is not None:
        report(Progress(len(rows), len(todo), "", 0.0))
    return ScalingRun(settings, machine, tuple(rows.values()), _left_out(methods, settings, n_late), n_known)


def _left_out(methods: Iterable[Method], settings: ScalingSettings, n_late: int) -> tuple[str, ...]:
    notes = []
    for method in methods:
        missing = method.missing()
        if missing:
            notes.append(f"{method.name}: not run. {missing}")
            continue
        notes += [f"{method.name}, {mode}: not run, {method.reason}." for mode in MODES if mode not in method.limit]
    if n_late:
        notes.append(f"{n_late} runs did not fit into {settings.budget:.0f} s. Run again to add them.")
    return tuple(notes)


@dataclass(frozen=True)
class _Run:
    mode: str
    n: int
    method: Method
    seed: int

    @property
    def key(self) -> tuple[str, int, str, int]:
        return self.mode, self.n, self.method.name, self.seed

    @property
    def label(self) -> str:
        return f"seed {self.seed}, n = {self.n}, {self.mode}: {self.method.name}"

    def limit(self, settings: ScalingSettings) -> float:
        return float(getattr(settings, self.method.limit[self.mode]))


def _forecast(
    todo: Iterable[_Run], rows: dict[tuple[str, int, str, int], ScalingRow], settings: ScalingSettings
) -> float:
    """Seconds for the runs ahead: as long as the same run took with other seeds, else a tenth of the limit."""
    known: dict[tuple[str, int, str], list[float]] = {}
    for row in rows.values():
        known.setdefault((row.mode, row.n, row.method), []).append(row.seconds)
    return sum(
        float(np.mean(known.get(run.key[:3], [run.limit(settings) / 10]))) for run in todo if run.key not in rows
    )


@dataclass(frozen=True, eq=False)
class _Data:
    """Residuals and predictions of one seed (residuals only: calibrate), and the test split's mean nominal cost."""

    seed: int
    problem: DecisionProblem
    learn: tuple[Array, Array]
    calibrate: Array
    test: tuple[Array, Array]
    test_nominal: float


def _draw(settings: ScalingSettings, seed: int) -> _Data:
    # The draws depend on the total number of rows, so it is the same for all sizes.
    n_learn = max(_LEARN_ROWS, *settings.sizes)
    sizes = (settings.n_train, n_learn, settings.n_calibrate, settings.n_test)
    task = synthetic_task(seed, settings.task, sizes=sizes)
    predictor = clone(task.predictor).fit(*task.rows("train"))
    _ = task.problem.pieces, task.problem.feasible  # compiled now, not on the first method's time

    def split(part: str) -> tuple[Array, Array]:
        X, Y = task.rows(part)
        centers = np.asarray(predictor.predict(X))
        return Y - centers, centers

    test = split("test")
    nominal = float(decide_knowing(task.problem, test[1])[1].mean())
    return _Data(seed, task.problem, split("learn"), split("calibrate")[0], test, nominal)


def _evaluate(run: _Run, data: _Data, settings: ScalingSettings, limit: float) -> ScalingRow:
    residuals, centers = data.learn[0][: run.n], data.learn[1][: run.n]
    centers = centers.mean(axis=0)[None] if run.mode == "single" else centers
    learner, planned = run.method.make(settings, limit, run.n), len(centers)
    if isinstance(learner, MIQCP) and run.mode == "shared":
        planned = min(settings.shared_contexts, run.n)
        learner = replace(learner, contexts=planned)
    objective = LearningObjective(data.problem, residuals, centers, settings.alpha)
    as_segment.cache_clear()  # what an earlier run found out would make this one look faster than it is
    began = time.perf_counter()
    try:
        result = learner.learn(residuals, centers, data.problem, settings.alpha, random_state=run.seed)
    except (ValueError, RuntimeError) as error:
        logger.warning("%s failed: %s", run.label, error)
        return _failed(run, limit, len(centers), planned, time.perf_counter() - began, error)
    seconds = time.perf_counter() - began
    value, fresh = objective.value(result.set), _on_fresh_data(result, data, objective)
    lower = result.lower_bound if planned == len(centers) else -np.inf
    return ScalingRow(
        *run.key,
        status=result.status.name,
        seconds=seconds,
        limit=limit,
        n_contexts=len(centers),
        planned_contexts=planned,
        objective=value,
        lower_bound=lower,
        gap=value - lower,
        certified=bool(value - lower <= settings.tolerance * abs(value) + _ROUNDING),
        nominal=objective.nominal_cost,
        recalibrated=fresh.recalibrated,
        test_cost=fresh.test_cost,
        test_premium=fresh.test_premium,
        test_coverage=fresh.test_coverage,
        detail=result.detail,
    )


def _failed(run: _Run, limit: float, n_contexts: int, planned: int, seconds: float, error: Exception) -> ScalingRow:
    return ScalingRow(
        *run.key,
        status="FAILED",
        seconds=seconds,
        limit=limit,
        n_contexts=n_contexts,
        planned_contexts=planned,
        objective=np.nan,
        lower_bound=-np.inf,
        gap=np.inf,
        certified=False,
        nominal=np.nan,
        recalibrated=np.nan,
        test_cost=np.nan,
        test_premium=np.nan,
        test_coverage=np.nan,
        detail=f"{type(error).__name__}: {error}",
    )


@dataclass(frozen=True)
class _Fresh:
    recalibrated: float
    test_cost: float
    test_premium: float
    test_coverage: float


def _on_fresh_data(result: LearnResult, data: _Data, objective: LearningObjective) -> _Fresh:
    """Calibrate on the calibration split, then cost and coverage; nothing flows back to the learner."""
    radius = conformal_radius(result.set.scores(data.calibrate), objective.alpha)
    residuals, centers = data.test
    cost = float(decide(data.problem, result.set, radius, centers).cost_bound.mean())
    return _Fresh(
        recalibrated=objective.cost_at(result.set, radius),
        test_cost=cost,
        test_premium=cost - data.test_nominal,
        test_coverage=float(np.mean(result.set.contains(residuals, radius))),
    )


class _Store:
    """`<stem>.csv` and `<stem>.json` in a folder; each appears whole or not at all."""

    def __init__(self, folder: Path, stem: str, settings: ScalingSettings, machine: dict[str, Any]) -> None:
        self.table, self.about = folder / f"{stem}.csv", folder / f"{stem}.json"
        self.record = {"settings": asdict(settings), "seeds": list(range(settings.seeds)), "machine": machine}

    def known(self) -> list[ScalingRow]:
        """Rows of an earlier run with the same settings on the same machine; else a fresh start."""
        same = json.loads(json.dumps(self.record))
        try:
            if json.loads(self.about.read_text(encoding="utf-8")) == same:
                return read_rows(self.table)
        except (OSError, ValueError, KeyError) as error:
            logger.debug("No earlier rows: %s", error)
        replace_file(self.about, (json.dumps(self.record, indent=2) + "\n").encode())
        self.write([])
        return []

    def write(self, rows: Iterable[ScalingRow]) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [field.name for field in fields(ScalingRow)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
        replace_file(self.table, text.getvalue().encode())


def read_rows(path: Path) -> list[ScalingRow]:
    """Rows of a saved table."""
    readers: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": lambda text: text == "True"}
    types = {field.name: readers.get(str(field.type), str) for field in fields(ScalingRow)}
    with path.open(encoding="utf-8", newline="") as stream:
        return [ScalingRow(**{name: types[name](text) for name, text in row.items()}) for row in csv.DictReader(stream)]


def environment() -> dict[str, Any]:
    """The machine and the versions of the packages that matter.

    Examples
    --------
    >>> sorted(environment())
    ['cores', 'packages', 'platform', 'processor', 'python']
    """
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class PaperRow:
    """A printed row of the paper's Table 1.

    Attributes
    ----------
    n : learning samples.
    certified, runs : runs with a certificate within 1e-4, of so many.
    miqcp_seconds, pinball_seconds, time_ratio : mean times, and the first over the second.
    gap_percent : how much more the pinball solution costs than the MIQCP solution.
    """

    n: int
    certified: int
    runs: int
    miqcp_seconds: float
    pinball_seconds: float
    time_ratio: float
    gap_percent: float


def paper_table1() -> tuple[PaperRow, ...]:
    """The printed figures of the paper's Table 1.

    Examples
    --------
    >>> rows = paper_table1()
    >>> sum(row.certified for row in rows), sum(row.runs for row in rows)
    (26, 30)
    """
    text = resources.files("polyhedge.benchmark").joinpath("paper_table1.csv").read_text(encoding="utf-8")
    return tuple(
        PaperRow(
            n=int(row["n"]),
            certified=int(row["certified"]),
            runs=int(row["runs"]),
            miqcp_seconds=float(row["miqcp_seconds"]),
            pinball_seconds=float(row["pinball_seconds"]),
            time_ratio=float(row["time_ratio"]),
            gap_percent=float(row["gap_percent"]),
        )
        for row in csv.DictReader(io.StringIO(text))
    )
