"""Outcomes that became known are kept in a database that no kill harms."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import polyhedge as ph
from polyhedge.app import cli
from polyhedge.calibration import Online
from polyhedge.monitoring.log import OutcomeLog

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks and kills"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
N = 60


@pytest.fixture(scope="module")
def decider() -> ph.RobustDecider:
    Y = np.random.default_rng(0).normal(size=(120, 2))
    made = ph.RobustDecider(
        ph.problems.simplex_linear([0.0, 0.0]),
        "precomputed",
        learner=ph.learners.OneSidedBox(),
        split="time",
        calibration=Online(),
    )
    return made.fit(np.zeros((120, 2)), Y)


ROWS = np.random.default_rng(1).normal(size=(N, 2)) * 1.5


def feed(path: Path, decider: ph.RobustDecider, size: int = 5, first: int = 0) -> None:
    log = OutcomeLog(path, decider.model_)
    for k in range(first, N, size):
        rows = range(k, min(k + size, N))
        log.add([f"row {i}" for i in rows], np.zeros((len(rows), 2)), ROWS[list(rows)])


def replayed(path: Path, decider: ph.RobustDecider) -> tuple[bytes, list[bool]]:
    model, found = OutcomeLog(path, decider.model_).replay()
    radii: Any = model.radii
    return radii.levels.tobytes() + radii.scores.tobytes(), found.missed.tolist()


def child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def counted_lines(work: Callable[[], None], kill_at: int | None = None) -> int:
    """How many lines of the log's code run in `work`; the process kills itself before one of them."""
    n = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal n
        if not frame.f_code.co_filename.endswith("monitoring/log.py"):
            return None
        n += event == "line"
        if n == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return n


def killed_runs(n_runs: int, folder: Path, decider: ph.RobustDecider) -> int:
    """Feeds are killed, at a random line or moment in turn, and run again; how many were killed half way."""
    n_lines = counted_lines(lambda: feed(folder / "whole.db", decider))
    usual, rng, half_way = replayed(folder / "whole.db", decider), np.random.default_rng(0), 0
    for run in range(n_runs):
        path = folder / f"{run}.db"

        def work(path: Path = path) -> None:
            feed(path, decider)

        if run % 2:
            pid = child(work)
            time.sleep(rng.uniform(0.0, 0.06))
            os.kill(pid, signal.SIGKILL)
        else:
            at = int(rng.integers(1, n_lines))
            pid = child(lambda at=at, work=work: counted_lines(work, kill_at=at) and None)  # type: ignore[misc]
        os.waitpid(pid, 0)
        OutcomeLog(path, decider.model_)
        with sqlite3.connect(path) as database:
            (n,) = database.execute("SELECT COUNT(*) FROM outcomes").fetchone()
        database.close()
        half_way += 0 < n < N
        assert n % 5 == 0, "a batch was written in part"
        feed(path, decider)
        assert replayed(path, decider) == usual
    return half_way


def test_killed_updates_are_run_again_and_replay_bit_for_bit(tmp_path: Path, decider: ph.RobustDecider) -> None:
    assert killed_runs(8, tmp_path, decider) > 1


@pytest.mark.slow
def test_two_hundred_killed_updates_replay_bit_for_bit(tmp_path: Path, decider: ph.RobustDecider) -> None:
    assert killed_runs(200, tmp_path, decider) > 60


def test_two_processes_at_once_lose_and_double_nothing(tmp_path: Path, decider: ph.RobustDecider) -> None:
    path = tmp_path / "log.db"
    pids = [child(lambda size=size, first=first: feed(path, decider, size, first)) for size, first in ((3, 0), (4, 8))]  # type: ignore[misc]
    for pid in pids:
        os.waitpid(pid, 0)
    with sqlite3.connect(path) as database:
        keys = [key for (key,) in database.execute("SELECT key FROM outcomes")]
    database.close()
    assert sorted(keys) == sorted(f"row {i}" for i in range(N))


def test_log_of_another_calibration_is_refused(tmp_path: Path, decider: ph.RobustDecider) -> None:
    feed(tmp_path / "log.db", decider)
    other = ph.RobustDecider(decider.problem, "precomputed", calibration=Online(), learner=decider.learner)
    other.fit(np.zeros((120, 2)), np.random.default_rng(5).normal(size=(120, 2)))
    with pytest.raises(ValueError, match="belongs to another calibration of the model"):
        OutcomeLog(tmp_path / "log.db", other.model_)
    with pytest.raises(ValueError, match="one key for each of 2 rows, got 1"):
        OutcomeLog(tmp_path / "log.db", decider.model_).add(["a"], np.zeros((2, 2)), ROWS[:2])


class TestNotedDecisions:
    """Outcomes count against the bounds that were issued, wherever the radius has moved since."""

    def test_an_outcome_counts_against_what_was_noted_under_its_key(
        self, tmp_path: Path, decider: ph.RobustDecider
    ) -> None:
        log, X = OutcomeLog(tmp_path / "log.db", decider.model_), np.zeros((2, 2))
        issued = decider.decide(X)
        assert issued.radii is not None
        generous = replace(issued, radii=np.array([99.0, issued.radii[1]]))
        log.note(["a", "b"], generous)
        log.add(["a", "b", "c"], np.zeros((3, 2)), np.full((3, 2), 9.0))
        found = log.replay()[1]
        assert found.missed.tolist() == [False, True, True]
        assert found.radii[:2].tolist() == generous.radii.tolist()
        with sqlite3.connect(log.path) as database:
            rows = database.execute("SELECT origin, cost FROM outcomes ORDER BY position").fetchall()
        database.close()
        assert [origin for origin, _ in rows] == ["log", "log", "online"]
        costs = decider.problem_.evaluate(issued.flat, np.full((2, 2), 9.0))
        assert [cost for _, cost in rows] == [*costs.tolist(), None]
        assert [row.cost_bound for row in log.history()] == [*issued.cost_bound.tolist(), None]

    def test_what_is_known_is_not_decided_again_and_what_is_not_known_is(
        self, tmp_path: Path, decider: ph.RobustDecider
    ) -> None:
        log, first = OutcomeLog(tmp_path / "log.db", decider.model_), decider.decide(np.zeros((2, 2)))
        second = replace(first, radii=np.array([50.0, 60.0]), cost_bound=first.cost_bound + 50)
        log.note(["a", "b"], first)
        log.add(["a"], np.zeros((1, 2)), np.full((1, 2), 9.0))
        log.note(["a", "b"], second)
        log.add(["b"], np.zeros((1, 2)), np.full((1, 2), 9.0))
        assert first.radii is not None
        assert log.replay()[1].radii.tolist() == [float(first.radii[0]), 60.0]
        bounds = [row.cost_bound for row in log.history()]
        assert bounds == [float(first.cost_bound[0]), float(second.cost_bound[1])]
        with pytest.raises(ValueError, match="one key for each of 2 decisions that decide returned, got 1"):
            log.note(["a"], first)

    def test_rows_that_follow_and_rows_that_were_noted_replay_as_fed_in_memory(
        self, tmp_path: Path, decider: ph.RobustDecider
    ) -> None:
        log, X = OutcomeLog(tmp_path / "log.db", decider.model_), np.zeros((6, 2))
        noted = replace(decider.decide(X[:2]), radii=np.array([0.5, 0.5]))
        log.note(["2", "3"], noted)
        log.add([str(i) for i in range(6)], X, ROWS[:6])
        twin = ph.RobustDecider(decider.problem, "precomputed")
        twin.model_ = decider.model_
        twin.update(X[:2], ROWS[:2])
        twin.update(X[2:4], ROWS[2:4], noted)
        told = twin.update(X[4:], ROWS[4:6])
        model, found = log.replay()
        assert found.radii.tolist() == told.radii.tolist()
        assert model.radii.levels.tolist() == twin.model_.radii.levels.tolist()

    def test_commands_note_decide_with_the_radius_that_outcomes_led_to_and_write_a_page(self, tmp_path: Path) -> None:
        pd = pytest.importorskip("pandas")
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["x", "u", "v"]).assign(id=np.arange(200))
        fitted = ph.RobustDecider(
            ph.problems.simplex_linear([0.0, 0.0]),
            learner=ph.learners.OneSidedBox(),
            calibration=Online(step=0.005),
            split="time",
        ).fit(frame[["x"]], frame[["u", "v"]])
        model, data, out = (str(tmp_path / name) for name in ("m.polyhedge", "new.csv", "z.csv"))
        fitted.save(model)
        frame.assign(u=9.0, v=9.0).iloc[:8].to_csv(data, index=False)

        def run(*arguments: str, code: int = 0) -> str:
            told = CliRunner().invoke(cli.app, list(arguments))
            assert told.exit_code == code, told.output
            return told.output

        run("decide", model, data, "--out", out, "--key", "id")
        before = pd.read_csv(out)["cost_bound"]
        told = run("update", model, data, "--key", "id")
        assert "recomputed" not in told
        assert "0 of 8" not in run("monitor", model, "--out", str(tmp_path / "page.html"))
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "Coverage over time" in page
        assert ("bound, known before" in page) is (find_spec("plotly") is not None)  # a line of a chart
        run("decide", model, data, "--out", out, "--key", "id")
        assert (pd.read_csv(out)["cost_bound"].fillna(np.inf) > before).all()
        frame.assign(id=1).iloc[:8].to_csv(data, index=False)
        assert "must name each row once, but '1' stands there 8 times" in run(
            "decide", model, data, "--out", out, "--key", "id", code=2
        )


@pytest.mark.parametrize("name", ["junk", "of something else", "in no folder", "full disk"])
def test_a_database_that_cannot_be_used_says_so_and_is_left_as_it_was(
    name: str, tmp_path: Path, decider: ph.RobustDecider
) -> None:
    path, X = tmp_path / "outcomes.db", np.zeros((3, 2))
    if name == "junk":
        path.write_bytes(b"neither a database nor empty" * 200)
    elif name == "of something else":
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE VIEW outcomes AS SELECT 1")
    elif name == "in no folder":
        path = tmp_path / "nowhere" / "outcomes.db"
    else:
        OutcomeLog(path, decider.model_).add(["a"], X[:1], ROWS[:1])
    before = path.read_bytes() if path.exists() else None
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if name == "full disk":  # no file may grow any more
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
        with pytest.raises(ValueError, match=r"must be a database of outcomes that can be read and written"):
            OutcomeLog(path, decider.model_).add(["b", "c"], X[1:3], ROWS[1:3])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    if name == "full disk":
        assert len(OutcomeLog(path, decider.model_).history()) == 1
    elif name == "junk":
        assert path.read_bytes() == before


@pytest.mark.parametrize("room", [0, 1024, 4096, 6000])
def test_a_full_disk_leaves_no_empty_database(room: int, tmp_path: Path, decider: ph.RobustDecider) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        with pytest.raises(ValueError, match=r"must be a database of outcomes that can be read and written"):
            OutcomeLog(tmp_path / "outcomes.db", decider.model_)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
    assert OutcomeLog(tmp_path / "outcomes.db", decider.model_).history() == []
