"""Start runs in children of a process that has imported everything, and kill them, as lines of JSON on stdin say.

Usage: python killed_runs.py FOLDER. A line {"job": NAME, "seconds": S} kills the run after so many seconds of work,
{"job": NAME, "line": K} before its K-th line inside the module that writes files, {"job": NAME} lets it end, and with
"trace": true counts these lines. The answer says whether it was killed, how many seconds and lines it took, and the
last number it had reported as finished.

A fork takes milliseconds where starting Python and importing would take seconds. Clocks stand still in the children,
so that the same run gives the same bytes.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import types
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import polyhedge as ph
from polyhedge._support import files as _files
from polyhedge.app import cli
from polyhedge_study.study import StudySettings, run_study, study_jobs
from polyhedge_study.study_tables import write_tables

Report = Callable[[int], None]
PROBLEM = 'kind = "simplex_linear"\nc = [0.0, 0.0]\noutcomes = ["u", "v"]\n'
STUDY = study_jobs(["energy"], ["l-inf", "polyhedron"], seeds=2)


def prepare(folder: Path, report: Report) -> None:
    """A table, a problem, a model and rows to decide."""
    rng = np.random.default_rng(0)
    X, Y = ph.data.make_synthetic(150, rng=rng)
    frame = pd.DataFrame(X).add_prefix("x").assign(u=Y[:, 0], v=Y[:, 1])
    frame.to_csv(folder / "history.csv", index=False)
    (folder / "problem.toml").write_text(PROBLEM)
    learner = ph.learners.OneSidedBox()
    decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), None, learner=learner, random_state=0).fit(X, Y)
    decider.save(folder / "base.polyhedge")
    (folder / "parts").mkdir()
    for name in ("new.parquet", "parts/a.parquet", "parts/b.parquet"):
        pd.DataFrame(rng.normal(size=(500, X.shape[1]))).add_prefix("x").to_parquet(folder / name)


def save(folder: Path, report: Report) -> None:
    """Save again and again, each time with the next number inside."""
    path = folder / "saved" / "model.polyhedge"
    decider = ph.load(folder / "base.polyhedge")
    start = ph.inspect_model(path).details["number"] + 1 if path.exists() else 1
    report(start - 1)
    for number in count(start) if os.environ["ENDLESS"] else [start]:
        decider.save(path, {"number": number, "padding": "x" * 50_000})
        report(number)


def fit(folder: Path, report: Report) -> None:
    os.chdir(folder)
    report(0)
    command = (
        "fit history.csv --problem problem.toml --predictor ridge --learner one-sided-box --out fitted/model.polyhedge"
    )
    cli.app(command.split(), standalone_mode=False)
    report(1)


def decide(folder: Path, report: Report) -> None:
    """Decide a file and a folder of Parquet, again and again."""
    decider = ph.load(folder / "base.polyhedge")
    report(0)
    for number in count(1) if os.environ["ENDLESS"] else [1]:
        for source, target in (("new.parquet", "all.parquet"), ("parts", f"all-{number % 3}")):
            into = folder / "decided" / target
            if not into.is_dir():
                ph.distributed.decide_parquet(decider, folder / source, into, block_rows=100)
        report(number)


def study(folder: Path, report: Report) -> None:
    def done(progress: Any) -> None:
        report(progress.done)

    report(0)
    write_tables(run_study(STUDY, folder / "study", settings=StudySettings(), report=done), folder / "study")


JOBS = {job.__name__: job for job in (prepare, save, fit, decide, study)}


class _StoppedClock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime(2024, 5, 6, tzinfo=UTC)


def stop_clocks() -> None:
    time.perf_counter = lambda: 0.0  # type: ignore[assignment]
    for name, module in list(sys.modules.items()):
        if name.startswith("polyhedge") and getattr(module, "datetime", None) is datetime:
            module.datetime = _StoppedClock  # type: ignore[attr-defined]


class Lines:
    """Counts the lines that run inside the module that writes files, and dies before one of them."""

    def __init__(self, last: int | None) -> None:
        self.n, self.last = 0, last

    def __call__(self, frame: types.FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != _files.__file__:
            return None
        if event == "line":
            self.n += 1
            if self.n == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def child(order: dict[str, Any], folder: Path, pipe: int) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    os.environ["ENDLESS"] = "yes" if {"seconds", "line"} & set(order) else ""
    stop_clocks()
    lines = Lines(order.get("line"))
    if "line" in order or order.get("trace"):
        sys.settrace(lines)
    JOBS[order["job"]](folder, lambda number: void(os.write(pipe, f"{number} {lines.n}\n".encode())))


def void(value: object) -> None:
    return None


def run(order: dict[str, Any], folder: Path) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        code = 1
        try:
            child(order, folder, writing)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    told, began = b"", None
    while True:
        left = None if began is None or "seconds" not in order else order["seconds"] - (time.monotonic() - began)
        if left is not None and left <= 0:
            os.kill(pid, signal.SIGKILL)
            order = {"job": order["job"]}
            continue
        if select.select([reading], [], [], left)[0]:
            told += (more := os.read(reading, 65536))
            # Loading comes first; the time to kill counts from when the work begins.
            began = time.monotonic() if began is None else began
            if not more:
                break
    os.close(reading)
    status = os.waitpid(pid, 0)[1]
    if status and not os.WIFSIGNALED(status):
        raise RuntimeError(f"{order['job']} failed")
    last = told.rpartition(b"\n")[0].rpartition(b"\n")[2].split() or [b"0", b"0"]
    seconds = time.monotonic() - (began or time.monotonic())
    return {"killed": bool(status), "finished": int(last[0]), "lines": int(last[1]), "seconds": seconds}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), Path(sys.argv[1]))), flush=True)
