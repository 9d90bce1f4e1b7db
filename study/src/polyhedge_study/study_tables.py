"""The study's tables for readers: paper | here | difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from polyhedge_study.grid import Grid
from polyhedge_study.inside import replace_file
from polyhedge_study.methods import METHODS, POLYHEDGE
from polyhedge_study.paper import METRICS
from polyhedge_study.study import StudyRow
from polyhedge_study.summary import COLUMNS, TableRow, TimeRow, table_rows, time_rows
from polyhedge_study.tasks import TASKS
from polyhedge_study.tidy import TidyTable

__all__ = [
    "LEGEND",
    "SIGNIFICANT",
    "TITLES",
    "against_print",
    "by_method",
    "short_grid",
    "task_grid",
    "tasks_of",
    "time_grid",
    "write_tables",
]

SIGNIFICANT = 0.05
"""Differences with a smaller p-value have a star: the usual level."""
# Volumes and costs beyond this say no more than that; longer numbers would not fit into a column.
_HUGE = 99_999
LEGEND = """\
cover: share of test outcomes inside their set (promised: 1 - alpha). cost: mean worst-case cost, the bound that is
promised. prem.: premium, cost minus the cost of trusting the prediction. regret: realised cost above the best decision
in hindsight. volume: of the set; hull: of its part within the hull of the test residuals, which far facets do not
change. paper: as printed there; here: measured by this run; diff: here minus paper. Polyhedge, set: the library with
guarantee="outcome" (polyhedge in files). one-sided-box: learns scales only. grid: rotated boxes, our reading of the
paper's template. pinball: the paper's Algorithm 2. ccg: its Algorithm 1 with a valid master. scenario: its problem
solved exactly. descent: a single learner of the library. -no-recal: the radius is set on the rows that were learned
from, so nothing is guaranteed. l-inf, l-2: balls. pcp: probabilistic conformal prediction. f-croms-K: the best of K
candidate sets. picnn: level sets of convex networks, trained as printed, in 200 passes over the learning rows;
picnn-steps: the same in 200 minibatch steps. min-size: the smallest rotated box. nominal trusts the prediction,
sample-average ignores the features, oracle knows the outcome: none of them has a set. Of decisions with the same
bound, every method takes the one of least mean cost over learning rows."""
TITLES = {
    "linear": "Table 2, linear objective",
    "quadratic": "Table 2, quadratic-regularized objective",
    "newsvendor": "Table 2, newsvendor",
    "energy": "Table 3, Energy Efficiency",
}
FAR = 2.0
"""Standard errors beyond which a printed figure has a mark."""
_MARK = "!"
_WORDS = {"coverage": "coverage", "volume": "volume", "worst_case_cost": "cost", "regret": "regret"}
_HEADS = {
    "coverage": "coverage",
    "volume": "volume",
    "worst_case_cost": "WC cost (x10)",
    "premium": "premium (x10)",
    "regret": "regret (x10)",
    "hull_volume": "volume in the hull",
}
_UNPRINTED = ("premium", "hull_volume")
"""What the paper has no column for."""


def write_tables(rows: Sequence[StudyRow], folder: Path) -> list[Path]:
    """Write `tables.csv`, `.md`, `.tex` and `times.csv`, `.md`; return their paths."""
    figures, times = table_rows(rows), time_rows(rows)
    grids = [task_grid(figures, task) for task in tasks_of(figures)]
    paths = [folder / name for name in ("tables.csv", "tables.md", "tables.tex", "times.csv", "times.md")]
    TidyTable(paths[0], TableRow).write(figures)
    replace_file(paths[1], "\n".join(["# The paper's tables", "", *(g.markdown() for g in grids)]).encode())
    replace_file(paths[2], "\n".join(grid.latex() for grid in grids).encode())
    TidyTable(paths[3], TimeRow).write(times)
    replace_file(paths[4], time_grid(times).markdown().encode())
    return paths


def tasks_of(figures: Iterable[TableRow]) -> list[str]:
    """The tasks that have figures, in the paper's order."""
    present = {figure.task for figure in figures}
    return [task for task in TASKS if task in present]


def by_method(figures: Iterable[TableRow], task: str) -> dict[str, dict[str, TableRow]]:
    """The figures of one task by method and metric."""
    methods: dict[str, dict[str, TableRow]] = {}
    for figure in figures:
        if figure.task == task:
            methods.setdefault(figure.method, {})[figure.metric] = figure
    return methods


def task_grid(figures: Iterable[TableRow], task: str) -> Grid:
    """One task in full: paper | here | difference for each column, and the paired test against Polyhedge."""
    methods = by_method(figures, task)
    heads = ["method"]
    for metric in COLUMNS:
        heads += [f"{_HEADS[metric]}: paper", "here", "difference"] if metric not in _UNPRINTED else [_HEADS[metric]]
    rows = [(own["coverage"].name, *_cells(own)) for own in methods.values()]
    return Grid(TITLES[task], (*heads, "WC cost less Polyhedge's", "p", "runs"), tuple(rows), _note(methods))


def _cells(own: dict[str, TableRow]) -> list[str]:
    cells: list[str] = []
    for metric in COLUMNS:
        figure, scale = own[metric], scale_of(metric)
        here = _bold(_mean(figure.here, figure.sd, scale, figure.se), figure.best)
        if figure.n_done == 0:
            here = "failed"
        if metric in _UNPRINTED:
            cells.append(here)
        else:
            mark = _MARK if abs(figure.z_value) > FAR else ""
            difference = _number(figure.difference, scale, sign=True) + mark
            cells += [_mean(figure.paper, figure.paper_sd, scale), here, difference]
    cost = own["worst_case_cost"]
    versus = _number(cost.versus_polyhedge, 10, sign=True)
    versus += f" ± {10 * cost.versus_polyhedge_se:.2f}" if np.isfinite(cost.versus_polyhedge_se) else ""
    star = "*" if cost.p_value < SIGNIFICANT else ""
    p_value = f"{cost.p_value:.3f}{star}" if np.isfinite(cost.p_value) else ""
    runs = f"{cost.n_done}" + (f" of {cost.n_done + cost.n_failed}" if cost.n_failed else "")
    return [*cells, versus, p_value, runs]


def _note(methods: dict[str, dict[str, TableRow]]) -> str:
    note = (
        "Mean ± standard deviation over the seeds (standard error in brackets). Costs are times ten, as printed. "
        "Premium: worst-case cost minus the cost of trusting the prediction. References have no set; their cost is "
        "what they plan for. Bold: lowest among the methods with a guarantee. WC cost less Polyhedge's: "
        "mean paired difference ± standard error, p from a paired t-test, "
        f"Holm-corrected, * below 0.05. Here: what this run measured. {against_print(methods)}"
    )
    return note + _failures(methods)


def against_print(methods: dict[str, dict[str, TableRow]]) -> str:
    """How many standard errors each printed figure lies from ours, generated from the figures."""
    compared = [own[metric] for own in methods.values() for metric in METRICS if np.isfinite(own[metric].z_value)]
    if not compared:
        return "No printed figure has a standard error here."
    parts = []
    for own in methods.values():
        z_values = [(metric, own[metric].z_value) for metric in METRICS if np.isfinite(own[metric].z_value)]
        if z_values:
            cells = ", ".join(f"{_WORDS[metric]} {z:+.1f}{_MARK if abs(z) > FAR else ''}" for metric, z in z_values)
            parts.append(f"{own['coverage'].name}: {cells}")
    far = sum(abs(figure.z_value) > FAR for figure in compared)
    return (
        f"Here less paper in standard errors of both, {_MARK} beyond {FAR:g} ({far} of {len(compared)} figures): "
        f"{'; '.join(parts)}."
    )


def _failures(methods: dict[str, dict[str, TableRow]]) -> str:
    """Who failed, and why."""
    coverages = [own["coverage"] for own in methods.values()]
    reasons = [f"{figure.name}: {figure.reason.removesuffix('.')}" for figure in coverages if figure.reason]
    return f" Failed: {'; '.join(reasons)}." if reasons else ""


def short_grid(figures: Iterable[TableRow], task: str) -> Grid:
    """One task in 80 columns: means only, and the methods by their keys, as `LEGEND` explains."""
    methods, rows = by_method(figures, task), []
    for own in methods.values():
        coverage, volume, cost, premium, regret, within = (own[metric] for metric in COLUMNS)
        label = coverage.name if coverage.method == POLYHEDGE else coverage.method
        if coverage.n_done == 0:
            rows.append((label, "failed", "", "", "", "", "", "", "", "", ""))
            continue
        rows.append(
            (
                label,
                _number(coverage.paper, 1),
                _number(coverage.here, 1, digits=3),
                _number(cost.paper, 10),
                _bold(_number(cost.here, 10), cost.best),
                _number(cost.difference, 10, sign=True) + (_MARK if abs(cost.z_value) > FAR else ""),
                _bold(_number(premium.here, 10), premium.best),
                _number(regret.paper, 10),
                _bold(_number(regret.here, 10), regret.best),
                _bold(_number(volume.here, 1, digits=2), volume.best),
                _bold(_number(within.here, 1, digits=2), within.best),
            )
        )
    heads = ("method", "cover\npaper", "\nhere", "cost\npaper", "\nhere", "\ndiff", "prem.\nhere", "regret\npaper")
    n_seeds = max((own["coverage"].n_done for own in methods.values()), default=0)
    note = (
        f"Means over {n_seeds} seed{'s' if n_seeds > 1 else ''}, costs times ten. Bold: lowest with a guarantee. "
        f"{_MARK}: beyond {FAR:g} standard errors of both means; tables.md has all of them."
    )
    note += _failures(methods)
    return Grid(TITLES[task], (*heads, "\nhere", "volume\nhere", "\nhull"), tuple(rows), note)


def time_grid(times: Sequence[TimeRow]) -> Grid:
    """Seconds for learning, calibration and selection, here and in the paper."""
    tasks = [task for task in TASKS if any(row.task == task for row in times)]
    of = {(row.task, row.method): row for row in times}
    heads = ["method", *(cell for task in tasks for cell in (f"{task}: paper", "here"))]
    rows = []
    for key, method in METHODS.items():
        if any((task, key) in of for task in tasks):
            cells = [cell for task in tasks for cell in _times(of.get((task, key)))]
            rows.append((method.name, *cells))
    note = "Seconds for learning, calibration and selection; ± standard deviation over the seeds."
    return Grid("Times", tuple(heads), tuple(rows), note)


def _times(row: TimeRow | None) -> tuple[str, str]:
    if row is None:
        return "", ""
    paper = "" if np.isnan(row.paper) else f"{'<' if row.paper_at_most else ''}{row.paper:g}"
    spread = f" ± {row.sd:.2g}" if np.isfinite(row.sd) else ""
    return paper, f"{row.seconds:.2g}{spread}"


def scale_of(metric: str) -> int:
    """Costs are shown in tenths, as the paper prints them."""
    return 10 if metric in ("worst_case_cost", "premium", "regret") else 1


def _mean(mean: float, sd: float, scale: int, se: float = np.nan) -> str:
    text = _number(mean, scale)
    text += f" ± {scale * sd:.3f}" if np.isfinite(sd) and scale == 1 and abs(mean) < 1 else ""
    text += f" ± {scale * sd:.2f}" if np.isfinite(sd) and not (scale == 1 and abs(mean) < 1) else ""
    return text + (f" ({scale * se:.2g})" if np.isfinite(se) else "")


def _number(value: float, scale: int, *, sign: bool = False, digits: int | None = None) -> str:
    if np.isnan(value):
        return ""
    if digits is None:
        digits = 3 if scale == 1 and abs(value) < 1 else 2
    scaled, plus = scale * value, "+" if sign else ""
    if abs(scaled) >= _HUGE:
        return f"{'-' if scaled < 0 else ''}>{_HUGE}"
    # Large volumes are of interest by their size only.
    text = f"{float(f'{scaled:.3g}'):{plus}.0f}" if abs(scaled) >= 100 else f"{scaled:{plus}.{digits}f}"
    return text.replace("-", "+" if sign else "") if float(text) == 0 else text


def _bold(text: str, wanted: bool) -> str:
    return f"**{text}**" if wanted else text
