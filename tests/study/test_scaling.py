"""The scaling experiment: what it writes, and that the exact methods agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polyhedge_study.jobs import Progress
from polyhedge_study.paper import paper_table1
from polyhedge_study.scaling import ScalingRun, run_scaling
from polyhedge_study.scaling_methods import METHODS, ScalingSettings
from polyhedge_study.scaling_report import summaries
from polyhedge_study.scaling_rows import ScalingRow

AGGREGATED = "MIQCP + binaries + rows (SCIP)"
TINY = ScalingSettings(
    sizes=(12, 20),
    seeds=1,
    n_train=200,
    n_calibrate=60,
    n_test=50,
    exact_limit=20.0,
    printed_limit=0.15,
    shared_limit=0.15,
    heuristic_limit=0.15,
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[ScalingRun, Path, list[Progress]]:
    folder, seen = tmp_path_factory.mktemp("scaling") / "new" / "folder", []
    return run_scaling(TINY, folder, report=seen.append), folder, seen


def rows_of(run: ScalingRun, method: str, mode: str | None = None) -> list[ScalingRow]:
    return [row for row in run.rows if row.method == method and mode in (None, row.mode)]


# --- the experiment ---------------------------------------------------------------------------------------


def test_every_usable_method_has_one_row_for_each_mode_size_and_seed(tiny):
    run, _, _ = tiny
    expected = {
        (mode, n, method.name, 0)
        for method in METHODS
        if not method.missing()
        for mode in method.limit
        for n in (12, 20)
    }
    assert {row.job for row in run.rows} == expected
    assert len(run.rows) == len(expected)
    assert not any(row.status == "FAILED" for row in run.rows)


def test_scenario_certifies_every_run(tiny):
    run, _, _ = tiny
    assert all(row.certified for row in rows_of(run, "Scenario"))
    assert len(rows_of(run, "Scenario")) == 4


def test_exact_methods_agree_on_the_single_context(tiny):
    run, _, _ = tiny
    exact = {row.n: row.objective for row in rows_of(run, "Scenario", "single")}
    others = [*rows_of(run, "CCG"), *rows_of(run, AGGREGATED, "single")]
    assert {row.method for row in others} >= {"CCG"}
    for row in others:
        assert row.certified
        assert row.objective == pytest.approx(exact[row.n], rel=2e-4)


def test_no_method_is_below_the_certified_bound(tiny):
    run, _, _ = tiny
    bounds = {(row.mode, row.n): row.lower_bound for row in rows_of(run, "Scenario")}
    assert all(row.objective >= bounds[row.mode, row.n] - 1e-9 for row in run.rows)
    assert all(s.excess >= -1e-6 for s in summaries(run.rows))


def test_methods_that_plan_for_a_part_of_the_contexts_certify_nothing(tiny):
    run, _, _ = tiny
    for row in rows_of(run, AGGREGATED, "shared"):
        assert row.planned_contexts < row.n_contexts
        assert not row.certified
        assert row.lower_bound == -np.inf


def test_no_run_begins_once_the_budget_is_over(tmp_path):
    seen = []
    run = run_scaling(replace(TINY, budget=1.0 + 1e-6), tmp_path, methods=METHODS[:1], report=seen.append)
    assert len(run.rows) == 1
    assert seen[-1] == Progress(1, 4, "", 0.0)
    assert run.left_out == ("3 runs did not fit into 1 s. Run again to add them.",)
    assert len(run_scaling(TINY, tmp_path, methods=METHODS[:1]).rows) == 4


# --- the paper's table, tables and pictures ---------------------------------------------------------------


def test_paper_table_is_read_and_consistent_with_its_text():
    rows = paper_table1()
    assert [row.n for row in rows] == [20, 40, 80, 160, 300, 600]
    assert sum(row.certified for row in rows) == 26
    assert all(row.time_ratio == pytest.approx(row.miqcp_seconds / row.pinball_seconds, abs=0.02) for row in rows)
    assert max(row.gap_percent for row in rows) < 10


# --- one context ------------------------------------------------------------------------------------------
