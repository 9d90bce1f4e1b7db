"""Sensitivity, theory and the first figure: what they measure is what they say, and what they write is whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from polyhedge.learners import Samples, Scenario
from polyhedge.robust import decide
from polyhedge_study.finite_population import TheorySettings, hard_context, population
from polyhedge_study.methods import METHODS
from polyhedge_study.motivation import make_motivation, write_motivation
from polyhedge_study.sensitivity import (
    SWEEPS,
    SensitivityJob,
    SensitivityRow,
    SensitivitySettings,
    run_sensitivity,
    sensitivity_jobs,
)
from polyhedge_study.sensitivity_report import sensitivity_grid
from polyhedge_study.theory import density_at_quantile, fitted_slope, gap_bound, vc_dimension
from polyhedge_study.theory_report import TheoryRun
from polyhedge_study.theory_runs import GAP_SIZES, REUSE, run_coverage, run_gap, run_reuse
from polyhedge_study.tidy import read_rows
from shared import reproduce

SMALL = SensitivitySettings(n_train=150, n_pooled=120, n_test=50)
POOL = TheorySettings(pool=3000)


# --- sensitivity ------------------------------------------------------------------------------------------


def test_sweeps_are_those_of_the_papers_figure() -> None:
    jobs = sensitivity_jobs(seeds=2)
    assert len(set(jobs)) == len(jobs)
    assert {job.sweep for job in jobs} == set(SWEEPS)
    for job in jobs:
        assert job.n_facets >= job.n_outcomes + 1
        if job.sweep == "d, K = 4d":
            assert job.n_facets == 4 * job.n_outcomes
    assert {job.n_facets for job in jobs if job.sweep == "n / (n + m)"} == {4}
    assert {job.method for job in jobs} == {"one-sided-box", "grid", "scenario", "pinball", "descent", "polyhedge"}


@pytest.fixture(scope="module")
def sensitive(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[SensitivityRow], Path]:
    folder = tmp_path_factory.mktemp("sensitivity")
    jobs = [
        SensitivityJob(sweep, value, key, seed)
        for seed in range(2)
        for sweep, value, key in (
            ("d, K = 8", 2.0, "one-sided-box"),
            ("d, K = 8", 3.0, "one-sided-box"),
            ("n / (n + m)", 0.5, "scenario"),
            ("n / (n + m)", 0.05, "scenario"),
        )
    ]
    return run_sensitivity(jobs, folder, settings=SMALL), folder


def test_sensitivity_is_saved_and_a_split_that_is_too_small_is_reported(sensitive) -> None:
    rows, folder = sensitive
    assert read_rows(folder / "sensitivity.csv", SensitivityRow)[0] == rows[0]
    failed = [row for row in rows if row.status == "failed"]
    assert {row.value for row in failed} == {0.05}
    assert all("needs at least 9 learning samples, got 6" in row.detail for row in failed)
    assert f"Failed: {METHODS['scenario'].name}, 0.05: ValueError" in sensitivity_grid(rows, "n / (n + m)").note
    record = json.loads((folder / "sensitivity.json").read_text(encoding="utf-8"))
    assert record["command"] == "polyhedge reproduce sensitivity --task linear --seeds 2"


# --- theory -----------------------------------------------------------------------------------------------


def test_bound_falls_with_the_theorems_rates() -> None:
    constants = {"sensitivity": 1.3, "density": 0.7, "dimension": 5.0}
    sizes = np.array([10_000, 40_000, 160_000])
    bounds = [gap_bound(int(n), int(n), **constants) for n in sizes]
    assert fitted_slope(sizes, [bound.calibration for bound in bounds])[0] == pytest.approx(-0.5)
    logs = [
        bound.learning / np.sqrt(5 * np.log(np.e * n / 5) + np.log(160)) for n, bound in zip(sizes, bounds, strict=True)
    ]
    assert fitted_slope(sizes, logs)[0] == pytest.approx(-0.5)
    assert gap_bound(10, 10, **constants, error=0.25).total == pytest.approx(
        gap_bound(10, 10, **constants).total + 0.25
    )


def test_vc_bound_is_above_the_dimension_of_half_spaces_and_grows() -> None:
    assert vc_dimension(2, 1) >= 3
    assert vc_dimension(2, 4) < vc_dimension(2, 5) < vc_dimension(3, 5)


def test_density_is_that_of_the_normal_law() -> None:
    scores = np.random.default_rng(0).standard_normal(400_000)
    assert density_at_quantile(scores, 0.9) == pytest.approx(0.1755, rel=0.03)


def test_true_radius_covers_its_share_of_the_population_and_no_smaller_one_does() -> None:
    world = population(2, POOL.pool)
    shape = Scenario().learn(Samples(*world.draw(30, np.random.default_rng(0)), world.problem, 0.1)).set
    radius = world.radius(shape, 0.1)
    assert world.coverage(shape, radius) >= 0.9
    assert world.coverage(shape, radius - 1e-9) < 0.9


def test_no_set_with_its_true_radius_costs_less_than_the_oracle() -> None:
    world = population(2, POOL.pool)
    center, best = hard_context(POOL)
    rng = np.random.default_rng(1)
    costs = []
    for n in (20, 200, 2000):
        shape = Scenario().learn(Samples(world.draw(n, rng)[0], center, world.problem, POOL.alpha)).set
        costs.append(decide(world.problem, shape, world.radius(shape, POOL.alpha), center).cost_bound[0])
    assert min(costs) >= best - 1e-4
    assert costs[-1] == pytest.approx(best, abs=0.02)


@pytest.fixture(scope="module")
def theory(tmp_path_factory: pytest.TempPathFactory) -> tuple[TheoryRun, Path]:
    folder = tmp_path_factory.mktemp("theory")
    patch = pytest.MonkeyPatch()
    for name in ("n", "K", "d"):
        patch.setitem(REUSE, name, REUSE[name][:2])
    patch.setattr("polyhedge_study.theory_runs.GAP_SIZES", GAP_SIZES[:3])
    coverage = run_coverage(4, folder, settings=POOL)
    done = TheoryRun(POOL, coverage, run_reuse(2, folder, settings=POOL), run_gap(2, folder, settings=POOL))
    patch.undo()
    return done, folder


def test_gap_is_the_sum_of_its_parts_and_learning_never_beats_the_oracle(theory) -> None:
    done, _ = theory
    assert len(done.gap) == 6
    for row in done.gap:
        assert row.gap == pytest.approx(row.learning_gap + row.calibration_gap)
        assert row.learning_gap >= -1e-4


@pytest.mark.slow
def test_reused_samples_cover_less_than_promised_where_n_is_small_or_d_large(tmp_path) -> None:
    """Lemma 4, measured; the seeds are fixed, so a run is deterministic."""
    rows = run_reuse(30, tmp_path, settings=TheorySettings(pool=20_000))
    for sweep, value in (("n", 20), ("n", 80), ("K", 12), ("d", 5)):
        own = [row for row in rows if (row.sweep, row.value) == (sweep, value)]
        reused, fresh = np.array([row.reused for row in own]), np.array([row.recalibrated for row in own])
        error = reused.std(ddof=1) / np.sqrt(len(reused))
        assert reused.mean() < 0.9 - 2.5 * error
        assert fresh.mean() > 0.9 - 3.5 * fresh.std(ddof=1) / np.sqrt(len(fresh))


# --- the first figure -------------------------------------------------------------------------------------


def test_sets_of_the_first_figure_cover_alike_and_the_learned_one_costs_least(tmp_path) -> None:
    found = make_motivation()
    assert len({result.coverage for result in found.results}) == 1
    *plain, learned = found.results
    assert learned.worst_case_cost < min(result.worst_case_cost for result in plain) - 0.5
    for result in found.results:
        assert np.dot(result.decision, result.worst_outcome) == pytest.approx(result.worst_case_cost, abs=1e-6)
    write_motivation(found, tmp_path / "motivation.json")
    assert json.loads((tmp_path / "motivation.json").read_text(encoding="utf-8"))[2]["name"] == learned.name


def test_command_without_matplotlib_writes_numbers_and_says_how_to_get_pictures(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    result = reproduce("motivation", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "pip install 'polyhedge[plot]'" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["motivation.json"]
