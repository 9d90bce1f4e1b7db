"""The study in words: by how much Polyhedge leads, over whom, and what did not help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polyhedge_study.methods import METHODS, OF_THE_PAPER, POLYHEDGE
from polyhedge_study.study_tables import by_method, tasks_of
from polyhedge_study.summary import TableRow

__all__ = ["best_rival", "in_words", "left_out", "share_below"]

Methods = Mapping[str, Mapping[str, TableRow]]
SIMPLE = "one-sided-box"
# Standard errors within which a paired difference is called none.
_NOISE = 2.0


def in_words(figures: Sequence[TableRow]) -> list[str]:
    """Sentences about the tables; none without a row of Polyhedge."""
    tasks = {task: by_method(figures, task) for task in tasks_of(figures)}
    tasks = {task: methods for task, methods in tasks.items() if _has(methods, POLYHEDGE)}
    if not tasks:
        return []
    sentences = [
        'Polyhedge, set, the library with guarantee="outcome", is the first row of each of the paper\'s tables: like '
        "all of their rows it bounds the cost of every decision at once. Its premium is what the guarantee costs: the "
        "promised bound minus the cost of trusting the prediction.",
        *_lead(tasks),
        *_against_paper(tasks),
        *_no_help(tasks),
        _coverage(tasks),
    ]
    return [sentence for sentence in sentences if sentence]


def best_rival(methods: Methods) -> TableRow | None:
    """The premium of the best other method with a guarantee: other authors', the paper's, or one without decisions."""
    rivals = [
        own["premium"]
        for key, own in methods.items()
        if (own["premium"].group in ("baseline", "ablation") or key in OF_THE_PAPER)
        and own["premium"].guarantee != "none"
        and np.isfinite(own["premium"].here)
    ]
    return min(rivals, key=lambda figure: figure.here, default=None)


def share_below(value: float, other: float) -> str:
    """How far a value lies below another, in words.

    Examples
    --------
    >>> share_below(3.0, 4.0), share_below(5.0, 4.0)
    ('25 % below', '25 % above')
    """
    share = 1 - value / other
    return f"{100 * abs(share):.0f} % {'below' if share >= 0 else 'above'}"


def _has(methods: Methods, key: str) -> bool:
    return key in methods and bool(np.isfinite(methods[key]["premium"].here))


def _lead(tasks: Mapping[str, Methods]) -> list[str]:
    parts = []
    for task, methods in tasks.items():
        rival, own = best_rival(methods), methods[POLYHEDGE]["premium"]
        if rival is not None:
            figures = f"{10 * own.here:.2f} against {10 * rival.here:.2f}"
            parts.append(f"{share_below(own.here, rival.here)} that of {rival.name} on {task} ({figures})")
    return [f"It lies, beside the best other method with a guarantee, {', '.join(parts)}."] if parts else []


def _against_paper(tasks: Mapping[str, Methods]) -> list[str]:
    """By how much the premium of each of the paper's learners lies above Polyhedge's, paired over the seeds."""
    sentences = []
    for key in OF_THE_PAPER:
        above = {task: methods[key]["premium"] for task, methods in tasks.items() if _has(methods, key)}
        above = {task: figure for task, figure in above.items() if np.isfinite(figure.versus_polyhedge_se)}
        if above:
            parts = [
                f"{10 * figure.versus_polyhedge:+.2f} ± {10 * figure.versus_polyhedge_se:.2f}"
                f"{' (level)' if _is_level(figure) else ''} on {task}"
                for task, figure in above.items()
            ]
            sentences.append(f"{METHODS[key].name}, its premium less that of Polyhedge's set: {', '.join(parts)}.")
    return sentences


def _no_help(tasks: Mapping[str, Methods]) -> list[str]:
    level = [task for task, methods in tasks.items() if _has(methods, SIMPLE) and _is_level(methods[SIMPLE]["premium"])]
    sentences = []
    if level:
        sentences.append(
            f"What did not help: a learned shape on {_listed(level)}, where the one-sided box, which learns scales, is "
            "level with it within the noise."
        )
    return [*sentences, *_small_sets(tasks)]


def _small_sets(tasks: Mapping[str, Methods]) -> list[str]:
    """What the sets of the least volume cost."""
    dearer = []
    for task, methods in tasks.items():
        held = [own for own in methods.values() if own["volume"].guarantee != "none" and own["volume"].here > 0]
        least = min(held, key=lambda own: own["volume"].here)
        own = methods[POLYHEDGE]["premium"].here
        if least["premium"].here > own:
            dearer.append(f"{100 * (least['premium'].here / own - 1):.0f} % on {task}")
    if not dearer:
        return []
    return [
        f"Small sets do not help: the premium of the smallest lies above that of Polyhedge's set by {_listed(dearer)}."
    ]


def _is_level(figure: TableRow) -> bool:
    return abs(figure.versus_polyhedge) <= _NOISE * figure.versus_polyhedge_se


def _coverage(tasks: Mapping[str, Methods]) -> str:
    rows = [methods[POLYHEDGE]["coverage"] for methods in tasks.values()]
    low, high = min(row.here for row in rows), max(row.here for row in rows)
    seeds = max(row.n_done for row in rows)
    return f"Its coverage lay between {low:.3f} and {high:.3f}, means over {seeds} seed{'s' if seeds > 1 else ''}."


def left_out(figures: Sequence[TableRow]) -> list[str]:
    """Keys of the methods that the tables do not have."""
    there = {figure.method for figure in figures}
    return [key for key in METHODS if key not in there]


def _listed(items: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))
