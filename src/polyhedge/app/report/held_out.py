"""Held-out rows on a model's page: promise and observation in short, costs, and a few rows with their decisions."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhedge._support import warnings
from polyhedge._support.text import amount, with_unit
from polyhedge.app.report.page import Block, Card, Cards, Code, Missing, Table, Text, frame_table
from polyhedge.app.report.pictures import bound_picture
from polyhedge.app.rows import Observed, TableRows
from polyhedge.diagnostics import is_about
from polyhedge.estimator import RobustDecider
from polyhedge.evaluation import estimate
from polyhedge.model import held_in_words

__all__ = ["changed_rows", "decided_rows", "in_short", "observed_blocks", "own_warnings"]

HOW_TO_OBSERVE = "polyhedge report MODEL HELD_OUT.csv"
# What a planner changes: more than a fifth is another decision.
_CHANGES = (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2)
_ROWS, _FEATURES, _DECISIONS = 5, 4, 6
"""What fits the width of a page; the table says that there are more."""


def observed_blocks(decider: RobustDecider, seen: Observed) -> list[Block]:
    """What `evaluate` prints, a table of the three ways to decide, and the bounds against realised costs."""
    import pandas as pd

    level, unit, rows = 100 * seen.evaluation.promised, seen.evaluation.cost_unit, seen.measures
    costs = {
        "Robust decision": rows.realised,
        "Trusting the prediction": rows.realised - rows.over_nominal,
        "Knowing the outcome": rows.realised - rows.regret,
    }
    finite = {name: cost[np.isfinite(cost)] for name, cost in costs.items()}
    frame = pd.DataFrame(
        {
            "how it is decided": list(costs),
            with_unit("mean cost", unit): [estimate(cost) for cost in costs.values()],
            with_unit("regret", unit): [estimate(cost - costs["Knowing the outcome"]) for cost in costs.values()],
            with_unit(f"cost on a bad day ({level:.3g} % quantile)", unit): [
                np.percentile(cost, level) if len(cost) else np.nan for cost in finite.values()
            ],
            with_unit("highest cost", unit): [cost.max(initial=-np.inf) for cost in finite.values()],
        },
        dtype=object,
    )
    note = (
        "± standard error. Regret: mean cost above what knowing the outcome would have cost. What a robust decision "
        "buys is a bound known before, not a lower mean."
    )
    blocks: list[Block] = [Code("\n".join(seen.evaluation.lines()))]
    if seen.thinned is not None:
        kept, one = "lay inside" if has_set(decider) else "kept to their bound", seen.thinned
        blocks.append(
            Text(f"Rows of one group are near-copies: of one row of each of {one.n} groups, {percent(one)} {kept}.")
        )
    return [*blocks, frame_table("Realised cost on held-out rows", frame, note), *bound_picture(rows)]


# In short


def in_short(decider: RobustDecider, seen: Observed | None) -> list[Block]:
    """Cards with the promise and with what held-out rows say of it, and a verdict in words."""
    inside = "of outcomes inside the set, and " if has_set(decider) else ""
    kept = " with all constraints kept" if decider.problem_.constraint_names else ""
    cards = [Card("Promised", f"≥ {percent(1 - decider.alpha_)}", f"{inside}of costs below their bound{kept}")]
    if seen is None:
        return [Cards(cards), Missing("Nothing was observed yet: no held-out rows were given.", HOW_TO_OBSERVE)]
    evaluation, evidence = seen.evaluation, seen.coverage
    unit, held = evaluation.cost_unit, percent(evaluation.promise_held)
    alone = "" if seen.thinned is None else f" by one row of each of {evidence.n} groups"
    interval = f"95 % interval {percent(evidence.low)} to {percent(evidence.high)}{alone}"
    interval = f"of {evaluation.coverage.n} held-out rows; {interval}"
    what = "Bound held" if evaluation.constraints_held is None else "Bound and constraints held"
    if has_set(decider):
        cards.append(Card("Observed inside", percent(evaluation.coverage), interval))
        cards.append(Card(what, held, "of these rows"))
    else:
        cards.append(Card(what, held, interval))
    difference = evaluation.over_nominal
    against = "the same as trusting the prediction"
    if difference.value != 0 or difference.standard_error != 0:
        size = f"{abs(difference.value):.4g} {difference.error_text}".rstrip()
        against = f"{size} {'more' if difference.value >= 0 else 'less'} than trusting the prediction"
    costs = (
        ("Mean cost bound", evaluation.worst_case_cost, "known before the outcome"),
        ("Mean realised cost", evaluation.realised_cost, against),
    )
    cards += [Card(name, amount(f"{cost.value:.4g}", unit), more) for name, cost, more in costs]
    return [Cards(cards), Text(_verdict(decider, seen))]


def _verdict(decider: RobustDecider, seen: Observed) -> str:
    coverage, promised = seen.coverage, seen.evaluation.promised
    if not coverage.n:
        return "Nothing is promised for any of the held-out rows: none has a finite bound."
    # The exact distribution knows that the radius came from few rows too; an interval of these rows does not.
    is_questioned = any(is_about(text, warnings.Code.COVERAGE) for text in seen.evaluation.diagnostics)
    is_low = is_questioned if decider.model_.radii.is_marginal else coverage.high < promised
    if is_low and coverage.value < promised:
        return f"Observed coverage lies below the promised {percent(promised)} by more than chance explains."
    if coverage.low > promised:
        return f"Observed coverage lies above the promised {percent(promised)}: the bounds hold, and could be lower."
    rows = "rows" if seen.thinned is None else "groups"
    return f"Observed coverage agrees with the promised {percent(promised)}, as far as {coverage.n} {rows} can tell."


def own_warnings(seen: Observed) -> list[str]:
    """Diagnostics of held-out rows, and rows for which nothing is promised or decided."""
    evaluation = seen.evaluation
    found: list[str] = list(evaluation.diagnostics)
    if evaluation.without_bound > 0:
        found.append(
            f"{percent(evaluation.without_bound)} of {evaluation.without_bound.n} held-out rows have no finite bound: "
            "nothing is promised for them, and they are left out of the shares of what held. Where they count as held, "
            f"{percent(evaluation.not_missed)} of all rows did."
        )
    if evaluation.n_unpromised:
        found.append(f"{evaluation.n_unpromised} held-out rows have a bound that is not promised for their kind.")
    if evaluation.n_undecided:
        found.append(f"{evaluation.n_undecided} held-out rows have no decision. {seen.measures.complaint}")
    return found


def has_set(decider: RobustDecider) -> bool:
    """Whether outcomes are promised to lie in a set; otherwise the cost of the decision is."""
    return decider.model_.guarantee == "outcome"


def percent(share: float) -> str:
    """A share as text, without a digit that says nothing."""
    return "unknown" if share != share else f"{100 * float(share):.1f} %".replace(".0 %", " %")


def decided_rows(decider: RobustDecider, held_out: TableRows, seen: Observed) -> Table:
    """The first held-out rows: what was known, what is decided, its bound and its realised cost."""
    import pandas as pd

    n = min(_ROWS, len(held_out))
    rows, units = held_out.take(slice(n)), decider.problem_.units or {}
    decisions = decider.model_.decide(rows.X, rows.parameters, labels=rows.labels)
    names, z = decider.problem_.decision_names, decisions.z.reshape(n, -1)
    known = {name: rows.X[name].to_list() for name in list(getattr(rows.X, "columns", ()))[:_FEATURES]}
    known |= {name: value for name, value in list(rows.parameters.items())[:_FEATURES] if value.ndim == 1}
    decided = {name: z[:, k] for k, name in enumerate(names[:_DECISIONS])}
    columns = {
        "row": list(rows.X.index) if hasattr(rows.X, "index") else list(range(n)),
        **{with_unit(str(name), units.get(name)): value for name, value in known.items()},
        **{f"decided: {with_unit(name, units.get(name))}": value for name, value in decided.items()},
        with_unit("costs at most", units.get("cost")): decisions.cost_bound,
        with_unit("realised cost", units.get("cost")): seen.measures.realised[:n],
    }
    note = f"The first {n} held-out rows. Each bound is {held_in_words(decider.alpha_)}."
    if len(names) > _DECISIONS:
        note += f" {len(names) - _DECISIONS} more entries of the decision are not shown."
    return frame_table("Decisions of some rows", pd.DataFrame(columns), note, sortable=False)


def changed_rows(decider: RobustDecider, held_out: TableRows) -> list[Block]:
    """What the first held-out decisions cost at most if all of their entries are changed by some per cent."""
    import pandas as pd

    n, model = min(_ROWS, len(held_out)), decider.model_
    if model.problem.layout.size > model.problem.layout.given_size or len(model.problem.feasible.program.integer):
        return []  # a change of some per cent is no decision there
    rows = held_out.take(slice(n))
    given: Any = (rows.parameters, rows.labels)
    z = model.decide(rows.X, given[0], labels=given[1]).flat
    bounds = [model.bound(rows.X, (1 + change) * z, *given).cost_bound for change in _CHANGES]
    frame = pd.DataFrame(
        {
            "change": [f"{100 * change:+.0f} %" if change else "none" for change in _CHANGES],
            with_unit("costs at most, mean", (model.problem.units or {}).get("cost")): [
                each[np.isfinite(each)].mean() if np.isfinite(each).any() else np.nan for each in bounds
            ],
            "rows without a bound": [int((~np.isfinite(each)).sum()) for each in bounds],
        }
    )
    note = (
        f"All entries of the decisions of the first {n} held-out rows, changed by this share. The bounds hold together "
        "with that of the decision itself, at the same level. A row has none where nothing limits an outcome that "
        "would hurt the changed decision."
    )
    return [frame_table("If you change the decision", frame, note, sortable=False)]
