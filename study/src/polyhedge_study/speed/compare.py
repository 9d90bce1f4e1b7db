"""What a user waits for, measured with this package and with that of another commit, in turns within one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np

from polyhedge_study.grid import Grid
from polyhedge_study.inside import replace_file
from polyhedge_study.speed import waits
from polyhedge_study.speed.growth import GrowthPoint, lines

__all__ = ["WaitRow", "WaitsRun", "measure_waits", "packaged", "save_waits", "waits_grids"]

_ROOT = Path(__file__).resolve().parents[4]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class WaitRow:
    """Median seconds of the processor for one case, of this package and of the other; 0 where there is no other.

    `difference` is the largest between the numbers that both found, over the largest of them; `spread` are the least
    and the largest ratio of the repetitions, of which there were `repeats`.
    """

    kind: str
    case: str
    seconds: float
    before: float = 0.0
    spread: tuple[float, float] = (0.0, 0.0)
    difference: float = 0.0
    parameter: str = ""
    size: int = 0
    repeats: int = 0

    @property
    def ratio(self) -> float:
        """How many times as fast as before."""
        return self.before / self.seconds if self.seconds else float("nan")


@dataclass(frozen=True)
class WaitsRun:
    """All rows, what they were compared with, and the machine."""

    against: str
    repeats: int
    environment: dict[str, Any]
    rows: tuple[WaitRow, ...] = field(default=())

    @property
    def growth(self) -> tuple[GrowthPoint, ...]:
        """The rows along which a size grows."""
        points = []
        for row in self.rows:
            if row.parameter:
                points.append(GrowthPoint("now", row.parameter, row.size, row.seconds, row.kind))
                if row.before:
                    points.append(GrowthPoint("before", row.parameter, row.size, row.before, row.kind))
        return tuple(points)


Report = Callable[[WaitsRun, str], None]


def measure_waits(
    kinds: Sequence[str],
    environment: dict[str, Any],
    *,
    against: str = "",
    repeats: int = 5,
    only: Iterable[str] | None = None,
    growth: bool = False,
    report: Report = lambda run, coming: None,
) -> WaitsRun:
    """Measure the cases of these kinds in turns: this package, then that of the commit `against`, and again."""
    cases = [(kind, name, "", 0) for kind in kinds for name in waits.KINDS[kind]]
    if growth:
        cases += [("growth", name, along, size) for name, (along, size, _) in waits.GROWTH.items()]
    wanted = None if only is None else set(only)
    if wanted is not None:
        unknown = wanted - {name for _, name, _, _ in cases}
        if unknown:
            raise ValueError(f"There is no case {', '.join(sorted(unknown))}. Known are {_names(cases)}.")
        cases = [case for case in cases if case[1] in wanted]
    run = WaitsRun(against, repeats, environment)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        places = {"now": None, "before": against} if against else {"now": None}
        workers = {
            name: _Worker(packaged(commit, Path(folder) / name), Path(folder)) for name, commit in places.items()
        }
        for worker in workers.values():
            stack.callback(worker.close)
        for kind, name, along, size in cases:
            report(run, name)
            row = WaitRow(kind, name, 0.0, parameter=along, size=size)
            row = _measured(workers["now"], workers.get("before"), repeats, row)
            run = WaitsRun(against, repeats, environment, (*run.rows, row))
    report(run, "")
    return run


def _names(cases: list[tuple[str, str, str, int]]) -> str:
    return ", ".join(name for _, name, _, _ in cases)


def packaged(commit: str | None, folder: Path) -> Path:
    """The package of a commit, or of the tree as it is, built as a wheel and put into a folder of its own."""
    source = _ROOT
    if commit:
        source = folder / "source"
        source.mkdir(parents=True)
        archive = subprocess.run(["git", "-C", str(_ROOT), "archive", commit], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels, target = folder / "wheels", folder / "package"
    _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source)])
    (wheel,) = wheels.glob("*.whl")
    _run([*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)])
    return target


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:6])} ... failed: {(done.stderr or done.stdout).strip()[-500:]}")


class _Worker:
    """A process that measures with one package: the same Python and dependencies, one thread for matrix products."""

    def __init__(self, package: Path, models: Path) -> None:
        script = Path(waits.__file__).resolve()
        environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": str(package)}
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(models)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, case: str) -> dict[str, Any]:
        """Seconds and numbers of one case."""
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).write(json.dumps(case) + "\n")
            _pipe(self.process.stdin).flush()
        line = _pipe(self.process.stdout).readline()
        if not line:
            raise RuntimeError(f"The process that measures {case!r} ended with code {self.process.wait()}.")
        return dict(json.loads(line))

    def close(self) -> None:
        """End the process: it ends when nothing more is asked."""
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()
        _pipe(self.process.stdout).close()
        self.process.wait()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _measured(now: _Worker, before: _Worker | None, repeats: int, row: WaitRow) -> WaitRow:
    workers = [now] if before is None else [before, now]  # the older one makes models that both can read
    if row.kind != "fit" or repeats > 1:
        for worker in workers:
            worker.ask(row.case)
    rounds = [[worker.ask(row.case) for worker in workers] for _ in range(repeats)]
    seconds = [median(answers[k]["seconds"] for answers in rounds) for k in range(len(workers))]
    ratios = [answers[0]["seconds"] / max(answers[-1]["seconds"], 1e-9) for answers in rounds]
    return WaitRow(
        kind=row.kind,
        case=row.case,
        seconds=seconds[-1],
        before=seconds[0] if before is not None else 0.0,
        spread=(min(ratios), max(ratios)) if before is not None else (0.0, 0.0),
        difference=_difference(*(answers["numbers"] for answers in rounds[0])),
        parameter=row.parameter,
        size=row.size,
        repeats=repeats,
    )


def _difference(first: list[float], second: list[float] | None = None) -> float:
    if second is None or not first:
        return 0.0
    return float(np.abs(np.subtract(first, second)).max() / max(np.abs(first).max(), 1e-300))


def save_waits(folder: Path, stem: str, run: WaitsRun) -> list[Path]:
    """Write the tables and all figures as JSON; each file appears whole."""
    text = "\n".join(grid.markdown() for grid in waits_grids(run))
    files = {f"{stem}.md": text, f"{stem}.json": json.dumps(asdict(run), indent=2) + "\n"}
    for name, content in files.items():
        replace_file(folder / name, content.encode())
    return [folder / name for name in files]


def waits_grids(run: WaitsRun) -> tuple[Grid, ...]:
    """One table a kind, and the growth."""
    grids = []
    for kind in dict.fromkeys(row.kind for row in run.rows if not row.parameter):
        rows = tuple(_cells(row) for row in run.rows if row.kind == kind)
        note = f"Medians of {run.repeats} in turns" + (f"; before is commit {run.against}." if run.against else ".")
        heads = ("case", "CPU seconds", "before", "times as fast", "least and largest", "difference")
        grids.append(Grid(f"What a user waits for: {kind}", heads, rows, note))
    curves = lines(run.growth)
    if curves:
        cells = tuple(
            (line.parameter, line.method, _times(line.sizes, line.seconds), f"{line.exponent:.2f}") for line in curves
        )
        grids.append(Grid("Growth", ("along", "package", "CPU seconds at each size", "exponent"), cells))
    return tuple(grids)


def _times(sizes: Sequence[int], seconds: Sequence[float]) -> str:
    return ", ".join(f"{size}: {value:.2g}" for size, value in zip(sizes, seconds, strict=True))


def _cells(row: WaitRow) -> tuple[str, ...]:
    if not row.before:
        return row.case, f"{row.seconds:.3g}", "", "", "", ""
    low, high = row.spread
    return (
        row.case,
        f"{row.seconds:.3g}",
        f"{row.before:.3g}",
        f"{row.ratio:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{row.difference:.1e}",
    )
