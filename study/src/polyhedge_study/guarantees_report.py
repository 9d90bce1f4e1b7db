"""The promise about the decision taken, for readers: the table of its methods, the set beside them, and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyhedge_study.grid import Grid
from polyhedge_study.guarantees import SETTINGS, GuaranteeRow
from polyhedge_study.guarded.methods import CAUTIOUS, GUARDED, PLAN, RIVALS, SET
from polyhedge_study.held_law import held_p_value
from polyhedge_study.summary import holm, paired

__all__ = ["Comparison", "comparisons", "cost_grid", "guarantee_words", "set_grid", "verdicts"]

_CLEAR = 3.0
"""Standard errors beyond which a difference is called one."""
_ENOUGH_SEEDS = 4
"""Fewer give standard errors that say nothing."""


@dataclass(frozen=True)
class Comparison:
    """A rival with the same guarantee against Polyhedge in one setting or case: a paired difference, p by Holm."""

    setting: str
    rival: str
    difference: float
    error: float
    p_value: float

    @property
    def verdict(self) -> str:
        """Polyhedge is "lower", "higher" or "level" with the rival."""
        if abs(self.difference) <= _CLEAR * self.error or np.isnan(self.error):
            return "level"
        return "lower" if self.difference > 0 else "higher"


def comparisons(rows: Sequence[GuaranteeRow]) -> list[Comparison]:
    """Every rival in every setting, Holm-corrected over all of them."""
    tests = []
    for name in SETTINGS:
        ours = _own(rows, name, PLAN)
        for key in RIVALS:
            theirs = _own(rows, name, key)
            if ours and theirs:
                tests.append((name, key, paired(theirs, ours, "premium")))
    corrected = holm([test[2] for _, _, test in tests])
    return [Comparison(name, key, *test[:2], p) for (name, key, test), p in zip(tests, corrected, strict=True)]


def cost_grid(rows: Sequence[GuaranteeRow], alpha: float) -> Grid:
    """Methods that bound the cost of the decision taken."""
    against = {(c.setting, c.rival): c for c in comparisons(rows)}
    lines = []
    for name in SETTINGS:
        for key in (PLAN, CAUTIOUS, *RIVALS):
            own = _own(rows, name, key)
            if own:
                versus = against.get((name, key))
                lines.append((_short(name) if key == PLAN else "", *_cells(own, key, alpha), *_versus(versus)))
    return Grid(
        f"The cost of the decision taken: plans with a guard, {len({row.seed for row in rows})} seeds",
        ("setting", "method", "premium", "equal", "held", "law", "cost", "above", "p"),
        tuple(lines),
        "premium: mean bound above the cost of knowing the mean outcome (energy: of trusting the prediction). equal: "
        "the same with exactly the promised share of test rows covered. held: share of test rows that keep their "
        "bound; law: how likely a share as odd is by the exact beta-binomial law. cost: realised. above: premium "
        "less that of Polyhedge, paired over seeds, ± standard error; p: Holm-corrected over all lines.",
    )


def set_grid(rows: Sequence[GuaranteeRow]) -> Grid:
    """The decision that is taken, beside every decision at once."""
    lines = []
    for name in SETTINGS:
        plan, others = _own(rows, name, PLAN), _own(rows, name, SET)
        seeds = {row.seed for row in plan} & {row.seed for row in others}
        if not seeds:
            continue
        plan, others = ([row for row in side if row.seed in seeds] for side in (plan, others))
        lines.append(
            (
                name,
                str(len(seeds)),
                _mean(plan, "premium"),
                _mean(others, "premium"),
                _difference(plan, others, "premium"),
                _difference(plan, others, "equal"),
                _mean(others, "covered"),
                _difference(plan, others, "realised"),
                f"{sum(r.seconds for r in plan) / sum(r.seconds for r in others):.1f}",
            )
        )
    return Grid(
        "The decision taken, beside every decision at once: two promises",
        ("setting", "seeds", "plan", "set", "plan - set", "equal", "set covers", "cost - set's", "time"),
        tuple(lines),
        "plan, set: mean premium of either promise. plan - set: paired, ± standard error; equal: the same at equal "
        "coverage. set covers: share of test outcomes inside. cost - set's: realised cost, paired. time: CPU time, in "
        "units of the set's.",
    )


def guarantee_words(rows: Sequence[GuaranteeRow]) -> list[str]:
    """Where Polyhedge is lower, level and higher than a rival with the same guarantee."""
    compared, n_seeds = comparisons(rows), len({row.seed for row in rows})
    if not compared:
        return []
    if n_seeds < _ENOUGH_SEEDS:
        return [f"{n_seeds} seeds are too few to tell methods with the same guarantee apart; --seeds 20 does."]
    return [
        f"Against rivals with the same guarantee, {len(compared)} comparisons of premiums, paired over seeds:",
        *verdicts(compared),
    ]


def verdicts(compared: Sequence[Comparison]) -> list[str]:
    """In how many comparisons Polyhedge is lower, level and higher, and in which it is not lower."""
    sentences = []
    for verdict in ("lower", "level", "higher"):
        named = [f"{GUARDED[c.rival].name} on {c.setting}" for c in compared if c.verdict == verdict]
        what = {
            "lower": f"lower by more than {_CLEAR:g} standard errors in",
            "level": "level within these in",
            "higher": "higher by more than these in",
        }[verdict]
        listed = f" ({'; '.join(named)})" if named and verdict != "lower" else ""
        sentences.append(f"Polyhedge is {what} {len(named)}{listed}.")
    return sentences


def _short(setting: str) -> str:
    """A setting without its number of rows, so that the table fits a terminal.

    Examples
    --------
    >>> _short("linear, d = 10, n = 500")
    'linear d=10'
    """
    return setting.partition(", n")[0].replace(" = ", "=").replace(",", "")


def _own(rows: Sequence[GuaranteeRow], setting: str, method: str) -> list[GuaranteeRow]:
    return [row for row in rows if row.setting == setting and row.method == method and np.isfinite(row.premium)]


def _mean(rows: Sequence[GuaranteeRow], name: str) -> str:
    return f"{np.mean([getattr(row, name) for row in rows]):.3f}"


def _difference(ours: Sequence[GuaranteeRow], theirs: Sequence[GuaranteeRow], name: str) -> str:
    mean, error, _ = paired(ours, theirs, name)
    return f"{mean:+.3f}" + (f" ± {error:.3f}" if np.isfinite(error) else "")


def _cells(own: Sequence[GuaranteeRow], key: str, alpha: float) -> tuple[str, ...]:
    figures = [_mean(own, name) for name in ("premium", "equal", "covered")]
    counts = [round(row.covered * row.n_test) for row in own]
    law = held_p_value(counts, own[0].n_test, own[0].n_calibrate, alpha, has_ties=not GUARDED[key].has_law)
    name = GUARDED[key].name.removesuffix(" + guard").removesuffix(" calibration")
    return (name, *figures, f"{law:.2f}", _mean(own, "realised"))


def _versus(comparison: Comparison | None) -> tuple[str, str]:
    if comparison is None:
        return "", ""
    error = f"±{comparison.error:.3f}" if np.isfinite(comparison.error) else ""
    return f"{comparison.difference:+.3f}{error}".replace("0.", "."), f"{comparison.p_value:.2f}" if np.isfinite(
        comparison.p_value
    ) else ""
