"""How far the methods are from the least premium that the true law allows, at equal coverage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge_study.experiment import Experiment
from polyhedge_study.grid import Grid
from polyhedge_study.guarantees import SETTINGS, GuaranteeRow
from polyhedge_study.guarded.methods import GUARDED
from polyhedge_study.inside import check_alpha, check_count
from polyhedge_study.jobs import Progress, Workers
from polyhedge_study.true_law import limit_of

__all__ = ["LIMITED", "LimitJob", "LimitRow", "limit_grid", "limit_jobs", "run_limit"]

LIMITED = tuple(name for name, setting in SETTINGS.items() if setting.task != "energy" and setting.n_outcomes <= 10)
"""Settings whose law is known, and whose limit a search over decisions finds."""
_PROTOTYPE = {
    "linear, d = 2, n = 300": 0.311,
    "quadratic, d = 2, n = 300": 0.308,
    "newsvendor, d = 2, n = 300": 0.211,
    "linear, d = 5, n = 500": 0.313,
    "linear, d = 10, n = 500": 0.318,
    "newsvendor, d = 5, n = 500": 0.464,
}
"""Equal-level limits of an earlier computation by other code, at alpha = 0.1."""


@dataclass(frozen=True)
class LimitSettings:
    """What all draws share: the level, the least level of a row, rows and noise samples by number of outcomes."""

    alpha: float = 0.1
    floor: float = 0.8
    rows: int = 100
    samples: int = 10_000
    samples_beyond_two: int = 5_000

    def __post_init__(self) -> None:
        check_alpha(self.alpha)


@dataclass(frozen=True)
class LimitJob:
    """One draw of rows and noise in one setting."""

    setting: str
    draw: int

    @property
    def label(self) -> str:
        """For the progress line."""
        return f"limit of {self.setting}, draw {self.draw}"

    @property
    def kind(self) -> str:
        """Only draws take the same time."""
        return self.setting


@dataclass(frozen=True)
class LimitRow:
    """Premiums of the limit in one draw: with equal levels, and with levels shared out above the floor."""

    setting: str
    draw: int
    status: str
    equal: float
    allocated: float
    detail: str

    @property
    def job(self) -> LimitJob:
        """The job that made it."""
        return LimitJob(self.setting, self.draw)


def limit_jobs(names: Sequence[str] = (), draws: int = 3) -> list[LimitJob]:
    """Draws of the named settings (none named: of all)."""
    unknown = [name for name in names if name not in LIMITED]
    if unknown:
        raise ValueError(f"setting must be one of {'; '.join(LIMITED)}; got {', '.join(map(repr, unknown))}.")
    check_count(draws, "draws", minimum=1)
    return [LimitJob(name, draw) for draw in range(draws) for name in LIMITED if not names or name in names]


def run_limit(
    jobs: Sequence[LimitJob],
    folder: Path,
    *,
    alpha: float = 0.1,
    workers: Workers | None = None,
    report: Callable[[Progress], None] | None = None,
) -> list[LimitRow]:
    """Run what `limit.csv` in the folder lacks; return all its rows in order."""
    settings = LimitSettings(alpha, floor=1 - 2 * alpha)
    experiment = Experiment(
        name="limit",
        row_type=LimitRow,
        settings=settings,
        work=partial(run_job, settings=settings),
        failed=lambda job, reason: LimitRow(job.setting, job.draw, "failed", np.nan, np.nan, reason),
        order=lambda row: (LIMITED.index(row.setting), row.draw),
        about=lambda rows: {"command": "polyhedge reproduce limit"},
    )
    return experiment.run(jobs, folder, workers=workers, report=report)


def run_job(job: LimitJob, settings: LimitSettings) -> LimitRow:
    """One draw."""
    setting = SETTINGS[job.setting]
    rng = np.random.default_rng([31, LIMITED.index(job.setting), job.draw])
    limit = limit_of(
        setting.make(0).problem,
        settings.alpha,
        rng,
        n_rows=settings.rows,
        n_samples=settings.samples if setting.n_outcomes == 2 else settings.samples_beyond_two,
        floor=settings.floor,
    )
    return LimitRow(job.setting, job.draw, "done", limit.equal, limit.allocated, "")


def limit_grid(limits: Sequence[LimitRow], rows: Sequence[GuaranteeRow], alpha: float = 0.1) -> Grid:
    """The limits, and what each method's premium at equal coverage is above them in per cent."""
    lines = []
    for name in LIMITED:
        own = [row for row in limits if row.setting == name and np.isfinite(row.equal)]
        if not own:
            continue
        level = np.array([row.equal for row in own])
        error = f" ± {level.std(ddof=1) / np.sqrt(len(level)):.3f}" if len(level) > 1 else ""
        shared = np.mean([row.allocated for row in own])
        earlier = f"{_PROTOTYPE[name]:.3f}" if alpha == 0.1 else ""
        lines.append((name, "limit, equal levels", f"{level.mean():.3f}{error}", "", earlier))
        lines.append(
            ("", "limit, levels shared out", f"{shared:.3f}", f"{100 * (shared / level.mean() - 1):+.1f} %", "")
        )
        for key, method in GUARDED.items():
            theirs = [row.equal for row in rows if (row.setting, row.method) == (name, key) and np.isfinite(row.equal)]
            if theirs:
                mean, spread = np.mean(theirs), np.std(theirs, ddof=1) if len(theirs) > 1 else np.nan
                text = f"{mean:.3f}" + (f" ± {spread / np.sqrt(len(theirs)):.3f}" if len(theirs) > 1 else "")
                lines.append(("", f"{method.name} ({len(theirs)} seeds)", text, _above(mean, level.mean()), ""))
    return Grid(
        "The limit of the true law, and how far methods are from it",
        ("setting", "", "premium", "above the limit", "earlier"),
        tuple(lines),
        "limit, equal levels: mean over x of the least (1 - alpha)-quantile of the cost; levels shared out: the least "
        f"mean if rows may have levels from {1 - 2 * alpha:g} on with the promised mean (beyond two outcomes at the "
        "decisions of equal levels: an upper estimate). ± standard error over draws of rows and noise. Methods: "
        "premium if exactly the promised share of test rows were covered, ± standard error over seeds. earlier: the "
        "equal-level limit as other code computed it. The row with a set makes the stronger promise.",
    )


def _above(value: Any, limit: Any) -> str:
    return f"{100 * (value / limit - 1):+.1f} %"
