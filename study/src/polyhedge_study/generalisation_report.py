"""Tables of the generalisation experiment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from polyhedge_study.generalisation import RIVAL, SETTINGS, GeneralisationRow
from polyhedge_study.grid import Grid
from polyhedge_study.inside import Array
from polyhedge_study.methods import METHODS

__all__ = ["comparison_grid", "population_grid"]


def comparison_grid(rows: Sequence[GeneralisationRow]) -> Grid:
    """Means over seeds, and differences to the one-sided box with paired tests."""
    lines = [
        _comparison_line(here, method)
        for here in _by_setting([row for row in rows if row.setting in SETTINGS])
        for method in dict.fromkeys(row.method for row in here)
    ]
    return Grid(
        "Premium after recalibration, paired with the one-sided box",
        ("setting", "method", "premium", "minus the box ± s.e.", "p (t)", "p (Wilcoxon)", "coverage", "seconds"),
        tuple(lines),
        "Negative differences favour the method. Two-sided p-values over the seeds. The box takes its scales from the "
        "training rows and is calibrated on the learning and calibration rows together.",
    )


def population_grid(rows: Sequence[GeneralisationRow]) -> Grid:
    """What very many samples make possible on the linear task, relative to the one-sided box."""
    lines = []
    for here in _by_setting([row for row in rows if row.setting not in SETTINGS]):
        for method in dict.fromkeys(row.method for row in here):
            rival = "box on 3000 rows" if method.endswith("3000 rows") else RIVAL
            mine, theirs = _premiums(here, method), _premiums(here, rival)
            shared = sorted(mine.keys() & theirs.keys())
            ratio = np.mean([mine[seed] for seed in shared]) / np.mean([theirs[seed] for seed in shared])
            premium = float(np.mean(list(mine.values())))
            lines.append((here[0].setting, method, f"{premium:.4f}", f"{100 * (ratio - 1):+.2f} %"))
    return Grid(
        "The linear task with very many learning samples",
        ("setting", "method", "premium", "relative to the box"),
        tuple(lines),
        "The exact optimum is that of the dynamic program over all sets on the learning rows; it overfits them, so "
        "what a set can reach on fresh data lies above it.",
    )


def _by_setting(rows: Sequence[GeneralisationRow]) -> list[list[GeneralisationRow]]:
    return [[row for row in rows if row.setting == name] for name in dict.fromkeys(row.setting for row in rows)]


def _premiums(rows: Sequence[GeneralisationRow], method: str) -> dict[int, float]:
    return {row.seed: row.premium for row in rows if row.method == method and np.isfinite(row.premium)}


def _comparison_line(rows: Sequence[GeneralisationRow], method: str) -> tuple[str, ...]:
    head = rows[0].setting, METHODS[method].name
    mine, rival = _premiums(rows, method), _premiums(rows, RIVAL)
    if not mine:
        return (*head, next(row.detail for row in rows if row.method == method), "", "", "", "", "")
    difference = np.array([mine[seed] - rival[seed] for seed in sorted(mine.keys() & rival.keys())])
    compared = ("", "", "") if method == RIVAL else _compared(difference)
    coverage, seconds = (
        float(np.nanmean([getattr(row, column) for row in rows if row.method == method]))
        for column in ("coverage", "seconds")
    )
    return (*head, f"{np.mean(list(mine.values())):.4f}", *compared, f"{coverage:.3f}", f"{seconds:.1f}")


def _compared(difference: Array) -> tuple[str, str, str]:
    if len(difference) < 2:
        return (f"{difference[0]:+.4f}" if len(difference) else ""), "", ""
    error = float(difference.std(ddof=1)) / np.sqrt(len(difference))
    if not error:
        return f"{difference.mean():+.4f} ± 0.0000", "", ""
    t = float(stats.ttest_1samp(difference, 0.0).pvalue)
    signed_rank = float(stats.wilcoxon(difference, zero_method="zsplit").pvalue)
    return f"{difference.mean():+.4f} ± {error:.4f}", f"{t:.2g}", f"{signed_rank:.2g}"
