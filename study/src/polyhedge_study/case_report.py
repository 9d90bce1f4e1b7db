"""The table of the real cases: bounds, costs, what rivals differ by, and an earlier prototype's figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyhedge_study.case_runs import N_STRETCHES, CaseRow
from polyhedge_study.cases import CASES
from polyhedge_study.grid import Grid
from polyhedge_study.guarded.methods import GUARDED, PLAN, RIVALS, SET

__all__ = ["PROTOTYPE", "case_grid", "case_words", "difference"]

_LARGE = 2.0
"""Standard errors beyond which a difference is told as one."""

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


def difference(row: CaseRow, ours: CaseRow) -> tuple[tuple[float, float], tuple[float, float]]:
    """By how much bound and cost of a row exceed those of Polyhedge, with standard errors paired over stretches."""
    apart = row.means - ours.means
    errors = apart.std(axis=1, ddof=1) / np.sqrt(N_STRETCHES)
    means = row.bound - ours.bound, row.realised - ours.realised
    return (means[0], float(errors[0])), (means[1], float(errors[1]))


def case_grid(rows: Sequence[CaseRow]) -> Grid:
    """Bound, realised cost and held share of every method on every case, and what it differs from Polyhedge by."""
    lines = []
    for name in CASES:
        own = [row for row in rows if row.case == name]
        ours = next((row for row in own if row.method == PLAN and row.status == "done"), None)
        for k, row in enumerate(own):
            figures = ("failed", *("",) * 6)
            if row.status == "done":
                apart = ("", "")
                if ours is not None and row is not ours:
                    apart = tuple(f"{mean:+.3g} ± {error:.2g}" for mean, error in difference(row, ours))  # type: ignore[assignment]
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
            "prototype",
        ),
        tuple(lines),
        "bound: mean of what is promised; cost: mean realised; held: share of test rows that cost no more than their "
        "bound (drift in time moves it); at 1 - alpha: mean bound at the radius that covers exactly the promised share "
        "of test rows, fair where drift covers more of one method than of another; decisions: distinct ones at the "
        "test rows; above: what a method has above Polyhedge, with standard errors, "
        f"paired over {N_STRETCHES} consecutive stretches of test rows. A battery earns where costs "
        "are below zero. The last row of a case bounds every decision at once. prototype: bound / cost / held of an "
        "earlier program with other predictors." + (f" Failed: {failures}." if failures else ""),
    )


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def case_words(rows: Sequence[CaseRow]) -> list[str]:
    """Where a rival with the same guarantee has a lower bound or cost than Polyhedge, and whether beyond noise."""
    sentences = []
    for name in CASES:
        own = {row.method: row for row in rows if row.case == name and row.status == "done"}
        rivals = [own[key] for key in RIVALS if key in own]
        if PLAN not in own or not rivals:
            continue
        parts = []
        for j, (what, figure) in enumerate((("bound", "bound"), ("realised cost", "realised"))):
            ours, best = getattr(own[PLAN], figure), min(rivals, key=lambda row: getattr(row, figure))
            theirs, error = getattr(best, figure), difference(best, own[PLAN])[j][1]
            verb = "lowest" if ours <= theirs else f"above that of {GUARDED[best.method].name}"
            size = "beyond" if abs(ours - theirs) > _LARGE * error else "within"
            parts.append(
                f"the {what} of Polyhedge is {verb} ({_number(ours)} against {_number(theirs)}, {size} {_LARGE:g} "
                "standard errors)"
            )
        sentences.append(f"{name.capitalize()}: {' and '.join(parts)}.")
    return sentences
