"""The bench command: every tool has a row, values are compared, files are whole. No time is asserted."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import polyhedge as ph
from polyhedge.robust import decide
from polyhedge_study.speed import peers as peers_module
from polyhedge_study.speed.cases import PARAMETERS, PRODUCT, REGIMES, WARM, Regime, draw
from polyhedge_study.speed.compare import WaitRow, WaitsRun, _measured, _Worker, save_waits, waits_grids
from polyhedge_study.speed.decisions import (
    OURS,
    DecisionsRun,
    DecisionsSettings,
    check_values,
    measure_plan,
    run_decisions,
)
from polyhedge_study.speed.fits import FIT_CASES, FitCase, measure_fits, save_fits
from polyhedge_study.speed.growth import exponent
from polyhedge_study.speed.learning import METHODS, LearningSettings, run_learning
from polyhedge_study.speed.peers import Peer, PeersSettings, run_peers
from polyhedge_study.speed.policies import PLAN_REGIMES, draw_plan
from polyhedge_study.speed.report import decisions_grids, draw_growth, peers_grids, save
from polyhedge_study.speed.rivals import RIVALS, Rival

TINY = DecisionsSettings(
    regimes=("d2-K4",),
    most_contexts=60,
    rounds=1,
    budget=0.01,
    checked=20,
    sizes=(20, 40),
    outcomes=(2, 3),
    facets=(10, 12),
)
LINEAR_ONLY = ("scipy linprog", WARM)
SMALL = [replace(regime, n_contexts=40) for regime in REGIMES]


@pytest.fixture(scope="module")
def tiny() -> DecisionsRun:
    return run_decisions(TINY, {"packages": {"polyhedge": "0"}})


# --- decisions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("regime", SMALL, ids=lambda regime: regime.name)
def test_every_rival_solves_the_same_program_as_decide(regime: Regime) -> None:
    instance = draw(regime, seed=1)
    expected = decide(instance.problem, instance.shape, instance.radius, instance.centers).cost_bound[:3]
    assert check_values(instance, expected, 3, seed=0).contexts == 3
    for rival in RIVALS:
        if regime.cost == "quadratic" and rival.name in LINEAR_ONLY:
            with pytest.raises(ValueError, match=r"quadratic costs|linear programs only"):
                rival.prepare(instance)
            continue
        solve = rival.prepare(instance)
        # Interior-point methods stop at 1e-8 of the largest numbers they meet.
        assert [solve(center) for center in instance.centers[:3]] == pytest.approx(expected, abs=5e-7), rival.name


def test_a_wrong_value_is_detected_and_so_is_a_missing_one() -> None:
    instance = draw(SMALL[0], seed=0)
    values = decide(instance.problem, instance.shape, instance.radius, instance.centers).cost_bound
    assert check_values(instance, values, 40, seed=0).passed
    wrong = values.copy()
    wrong[7] += 2e-7
    check = check_values(instance, wrong, 40, seed=0)
    assert not check.passed
    assert check.difference == pytest.approx(2e-7, rel=1e-3)
    wrong[7] = np.nan
    assert not check_values(instance, wrong, 40, seed=0).passed


def test_a_run_has_a_row_for_every_tool_and_a_point_for_every_size(tiny: DecisionsRun) -> None:
    assert [row.tool for row in tiny.rows] == [OURS, *(rival.name for rival in RIVALS), PRODUCT]
    assert all(row.seconds > 0 and not row.reason for row in tiny.rows)
    by_tool = {row.tool: row for row in tiny.rows}
    assert by_tool[PARAMETERS].target == 5000
    assert by_tool[PRODUCT].target == 1 / 20
    assert by_tool[PARAMETERS].difference < 1e-7
    assert tiny.checks[0].passed
    assert tiny.checks[0].distinct >= 2
    assert {(p.parameter, p.size) for p in tiny.growth} == {
        *(("N", n) for n in (20, 40)),
        *(("d", d) for d in (2, 3)),
        *(("K", K) for K in (10, 12)),
    }


def test_a_rival_that_fails_is_a_row_with_its_reason() -> None:
    def unprepared(instance: Any) -> Any:
        raise ImportError("no such solver")

    def breaks(instance: Any) -> Any:
        def solve(center: Any) -> float:
            raise RuntimeError("numerical trouble")

        return solve

    settings = replace(TINY, sizes=(20,), outcomes=(), facets=())
    run = run_decisions(settings, {}, rivals=[Rival("absent", unprepared), Rival("broken", breaks)])
    reasons = {row.tool: row.reason for row in run.rows}
    assert reasons["absent"] == "no such solver"
    assert reasons["broken"] == "numerical trouble"
    assert "numerical trouble" in decisions_grids(run)[0].markdown()


@pytest.mark.parametrize("regime", PLAN_REGIMES, ids=lambda regime: regime.name)
def test_plans_are_timed_in_the_same_table_and_solve_the_rivals_program(regime: Regime) -> None:
    small = replace(regime, n_contexts=12, K=60)
    rows, check = measure_plan(draw_plan(small, seed=1), TINY)
    assert [row.tool for row in rows] == [OURS, PARAMETERS]
    assert rows[1].target == regime.targets[PARAMETERS]
    assert check.passed, check
    assert rows[1].timed >= 3
    # A policy minimises the risk as its cuts know it; with few outcomes they know it well.
    assert rows[1].difference < (1e-6 if regime.cost == "newsvendor" else 1e-3 if regime.d == 2 else 0.5)


def test_an_unknown_regime_is_refused() -> None:
    with pytest.raises(ValueError, match=r"There is no regime d3\. The regimes are d2-K4"):
        replace(TINY, regimes=("d3",))
    with pytest.raises(ValueError, match="K must be at least 6 for d = 5"):
        draw(Regime("few", "linear", 5, 5, 10), seed=0)


# --- growth and files -------------------------------------------------------------------------------------


@given(st.floats(-2, 3), st.floats(1e-6, 1e3))
def test_the_exponent_of_a_power_law_is_found(power: float, factor: float) -> None:
    sizes = np.array([10.0, 30.0, 100.0])
    assert exponent(sizes, factor * sizes**power) == pytest.approx(power, abs=1e-9)


@pytest.mark.needs("matplotlib")
def test_results_are_written_whole_as_markdown_csv_json_and_pictures(tiny: DecisionsRun, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    paths = save(folder, "bench", "Decisions", tiny, decisions_grids(tiny))
    draw_growth(tiny.growth, "Growth", [folder / "bench.png", folder / "bench.svg"])
    names = ["bench.csv", "bench.json", "bench.md", "bench.png", "bench.svg", "bench_checks.csv", "bench_growth.csv"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert {path.name for path in paths} == set(names) - {"bench.png", "bench.svg"}
    with (folder / "bench.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["ratio"]) for row in rows] == [row.ratio for row in tiny.rows]
    assert json.loads((folder / "bench.json").read_text())["settings"]["checked"] == 20
    text = (folder / "bench.md").read_text()
    for part in ("CVXPY with parameters", ">= 5000", ">= 1/20", "within 1e-7", "exponent", '"seed": 0'):
        assert part in text
    assert (folder / "bench.svg").read_text().lstrip().startswith("<?xml")


# --- learning ---------------------------------------------------------------------------------------------


def test_exact_ways_to_learn_for_one_context_agree() -> None:
    settings = LearningSettings(sizes=(30,), outcomes=(), facets=(), limit=60.0)
    exact = [method for method in METHODS if method.name in ("Scenario", "SciPy milp")]
    run = run_learning(settings, {}, methods=exact)
    found = {row.method: row for row in run.rows if row.mode == "single"}
    assert found["SciPy milp"].objective == pytest.approx(found["Scenario"].objective, abs=1e-6)
    assert not found["SciPy milp"].reason


# --- peers ------------------------------------------------------------------------------------------------

SCRIPT = """
import json, sys
jobs = json.load(open(sys.argv[1]))
# The best vertex of the simplex against an l_inf ball: what the cost (c + u)'z comes to.
answers = [
    {{"values": [min(c + f for c, f in zip(job["c"], center)) + job["radius"] + {error}
                 for center in job["centers"][:5]], "seconds": 0.5}}
    if job["set"] == "linf" else {{"reason": "knows no such set"}}
    for job in jobs
]
json.dump({{"version": "1.0", "answers": answers}}, open(sys.argv[2], "w"))
"""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A peer that is already there: this Python, and a script of a few lines in place of the package's."""

    def make(code: str) -> Peer:
        (tmp_path / "peer.txt").write_text(code)
        monkeypatch.setattr(peers_module.resources, "files", lambda package: tmp_path)
        monkeypatch.setattr(peers_module, "install", lambda peer, place, limit: (Path(sys.executable), ""))
        return Peer("stand-in", (), "peer.txt")

    return make


TWO_SETS = PeersSettings(outcomes=(3,), sets=("linf", "l2"), n_contexts=8, budget=0.1)


def test_values_of_a_peer_are_compared_with_ours(installed: Any, tmp_path: Path) -> None:
    right = run_peers(TWO_SETS, {}, tmp_path, peers=[installed(SCRIPT.format(error=0.0))])
    assert [(row.set, row.timed, row.equal, row.reason) for row in right.rows] == [
        ("linf", 5, True, ""),
        ("l2", 0, None, "knows no such set"),
    ]
    assert right.rows[0].seconds == 0.5
    wrong = run_peers(TWO_SETS, {}, tmp_path, peers=[installed(SCRIPT.format(error=1e-4))])
    assert wrong.rows[0].equal is False
    assert "NO" in peers_grids(wrong)[0].markdown()


def test_a_peer_that_cannot_be_installed_is_reported_with_the_reason(tmp_path: Path) -> None:
    absent = Peer("absent", ("./no-such-package-here",), "peer_rsome.txt")
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    run = run_peers(replace(TWO_SETS, sets=("linf",)), {}, environment, peers=[absent])
    assert run.rows[0].reason.startswith("could not be installed: ")
    assert "pip" in run.rows[0].reason


@pytest.mark.slow
def test_a_real_peer_has_the_same_optimal_values_or_says_why_it_could_not_be_had(tmp_path: Path) -> None:
    rsome = peers_module.PEERS[1]
    run = run_peers(PeersSettings(outcomes=(2, 4), n_contexts=20, budget=1.0), {}, tmp_path / "env", peers=[rsome])
    assert len(run.rows) == 8
    assert all(row.equal or row.reason.startswith("could not be installed: ") for row in run.rows)


def test_scripts_of_peers_are_text_that_compiles_and_that_no_module_imports() -> None:
    folder = resources.files("polyhedge_study.speed")
    for peer in peers_module.PEERS:
        compile(folder.joinpath(peer.script).read_text(encoding="utf-8"), peer.script, "exec")
    code = "import polyhedge.app.cli, sys; print({'rsome', 'robbuffet'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- command line -----------------------------------------------------------------------------------------


# --- what a user waits for --------------------------------------------------------------------------------


def test_a_case_is_measured_in_a_process_of_its_own_with_the_package_it_is_given(tmp_path: Path) -> None:
    source = Path(ph.__file__).resolve().parents[1]
    worker = _Worker(source, tmp_path)
    answer = worker.ask("import polyhedge")
    worker.close()
    assert answer["seconds"] > 0
    assert worker.process.returncode == 0


def test_waits_are_shown_as_ratios_with_their_growth_and_written_whole(tmp_path: Path) -> None:
    rows = (
        WaitRow("fit", "fit this", 2.0, 8.0, (3.5, 4.5), 1e-12),
        *(WaitRow("growth", f"n = {n}", n / 100, n / 50, parameter="n", size=n) for n in (100, 1000)),
    )
    run = WaitsRun("0123456", 5, {"cores": 2}, rows)
    table, growth = waits_grids(run)
    assert table.rows[0][3] == "4.00"
    assert [row[-1] for row in growth.rows] == ["1.00", "1.00"]
    text, figures = save_waits(tmp_path, "bench_compare", run)
    assert "fit this" in text.read_text()
    assert json.loads(figures.read_text())["rows"][0]["before"] == 8.0


def test_measured_with_both_packages_the_older_one_is_before() -> None:
    answers = {"old": [4.0, 2.0, 6.0], "new": [1.0, 1.0, 2.0]}

    class Recorded:
        def __init__(self, name: str) -> None:
            self.seconds = iter([0.0, *answers[name]])

        def ask(self, case: str) -> dict[str, Any]:
            return {"seconds": next(self.seconds), "numbers": [1.0]}

    row = _measured(Recorded("new"), Recorded("old"), 3, WaitRow("latency", "case", 0.0))  # type: ignore[arg-type]
    assert (row.before, row.seconds, row.ratio, row.spread) == (4.0, 1.0, 4.0, (2.0, 4.0))


# --- fits beside scripts by hand --------------------------------------------------------------------------


@pytest.mark.parametrize("case", FIT_CASES.values(), ids=lambda case: case.name)
def test_a_script_by_hand_knows_the_cost_and_the_best_decision_of_its_problem(case: FitCase) -> None:
    problem, script = case.problem(), case.script()
    _, Y, theta = case.rows(6)
    values = {problem.parameters[0].name: theta} if problem.parameters else None
    best = decide(problem, ph.sets.Box(np.ones(problem.n_outcomes)), 0.0, Y, parameters=values)
    z = np.array([script.solve(u[None], t) for u, t in zip(Y, theta, strict=True)])
    costs = script.cost(z, Y, theta)
    spread = max(np.abs(best.cost_bound).max(), 1.0)
    assert np.allclose(costs, best.cost_bound, atol=1e-6 * spread)
    assert np.allclose(costs, problem.evaluate(z, Y, theta[:, None] if values else None), atol=1e-6 * spread)


def test_a_sample_average_by_hand_costs_no_more_on_average_than_the_decision_at_any_scenario() -> None:
    case = FIT_CASES["budgets-5"]
    script, (_, scenarios, theta) = case.script(), case.rows(8)
    mean = [script.cost(z, scenarios, theta).mean() for z in map(script.solve, [scenarios, *scenarios[:, None]], theta)]
    assert mean[0] <= min(mean[1:]) + 1e-9


def test_fits_by_default_and_by_hand_have_a_row_each_and_keep_their_promise(tmp_path: Path) -> None:
    small = replace(FIT_CASES["newsvendor-4-n500"], n=160, n_fresh=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FIT_CASES, "small", small)
        run = measure_fits({"cores": 2}, only=["small"], repeats=1)
    assert [row.method for row in run.rows] == ["default fit", "prediction + margin", "sample average + margin"]
    assert all(row.seconds > 0 and row.held > 0.7 and row.cost < row.bound for row in run.rows)
    text, figures = save_fits(tmp_path, run)
    assert "sample average" in text.read_text()
    assert json.loads(figures.read_text())["rows"][0]["ratio"] == 1.0
