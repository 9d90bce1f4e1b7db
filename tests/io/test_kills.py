"""Runs that are killed: nothing half-written, nothing lost, the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhedge as ph
from polyhedge_study.study import StudyRow
from polyhedge_study.tidy import read_rows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, kills and mounts")

OUTPUTS = {"save": "saved", "fit": "fitted", "decide": "decided", "study": "study"}
# What was being written, and the lock of a table that grows; those of earlier kills are gone.
HIDDEN_AT_MOST = 2


class Runs:
    """A process that starts runs and kills them, the folder they work in, and what they write when left alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, str(Path(__file__).parents[1] / "killed_runs.py"), str(folder)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.ask(job="prepare")
        self.usual = {job: self.ask(job=job, trace=True) for job in OUTPUTS}
        self.whole = {job: self.written(job) for job in OUTPUTS}
        self.clear()

    def ask(self, **order: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the process ended at {order}"
        return dict(json.loads(answer))

    def written(self, job: str) -> dict[str, bytes]:
        """What a job has written, by the path in its folder."""
        folder = self.folder / OUTPUTS[job]
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def clear(self) -> None:
        for name in OUTPUTS.values():
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def close(self) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    runs = Runs(tmp_path_factory.mktemp("kills"))
    yield runs
    runs.close()


def check_saved(runs: Runs, finished: int) -> None:
    path = runs.folder / "saved" / "model.polyhedge"
    if finished or path.exists():
        assert ph.inspect_model(path).details["number"] >= finished  # its digest is checked


def check_fitted(runs: Runs, finished: int) -> None:
    old, new = (runs.folder / "base.polyhedge").read_bytes(), runs.whole["fit"]["model.polyhedge"]
    assert (runs.folder / "fitted" / "model.polyhedge").read_bytes() in ([new] if finished else [old, new])


def check_decided(runs: Runs, finished: int) -> None:
    whole, found = runs.whole["decide"], visible(runs.written("decide"))
    for name in {Path(name).parts[0] for name in found}:
        as_first = "all-1" if name.startswith("all-") else name
        assert {file.replace(name, as_first): content for file, content in found.items() if file.startswith(name)} == {
            file: content for file, content in whole.items() if file.startswith(as_first)
        }
    assert not finished or "all.parquet" in found
    for target in (runs.folder / "decided").glob("all-*"):
        shutil.rmtree(target)  # what is there would not be decided again


def check_studied(runs: Runs, finished: int) -> None:
    folder = runs.folder / "study"
    if not finished and not (folder / "study.csv").exists():
        return
    rows = read_rows(folder / "study.csv", StudyRow)
    assert len(rows) >= finished
    found, whole = runs.written("study"), runs.whole["study"]
    lines = whole["study.csv"].splitlines()
    assert Counter(found["study.csv"].rpartition(b"\n")[0].splitlines()) <= Counter(lines)
    json.loads(found["study.json"])
    assert all(found[name] == content for name, content in whole.items() if name in found and name.startswith("tables"))


CHECKS: dict[str, Callable[[Runs, int], None]] = {
    "save": check_saved,
    "fit": check_fitted,
    "decide": check_decided,
    "study": check_studied,
}


def visible(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if not name.startswith(".")}


def kill_often(runs: Runs, job: str, n: int) -> None:
    """Kill a job at so many random moments, half of them inside the module that writes files; then let it end."""
    rng = np.random.default_rng([n, *job.encode()])
    usual, check, n_killed, finished = runs.usual[job], CHECKS[job], 0, 0
    shutil.rmtree(runs.folder / OUTPUTS[job], ignore_errors=True)
    for _ in range(3 * n):
        if job == "fit":
            (runs.folder / "fitted").mkdir(exist_ok=True)
            shutil.copy(runs.folder / "base.polyhedge", runs.folder / "fitted" / "model.polyhedge")
        if rng.random() < 0.5:
            answer = runs.ask(job=job, seconds=rng.uniform(0, 1.2 * usual["seconds"]))
        else:
            answer = runs.ask(job=job, line=int(rng.integers(1, usual["lines"] + 1)))
        n_killed += answer["killed"]
        # What one run has finished, no later one may lose.
        finished = max(finished, answer["finished"]) if job in ("save", "study") else answer["finished"]
        check(runs, finished)
        folder = runs.folder / OUTPUTS[job]
        assert len([path for path in folder.rglob("*") if path.name.startswith(".polyhedge-")]) <= HIDDEN_AT_MOST
        if job == "study" and not answer["killed"]:
            shutil.rmtree(folder)
            finished = 0
        if n_killed == n:
            break
    assert n_killed == n
    end(runs, job)


def end(runs: Runs, job: str) -> None:
    """Run once more without a kill: the same bytes as a run that was never killed, and no leftovers."""
    assert not runs.ask(job=job)["killed"]
    found = runs.written(job)
    assert visible(found) == found
    if job == "save":
        check_saved(runs, 1)
        assert list(found) == ["model.polyhedge"]
    else:
        assert {name: found.get(name) for name in runs.whole[job]} == runs.whole[job]


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize(("job", "n"), [("save", 4), ("fit", 2), ("decide", 2), ("study", 2)])
def test_killed_runs_leave_whole_files_lose_nothing_and_end_with_the_same_bytes(runs: Runs, job: str, n: int) -> None:
    kill_often(runs, job, n)


@pytest.mark.slow
@pytest.mark.parametrize(("job", "n"), [("save", 100), ("fit", 40), ("decide", 100), ("study", 60)])
def test_three_hundred_kills_leave_whole_files_and_lose_nothing(runs: Runs, job: str, n: int) -> None:
    kill_often(runs, job, n)
