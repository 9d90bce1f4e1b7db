"""The study of decisions with recourse: its jobs, its table, and the scripts of peers."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest

from polyhedge_study.recourse import METHODS, RecourseJob, RecourseRow, recourse_grid, recourse_jobs
from polyhedge_study.speed.recourse_peers import PEERS, RuleRow, rules_grid


def row(method: str, seed: int, bound: float) -> RecourseRow:
    return RecourseRow("solar", method, seed, "done", bound, bound, bound / 2, 0.9, 1.0, 0.1, 50)


def test_jobs_are_every_method_on_every_split_of_a_case() -> None:
    jobs = recourse_jobs(["solar"], seeds=2)
    assert jobs == [RecourseJob("solar", method, seed) for method in METHODS for seed in (0, 1)]
    with pytest.raises(ValueError, match="case must be one of bakeries, solar, dishes; got 'wind'"):
        recourse_jobs(["wind"])


def test_savings_are_paired_over_splits_and_in_per_cent_of_the_rival() -> None:
    rows = [row("recourse", 0, 80.0), row("recourse", 1, 90.0), row("one-stage", 0, 100.0), row("one-stage", 1, 120.0)]
    saved = recourse_grid(rows).rows[1][6]
    each = 100 * np.array([20.0, 30.0]) / 110.0
    assert saved == f"{each.mean():+.1f} ± {each.std(ddof=1) / np.sqrt(2):.1f}"


def test_table_of_rules_has_the_reason_where_a_peer_has_no_answer() -> None:
    grid = rules_grid(
        [RuleRow("ours", 10.0, 0.1), RuleRow("rule", 15.0, 0.2), RuleRow("other", np.nan, np.nan, "late")]
    )
    assert [line[1:] for line in grid.rows] == [("10", "+0.0", "0.1"), ("15", "+50.0", "0.2"), ("late", "", "")]


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_scripts_of_peers_are_text_that_compiles(peer) -> None:
    text = resources.files("polyhedge_study.speed").joinpath(peer.script).read_text(encoding="utf-8")
    compile(text, peer.script, "exec")
