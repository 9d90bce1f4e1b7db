"""The study: what it writes, that it survives kills and crashes, and that its numbers do not depend on how it ran."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from polyhedge.calibration import conformal_rank
from polyhedge_study.jobs import Progress, Workers, run_jobs
from polyhedge_study.methods import GROUPS, METHODS, find_methods
from polyhedge_study.paper import METRICS, paper_tables
from polyhedge_study.study import StudyRow, StudySettings, run_study, study_jobs
from polyhedge_study.study_figure import draw_bubbles
from polyhedge_study.study_tables import short_grid, task_grid, write_tables
from polyhedge_study.summary import TableRow, holm, paired, table_rows
from polyhedge_study.tasks import TASKS
from polyhedge_study.tidy import TidyTable, read_rows
from shared import reproduce

SMALL = StudySettings(sizes=(150, 60, 60, 80))
PLAIN = ("one-sided-box", "bonferroni", "l-inf", "polyhedron")
JOBS = [*study_jobs(["linear"], [*PLAIN, "polyhedge"], seeds=3), *study_jobs(["energy"], PLAIN, seeds=3)]
COMMAND = (sys.executable, "-c", "from polyhedge.app.cli import main; main()")
TABLES = ("tables.csv", "tables.md", "tables.tex")


def numbers(rows: list[StudyRow]) -> list[StudyRow]:
    """Rows without what a clock says; NaN equals NaN."""
    return [replace(row, seconds=0.0) for row in rows]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[StudyRow], Path, list[Progress]]:
    folder, seen = tmp_path_factory.mktemp("study") / "new" / "folder", []
    return run_study(JOBS, folder, settings=SMALL, report=seen.append), folder, seen


# --- the registry and the paper's figures -----------------------------------------------------------------


def test_every_method_has_a_known_group_and_a_printed_row_if_it_names_one() -> None:
    printed = {method for _, method in paper_tables()}
    for key, method in METHODS.items():
        assert key == method.key
        assert method.group in GROUPS
        assert method.guarantee in ("exact", "at least", "none")
        assert method.calibrated_on in ("calibrate", "pooled", "")
        assert method.paper in (*printed, "")
    assert len({method.name for method in METHODS.values()}) == len(METHODS)


def test_every_printed_row_is_compared_with_one_of_ours() -> None:
    assert {method for _, method in paper_tables()} == {row.paper for row in METHODS.values() if row.paper}


def test_printed_tables_have_eleven_methods_for_each_task_and_the_papers_words_hold() -> None:
    printed = paper_tables()
    assert {task for task, _ in printed} == set(TASKS)
    assert len(printed) == 44
    for task in TASKS:
        costs = {method: row.mean["worst_case_cost"] for (own, method), row in printed.items() if own == task}
        valid = {method: cost for method, cost in costs.items() if method != "Ours (w/o recal)"}
        best = "Conformal (l_2)" if task == "newsvendor" else "Ours"
        assert min(valid, key=lambda method: valid[method]) == best
    assert all(set(row.mean) == set(row.sd) == set(METRICS) for row in printed.values())


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"method must be one of polyhedge, .*, got 'magic'"):
        find_methods(("polyhedge", "magic"))
    with pytest.raises(ValueError, match="task must be one of linear, quadratic, newsvendor, energy, got 'lasso'"):
        study_jobs(["lasso"])
    with pytest.raises(ValueError, match="seeds must be an integer of at least 1"):
        study_jobs(seeds=0)


# --- rows -------------------------------------------------------------------------------------------------


def test_every_job_has_one_row_in_order_and_the_file_has_them_all(small) -> None:
    rows, folder, _ = small
    assert [row.job for row in rows] == sorted(JOBS, key=lambda job: job.order)
    assert read_rows(folder / "study.csv", StudyRow) == rows
    assert {row.status for row in rows} == {"done"}
    assert sorted(path.name for path in folder.iterdir()) == ["study.csv", "study.json"]


def test_progress_counts_up_and_knows_the_time_left(small) -> None:
    rows, _, seen = small
    assert [progress.done for progress in seen] == list(range(len(rows) + 1))
    assert all(progress.total == len(rows) for progress in seen)
    assert all(progress.seconds_left > 0 for progress in seen[1:-1])
    assert seen[-1].seconds_left == 0


def test_finished_jobs_are_read_and_only_new_ones_run(small, tmp_path) -> None:
    rows, folder, _ = small
    for name in ("study.csv", "study.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    seen: list[Progress] = []
    again = run_study(study_jobs(["energy"], ["l-inf"], 4), tmp_path, settings=SMALL, report=seen.append)
    assert [(progress.done, progress.total) for progress in seen] == [(len(rows), len(rows) + 1), (len(rows) + 1,) * 2]
    assert [row for row in again if row.seed < 3] == rows


@pytest.mark.parametrize("cut", [1, 30, 75])
def test_row_that_a_kill_cut_short_is_made_again(small, tmp_path, cut) -> None:
    rows, folder, _ = small
    (tmp_path / "study.json").write_bytes((folder / "study.json").read_bytes())
    whole = (folder / "study.csv").read_bytes()
    (tmp_path / "study.csv").write_bytes(whole[:-cut])
    again = run_study([row.job for row in rows], tmp_path, settings=SMALL)
    assert numbers(again) == numbers(rows)
    assert read_rows(tmp_path / "study.csv", StudyRow) == again


def test_line_breaks_in_a_reason_do_not_break_the_table(tmp_path) -> None:
    row = StudyRow(
        "linear", "polyhedge", 0, "failed", *[np.inf] * 6, detail='two\nlines, and "quotes"', hull_volume=1.0
    )
    table = TidyTable(tmp_path / "study.csv", StudyRow)
    table.write([])
    table.append(row)
    assert table.recover() == [replace(row, detail='two lines, and "quotes"')]


def test_table_with_other_columns_is_refused(tmp_path) -> None:
    (tmp_path / "study.csv").write_text("task,method\n")
    with pytest.raises(ValueError, match=r"study\.csv must have the columns task, method, seed, .* got task, method"):
        read_rows(tmp_path / "study.csv", StudyRow)


def test_other_settings_in_the_same_folder_are_an_error(small) -> None:
    _, folder, _ = small
    with pytest.raises(ValueError, match=r"other settings \(alpha=0.1 there, 0.2 now\)"):
        run_study(study_jobs(["energy"], ["l-inf"], 1), folder, settings=replace(SMALL, alpha=0.2))


def test_rows_of_other_code_are_set_aside_and_nothing_is_lost(small, tmp_path, caplog) -> None:
    _, folder, _ = small
    record = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    (tmp_path / "study.json").write_text(json.dumps({**record, "source": "0123456789ab"}))
    (tmp_path / "study.csv").write_bytes((folder / "study.csv").read_bytes())
    rows = run_study(study_jobs(["energy"], ["l-inf"], 1), tmp_path, settings=SMALL)
    assert len(rows) == 1
    assert (tmp_path / "study-0123456789ab.csv").read_bytes() == (folder / "study.csv").read_bytes()
    assert "was made by other code and is kept as study-0123456789ab.csv" in caplog.text


# --- workers ----------------------------------------------------------------------------------------------


def test_any_number_of_workers_gives_the_same_numbers_and_tables(small, tmp_path) -> None:
    rows = [row for row in small[0] if row.seed == 0]
    again = run_study([row.job for row in rows], tmp_path, settings=SMALL, workers=Workers(2))
    assert numbers(again) == numbers(rows)
    for place, own in ((tmp_path, again), (tmp_path / "one", rows)):
        write_tables(own, place)
    assert [(tmp_path / name).read_bytes() for name in TABLES] == [
        (tmp_path / "one" / name).read_bytes() for name in TABLES
    ]


def test_row_that_does_not_fit_leaves_the_table_as_long_as_it_was(tmp_path, monkeypatch) -> None:
    @dataclass(frozen=True)
    class Row:
        a: int

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    table = TidyTable(tmp_path / "rows.csv", Row)
    table.write([Row(1)])
    table.append(Row(2))
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"could not be written: No space left on device\. What was there before"):
        table.append(Row(3))
    assert table.path.read_bytes() == b"a\n1\n2\n"


@pytest.mark.slow
def test_job_that_kills_its_worker_is_reported_and_the_others_are_done(tmp_path, monkeypatch) -> None:
    # Worker processes get the parent's import path, so they find this module.
    (tmp_path / "crashing_work.py").write_text(
        "import os\n\ndef work(job):\n    if job.seed == 3:\n        os._exit(9)\n    return job.seed\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from crashing_work import work  # type: ignore[import-not-found]

    found: list[object] = []
    jobs = study_jobs(["energy"], ["l-inf"], 6)
    run_jobs(jobs, work, lambda job, reason: f"{job.seed}: {reason}", found.append, workers=Workers(2))
    assert {entry for entry in found if isinstance(entry, int)} == {0, 1, 2, 4, 5}
    assert [entry for entry in found if isinstance(entry, str)] == [
        "3: The worker process died: out of memory, or a solver crashed."
    ]


@pytest.mark.slow
def test_killed_run_goes_on_and_ends_with_the_same_bytes(tmp_path) -> None:
    options = ["--task", "energy", "--seeds", "2"]
    options += [word for key in ("l-inf", "polyhedron", "min-size", "grid", "scenario") for word in ("--method", key)]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = [*COMMAND, "reproduce", "tables", *options, "--workers", "2", "--out", str(killed)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    workers = wait_for_rows(process, killed / "study.csv", n=3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    n_left = len(read_rows(killed / "study.csv", StudyRow))
    assert 3 <= n_left < 10
    for folder in (killed, whole):
        done = reproduce("tables", *options, "--workers", "1", "--out", str(folder))
        assert done.exit_code == 0, done.output
    for name in TABLES:
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    assert not [pid for pid in workers if is_alive(pid)]


def wait_for_rows(process: subprocess.Popen[bytes], path: Path, n: int) -> list[int]:
    """Wait until the table has so many rows; return the worker processes, where the system tells them."""
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < n + 1:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in children.read_text().split()] if children.exists() else []


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("n", [1, 2])
def test_interrupted_run_keeps_what_it_has(n, tmp_path) -> None:
    jobs = study_jobs(["energy"], ["l-inf"], 8)

    def interrupt(progress: Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt("by the user")

    with pytest.raises(KeyboardInterrupt, match="by the user"):
        run_study(jobs, tmp_path, workers=Workers(n), report=interrupt)
    kept = read_rows(tmp_path / "study.csv", StudyRow)
    assert len(kept) == 3
    again = run_study(jobs, tmp_path)
    assert [row for row in again if row.job in {row.job for row in kept}] == sorted(kept, key=lambda row: row.seed)


@pytest.mark.slow
def test_cluster_that_does_not_answer_is_one_clear_error(monkeypatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("polyhedge_study.jobs._PATIENCE", 1)
    with pytest.raises(OSError, match=r"No Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        run_jobs(
            study_jobs(["energy"], ["l-inf"], 1),
            str,
            lambda job, reason: reason,
            print,
            workers=Workers(cluster="tcp://127.0.0.1:9"),
        )


@pytest.mark.parametrize("address", ["nonsense", "tcp://nonsense", "host:port", " "])
def test_an_address_without_a_port_is_refused_at_once(address) -> None:
    with pytest.raises(ValueError, match="cluster must be HOST:PORT"):
        Workers(cluster=address)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_dask_cluster_gives_the_same_numbers_although_a_worker_is_killed(small, tmp_path) -> None:
    distributed = pytest.importorskip("distributed")
    rows = [row for row in small[0] if row.method != "polyhedge"]
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        victims: list[int] = []

        def kill_one(progress: Progress) -> None:
            if progress.done == 3 and not victims:
                victims.append(next(iter(cluster.workers.values())).pid)
                os.kill(victims[0], signal.SIGKILL)

        found = run_study(
            [row.job for row in rows],
            tmp_path,
            settings=SMALL,
            workers=Workers(cluster=cluster.scheduler_address),
            report=kill_one,
        )
    assert victims
    assert numbers(found) == numbers(rows)


# --- failures ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> list[StudyRow]:
    """At this level the calibration rows alone are too few, and those of both splits are enough."""
    settings = replace(SMALL, alpha=0.01)
    jobs = study_jobs(["linear"], ["l-inf", "polyhedron", "polyhedge"], seeds=2)
    return run_study(jobs, tmp_path_factory.mktemp("failing"), settings=settings)


def test_method_that_fails_has_rows_with_its_reason(failing) -> None:
    assert {row.method: row.status for row in failing} == {
        "l-inf": "done",
        "polyhedron": "failed",
        "polyhedge": "failed",
    }
    for row in failing:
        if row.status == "failed":
            assert "alpha=0.01 needs at least 99 learning samples, got 60" in row.detail
            assert np.isnan(row.worst_case_cost)


def test_what_failed_is_run_again_when_it_is_asked_for_and_kept_when_it_is_not(tmp_path, monkeypatch) -> None:
    jobs = study_jobs(["linear"], ["l-inf", "l-2"], seeds=1)
    with monkeypatch.context() as patch:
        for key in ("l-inf", "l-2"):
            patch.setitem(METHODS, key, replace(METHODS[key], run=refuse))
        first = run_study(jobs, tmp_path, settings=SMALL, workers=Workers(1))
    assert [row.status for row in first] == ["failed", "failed"]
    second = run_study(jobs[:1], tmp_path, settings=SMALL, workers=Workers(1))
    assert {row.method: row.status for row in second} == {jobs[0].method: "done", jobs[1].method: "failed"}
    assert [row.status for row in run_study(jobs, tmp_path, settings=SMALL, workers=Workers(1))] == ["done", "done"]


def refuse(*_) -> None:
    raise ValueError("not today")


def test_tables_name_the_method_that_failed_and_why(failing, tmp_path) -> None:
    figures = table_rows(failing)
    (lost,) = [figure for figure in figures if (figure.method, figure.metric) == ("polyhedron", "premium")]
    assert (lost.n_done, lost.n_failed) == (0, 2)
    assert "alpha=0.01 needs" in lost.reason
    for grid in (task_grid(figures, "linear"), short_grid(figures, "linear")):
        assert sum("failed" in row for row in grid.rows) == 2
        assert "Polyhedron: ValueError: alpha=0.01 needs at least 99 learning samples" in grid.note
    write_tables(failing, tmp_path)
    assert "; Polyhedron: ValueError" in (tmp_path / "tables.md").read_text(encoding="utf-8")


# --- tables and pictures ----------------------------------------------------------------------------------


def test_tables_hold_the_papers_numbers_beside_ours(small, tmp_path) -> None:
    rows, _, _ = small
    write_tables(rows, tmp_path)
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    for printed in ("0.902 ± 0.021", "1.19 ± 0.44", "0.29 ± 0.24", "3.53 ± 1.26", "2.29 ± 0.97"):
        assert f"| {printed} |" in text
    figures = {(f.task, f.method, f.metric): f for f in read_rows(tmp_path / "tables.csv", TableRow)}
    cost = figures["linear", "polyhedge", "worst_case_cost"]
    ours = np.array([row.worst_case_cost for row in rows if (row.task, row.method) == ("linear", "polyhedge")])
    assert (cost.paper, cost.paper_sd) == (0.119, 0.044)
    assert cost.here == pytest.approx(ours.mean())
    assert cost.se == pytest.approx(ours.std(ddof=1) / np.sqrt(3))
    assert cost.difference == pytest.approx(ours.mean() - 0.119)
    assert cost.z_value == pytest.approx((ours.mean() - 0.119) / np.sqrt(cost.se**2 + 0.044**2 / 5))
    assert np.isnan(figures["linear", "polyhedge", "premium"].paper)


def test_best_is_the_lowest_mean_of_a_guaranteed_method(small) -> None:
    rows, _, _ = small
    for task in ("linear", "energy"):
        for metric in ("volume", "worst_case_cost", "premium", "regret"):
            own = [f for f in table_rows(rows) if (f.task, f.metric) == (task, metric)]
            assert [f.method for f in own if f.best] == [min(own, key=lambda f: f.here).method]
    assert not any(f.best for f in table_rows(rows) if f.metric == "coverage")


def test_methods_without_a_guarantee_are_never_best() -> None:
    rows = [
        StudyRow("linear", key, seed, "done", 0.9, 1.0, cost, cost, 0.1, 0.0, "")
        for seed in range(2)
        for key, cost in (("polyhedge", 2.0), ("f-croms-20", 1.0), ("oracle", 0.0))
    ]
    assert {f.method for f in table_rows(rows) if f.best and f.metric == "premium"} == {"polyhedge"}


def test_paired_test_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0.5, 1.0, size=8), rng.normal(size=8)

    def rows(values: np.ndarray) -> list[StudyRow]:
        return [StudyRow("linear", "l-2", s, "done", *[float(v)] * 6, "") for s, v in enumerate(values)]

    mean, _, p_value = paired(rows(ours), rows(theirs)[::-1], "premium")
    assert mean == pytest.approx((ours - theirs).mean())
    assert p_value == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    assert paired(rows(ours), rows(ours), "premium")[2] == 1.0
    assert np.isnan(paired(rows(ours), [], "premium")[2])


def test_holm_is_monotone_and_never_below_the_raw_values() -> None:
    p = np.random.default_rng(1).random(20)
    adjusted = np.array(holm(list(p)))
    assert (adjusted >= p).all()
    assert (adjusted <= 1).all()
    assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()


def test_tables_are_whole_in_every_form(small, tmp_path) -> None:
    rows, _, _ = small
    write_tables(rows, tmp_path)
    lines = (tmp_path / "tables.md").read_text(encoding="utf-8").splitlines()
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    latex = (tmp_path / "tables.tex").read_text(encoding="utf-8")
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == 2
    assert r"\textbf{" in latex
    assert "**" not in latex
    assert not [letter for letter in latex if letter in "±≤"]
    assert "Time" in (tmp_path / "times.md").read_text(encoding="utf-8")
    assert not list(tmp_path.glob(".*"))


def test_bubbles_are_drawn_in_both_formats_with_the_same_bytes_twice(small, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    rows, _, _ = small
    contents = []
    for _ in range(2):
        draw_bubbles(rows, [tmp_path / "bubble.png", tmp_path / "bubble.svg"])
        contents.append([(tmp_path / name).read_bytes() for name in ("bubble.png", "bubble.svg")])
    assert contents[0] == contents[1]
    assert contents[0][0].startswith(b"\x89PNG")
    assert contents[0][1].rstrip().endswith(b"</svg>")


# --- the command line -------------------------------------------------------------------------------------


def test_command_prints_tables_beside_the_papers_and_names_its_files(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    options = ["--task", "energy", "--method", "l-inf", "--method", "one-sided-box", "--seeds", "1", "--workers", "1"]
    result = reproduce("tables", "--quick", *options, "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "Left out" not in result.stdout  # who names methods knows which are not there
    assert result.stderr.splitlines()[0] == "0 of 2 runs done"
    assert result.stderr.splitlines()[-1] == "2 of 2 runs done"
    assert "Table 3, Energy Efficiency" in result.stdout
    assert "one-sided-box" in result.stdout
    assert "3.53" in result.stdout  # the printed worst-case cost of the l_inf box
    expected = {*TABLES, "study.csv", "study.json", "times.csv", "times.md", "bubble.png", "bubble.svg"}
    assert {path.name for path in tmp_path.iterdir()} == expected


def printed_rows(shift: float) -> list[StudyRow]:
    """Rows whose mean cost lies so many of the paper's standard errors from print, themselves almost without noise."""
    printed = paper_tables()["linear", "Conformal (l_2)"]
    cost = printed.mean["worst_case_cost"] + shift * printed.sd["worst_case_cost"] / np.sqrt(5)
    means = (printed.mean["coverage"], printed.mean["volume"], cost, 0.0, printed.mean["regret"])
    return [
        StudyRow("linear", "l-2", seed, "done", *(mean + 1e-9 * seed for mean in means), 0.0, "") for seed in range(3)
    ]


@pytest.mark.parametrize("shift", [-6.1, 1.9, 2.1])
def test_each_table_says_how_far_print_lies_and_marks_what_is_far(shift) -> None:
    note = task_grid(table_rows(printed_rows(shift)), "linear").note
    is_far = abs(shift) > 2
    assert f"Conformal (l_2): coverage +0.0, volume +0.0, cost {shift:+.1f}{'!' if is_far else ''}, regret +0.0" in note
    assert f"({int(is_far)} of 4 figures)" in note
    assert "agrees with" not in note
    row = next(row for row in task_grid(table_rows(printed_rows(shift)), "linear").rows if row[0] == "Conformal (l_2)")
    assert any(cell.endswith("!") for cell in row) == is_far


# --- validity of all methods ------------------------------------------------------------------------------

LAW = StudySettings(sizes=(400, 60, 60, 400))
FALSE_ALARM = 0.001
LAW_SEEDS = 100


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[StudyRow]:
    keys = [key for key, method in METHODS.items() if method.group != "reference"]
    jobs = study_jobs(["linear"], keys, seeds=LAW_SEEDS)
    return run_study(jobs, tmp_path_factory.mktemp("many"), settings=LAW, workers=Workers(2))


def hits_of(rows: list[StudyRow], key: str) -> np.ndarray:
    own = [row for row in rows if row.method == key]
    assert all(row.status == "done" for row in own), own[0].detail
    return np.array([round(row.coverage * LAW.sizes[3]) for row in own])


@pytest.mark.slow
def test_coverage_of_every_recalibrated_method_follows_its_exact_law(many) -> None:
    """The hits on the test rows are beta-binomial; their randomised distribution functions are uniform."""
    rng = np.random.default_rng(0)
    exact = [method for method in METHODS.values() if method.guarantee == "exact"]
    for method in exact:
        m = LAW.sizes[2] + (LAW.sizes[1] if method.calibrated_on == "pooled" else 0)
        k = conformal_rank(m, LAW.alpha)
        law, hits = stats.betabinom(LAW.sizes[3], k, m + 1 - k), hits_of(many, method.key)
        below = law.cdf(hits - 1)
        uniform = below + rng.random(len(hits)) * (law.cdf(hits) - below)
        assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM / len(exact), method.key


@pytest.mark.slow
def test_coverage_of_every_guaranteed_method_is_at_least_promised_in_the_mean(many) -> None:
    guaranteed = [method.key for method in METHODS.values() if method.guarantee != "none"]
    for key in guaranteed:
        share = hits_of(many, key) / LAW.sizes[3]
        error = share.std(ddof=1) / np.sqrt(len(share))
        assert share.mean() > 1 - LAW.alpha + stats.norm.ppf(FALSE_ALARM / len(guaranteed)) * error, key


@pytest.mark.slow
@pytest.mark.parametrize("key", ["descent", "scenario", "grid"])
def test_learners_without_recalibration_cover_less_than_promised(many, key) -> None:
    """On 120 reused rows. The default is not among them: it chooses simple shapes there, and loses next to nothing."""
    without = hits_of(many, f"{key}-no-recal") / LAW.sizes[3]
    assert stats.ttest_1samp(without, 1 - LAW.alpha, alternative="less").pvalue < 0.01
