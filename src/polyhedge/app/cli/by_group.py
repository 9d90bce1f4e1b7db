"""How groups of rows fared, for a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhedge._support.text import with_unit
from polyhedge.app.cli.output import say

if TYPE_CHECKING:
    from polyhedge.evaluation import Estimate, Evaluation

__all__ = ["tell_groups", "tell_short"]


def tell_groups(by: str, groups: dict[str, Evaluation], *, is_promised: bool) -> None:
    """A table with a line for each group, and whom the promise is for."""
    has_constraints = any(evaluation.constraints for evaluation in groups.values())
    held = ["constraints"] if has_constraints else []
    is_bounded = not any(evaluation.without_bound > 0 for evaluation in groups.values())
    heads = [by, "rows", *([] if is_bounded else ["no bound"]), "coverage", *held]
    unit = next((evaluation.cost_unit for evaluation in groups.values()), "")
    is_expected = any(evaluation.expected_cost is not None for evaluation in groups.values())
    costs = ("bound", *(["expected"] if is_expected else []), "realised", "regret", "vs nominal")
    heads += [with_unit(name, unit) for name in costs]
    rows = [
        [
            label,
            str(evaluation.without_bound.n),
            *([] if is_bounded else [str(evaluation.without_bound.n - evaluation.coverage.n)]),
            str(evaluation.coverage),
            *([str(evaluation.constraints_held)] if has_constraints else []),
            f"{evaluation.worst_case_cost.value:.4g}",
            *([_told(evaluation.expected_cost)] if is_expected else []),
            f"{evaluation.realised_cost.value:.4g}",
            f"{evaluation.regret.value:.4g}",
            f"{evaluation.over_nominal.value:+.3g}",
        ]
        for label, evaluation in groups.items()
    ]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    say()
    for row in [heads, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        say("  ".join(cells))
    if is_promised:
        say("The promise is for each of these categories that had enough calibration rows, and for no other.")
        return
    say("The promise is an average over all rows. A group may be covered less often without breaking it.")


def _told(cost: Estimate | None) -> str:
    return "unknown" if cost is None else f"{cost.value:.4g}"


def tell_short(whole: Evaluation, *, are_independent: bool) -> None:
    """How intervals of many groups are to be read, and which groups fall short beyond chance."""
    say("The intervals hold for all groups at once, in 95 % of cases (Bonferroni).")
    if not are_independent:
        say("They take rows for independent; rows that belong together make them too narrow.")
        return
    short = [group.label for group in whole.groups if group.is_short]
    if short:
        say(f"Covered less than promised, beyond chance: {', '.join(short)}.")
