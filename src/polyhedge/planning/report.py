"""What a selection of policies found, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from polyhedge._support.frames import as_frame, as_html
from polyhedge._support.stored import stored
from polyhedge._support.validation import check_alpha, check_count

DRAWN_AGAIN = "won cross-validation in most bootstrap samples"
"""The reason of a mean of policies: the heaviest has won more samples than others, not half of them as a rule."""
CHOSEN_ONCE = "won cross-validation"
"""The reason of a single policy, where a mean of decisions is none or some policy has no finite bound."""
TAKEN_AS_IT_IS = "is taken as it is"
"""The reason of a policy of the user's own: there was no selection."""
_DEVELOPED = "that do not calibrate it"
"""Which rows score: training and learning rows, or those of them that no role in calibration takes."""


@stored("selection entry")
@dataclass(frozen=True)
class Entry:
    """A rule in the selection, as scored on rows that it had not seen.

    Attributes
    ----------
    rule : what it does, in words.
    bound : mean bound that calibration on the scored rows would give.
    cost : mean realised cost.
    share : its weight in the policy.
    """

    rule: str
    bound: float
    cost: float
    share: float


@stored("selection report")
@dataclass(frozen=True)
class PolicyReport:
    """Which rules make the policy, and how all of them were scored; development rows only.

    Examples
    --------
    >>> report = PolicyReport((Entry("trust the prediction", 3.0, 1.0, 1.0),), 0.1, 0.5, 200)
    >>> print(report)
    Policy for alpha=0.1, caution 0.5, scored on 200 rows that no rule had seen:
      trust the prediction: bound 3, cost 1, share 100 %
    >>> report.frontier()[0]["rule"]
    'trust the prediction'
    """

    entries: tuple[Entry, ...]
    alpha: float
    caution: float
    n_scored: int
    reason: str = DRAWN_AGAIN

    def __post_init__(self) -> None:
        if not 0 <= self.caution <= 1 or not all(0 <= one.share <= 1 for one in self.entries):
            raise ValueError("A selection has entries with shares from 0 to 1, and a caution from 0 to 1.")
        check_alpha(self.alpha)

    def __str__(self) -> str:
        if self.reason == TAKEN_AS_IT_IS:
            head = f"A policy of your own for alpha={self.alpha:g}, scored on {self.n_scored} rows {_DEVELOPED}:"
            return "\n".join([head, self._line(self.chosen[0])])
        head = (
            f"Policy for alpha={self.alpha:g}, caution {self.caution:g}, scored on {self.n_scored} rows that no rule "
            "had seen:"
        )
        return "\n".join([head, *(self._line(entry) for entry in self.chosen)])

    def __repr__(self) -> str:
        rules = ", ".join(f"{entry.rule} ({entry.share:.0%})" for entry in self.chosen)
        return f"<PolicyReport: {rules}; scored on {self.n_scored} rows>"

    def to_frame(self) -> Any:
        """One row a rule (pandas): how it was scored, and its weight in the policy."""
        names = [field.name for field in fields(Entry)]
        return as_frame({name: [getattr(entry, name) for entry in self.entries] for name in names}, "pandas")

    def _repr_html_(self) -> str:
        """Why this policy, and the rules that it is made of."""
        return as_html(self.why(), self.to_frame().query("share > 0").sort_values("share", ascending=False))

    def _line(self, entry: Entry) -> str:
        return f"  {entry.rule}: bound {entry.bound:.4g}, cost {entry.cost:.4g}, share {entry.share:.0%}".replace(
            "%", " %"
        )

    @property
    def chosen(self) -> tuple[Entry, ...]:
        """The rules of which the policy is the mean, the heaviest first."""
        return tuple(sorted((entry for entry in self.entries if entry.share), key=lambda entry: -entry.share))

    def why(self) -> str:
        """Why this policy, in words."""
        first, simple = self.chosen[0], self.entries[0]
        if self.reason == TAKEN_AS_IT_IS:
            return (
                f"The decision of {first.rule} {self.reason}. On {self.n_scored} rows {_DEVELOPED} it has a mean cost "
                f"of {first.cost:.4g}, and calibration there would give a mean bound of {first.bound:.4g}."
            )
        is_other = first != simple and bool(np.isfinite(simple.bound))
        simplest = f' ("{simple.rule}": {simple.bound:.4g} and {simple.cost:.4g})' if is_other else ""
        words = [
            f'"{first.rule}" {self.reason} among {len(self.entries)} policies: mean bound {first.bound:.4g}, mean cost '
            f"{first.cost:.4g}{simplest}.",
            f"The score weighs the bound by {self.caution:g} and the mean cost by {1 - self.caution:g}; a more complex "
            "policy must win by a penalty.",
        ]
        if len(self.chosen) > 1:
            others = ", ".join(f'"{entry.rule}" ({entry.share:.0%})'.replace("%", " %") for entry in self.chosen[1:])
            words.append(f"The decision is a weighted mean with {others}.")
        return " ".join(words)

    def frontier(self, n: int = 11) -> list[dict[str, Any]]:
        """Scored bound and cost of the rule that is best at each of n cautions from 0 to 1, without complexity
        penalties.

        They are scored on development rows, never calibrated: choose a caution by them, then fit with it.
        """
        n, rows = check_count(n, "n", minimum=2), []
        for caution in np.linspace(0, 1, n).tolist():
            # However little the bound counts, a policy without one is none.
            entries = [entry for entry in self.entries if np.isfinite(entry.bound)] or self.entries
            best = entries[int(np.argmin([caution * e.bound + (1 - caution) * e.cost for e in entries]))]
            rows.append({"caution": round(caution, 12), "rule": best.rule, "bound": best.bound, "cost": best.cost})
        return rows
