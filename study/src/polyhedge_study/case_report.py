"""The table of the real cases: bounds, costs, what rivals differ by, and an earlier prototype's figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from polyhedge_study.case_runs import N_RESAMPLED, N_STRETCHES, CaseRow
from polyhedge_study.cases import CASES
from polyhedge_study.grid import Grid
from polyhedge_study.guarantees_report import Comparison, verdicts
from polyhedge_study.guarded.methods import GUARDED, PLAN, RIVALS, SET
from polyhedge_study.summary import holm

__all__ = ["PROTOTYPE", "case_comparisons", "case_grid", "case_words", "differences"]

PROTOTYPE = {
    ("charging", PLAN): "298.7 / 254.7 / .842",
    ("charging", "nominal-guard"): "303.0 / 254.2 / .855",
    ("charging", SET): "314.7 / 273.5 / .855",
    ("battery", PLAN): "-16.8 / -55.7 / .907",
    ("battery", "average-guard"): "-13.0 / -58.8",
    ("battery", "cvar-guard"): "-18.3 / -40.9",
    ("battery", SET): "0 / 0 / 1",
    ("bakery", PLAN): "56.1 / 35.5 / .915",
    ("bakery", "quantile-scaled"): "58.5 / 35.6 / .889",
    ("bakery", SET): "65.3 / 42.8 / .922",
    ("portfolio", PLAN): "2.18 / -.28 / .909",
    ("portfolio", SET): "2.37 / -.25 / .916",
}
"""Bound / cost / held of a prototype on the same problems; its predictors were others and are not known exactly."""


_FIGURES = ("bound", "realised", "equal")
"""What is compared, in the order of `CaseRow.draws`."""


def differences(row: CaseRow, ours: CaseRow) -> list[tuple[float, float]]:
    """By how much bound, cost and bound at equal coverage of a row exceed those of Polyhedge, with standard errors.

    Both rows see the same stretches of calibration and test periods drawn again, so that differences are paired.
    """
    errors = (row.draws - ours.draws).std(axis=1, ddof=1)
    return [(getattr(row, name) - getattr(ours, name), float(e)) for name, e in zip(_FIGURES, errors, strict=True)]


def case_grid(rows: Sequence[CaseRow]) -> Grid:
    """Bound, realised cost and held share of every method on every case, and what it differs from Polyhedge by."""
    lines = []
    for name in CASES:
        own = [row for row in rows if row.case == name]
        ours = next((row for row in own if row.method == PLAN and row.status == "done"), None)
        for k, row in enumerate(own):
            figures: tuple[str, ...] = ("failed", *("",) * 7)
            if row.status == "done":
                versus = [] if ours is None or row is ours else differences(row, ours)
                apart = [f"{mean:+.3g} ± {error:.2g}" for mean, error in versus] or ("",) * 3
                figures = (
                    _number(row.bound),
                    _number(row.realised),
                    f"{row.held:.3f}",
                    _number(row.equal) if np.isfinite(row.equal) else "",
                    str(row.n_decisions),
                    *apart,
                )
            earlier = PROTOTYPE.get((name, row.method), "")
            lines.append((name if k == 0 else "", GUARDED[row.method].name, *figures, earlier))
    failures = "; ".join(
        f"{row.case}, {GUARDED[row.method].name}: {row.detail}" for row in rows if row.status != "done"
    )
    return Grid(
        "Real cases, in time order",
        (
            "case",
            "method",
            "bound",
            "cost",
            "held",
            "at 1 - alpha",
            "decisions",
            "bound above",
            "cost above",
            "above at 1 - alpha",
            "prototype",
        ),
        tuple(lines),
        "bound: mean of what is promised; cost: mean realised; held: share of test rows that cost no more than their "
        "bound (drift in time moves it); at 1 - alpha: mean bound at the radius that covers exactly the promised share "
        "of test rows, fair where drift covers more of one method than of another; decisions: distinct ones at the "
        "test rows; above: what a method has above Polyhedge, with standard errors, "
        f"paired over {N_RESAMPLED} draws of {N_STRETCHES} stretches of the calibration and of the test period. A "
        "battery earns where costs "
        "are below zero. The last row of a case bounds every decision at once. prototype: bound / cost / held of an "
        "earlier program with other predictors." + (f" Failed: {failures}." if failures else ""),
    )


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def case_words(rows: Sequence[CaseRow]) -> list[str]:
    """In how many comparisons with rivals that have the same guarantee Polyhedge is lower, level and higher."""
    sentences = []
    for figure, name in enumerate(("bounds", "realised costs", "bounds at equal coverage")):
        compared = case_comparisons(rows, figure)
        if compared:
            sentences += [
                f"{len(compared)} comparisons of {name}, paired over periods drawn again:",
                *verdicts(compared),
            ]
    return sentences


def case_comparisons(rows: Sequence[CaseRow], figure: int) -> list[Comparison]:
    """Every rival on every case by bound (0), cost (1) or bound at equal coverage (2), p Holm-corrected over them."""
    done = {(row.case, row.method): row for row in rows if row.status == "done"}
    apart = {
        (case, key): differences(done[case, key], done[case, PLAN])[figure]
        for case in CASES
        for key in RIVALS
        if (case, key) in done and (case, PLAN) in done
    }
    corrected = holm(
        [2 * float(stats.norm.sf(abs(mean) / error)) if error else np.nan for mean, error in apart.values()]
    )
    return [Comparison(*where, *difference, p) for (where, difference), p in zip(apart.items(), corrected, strict=True)]
