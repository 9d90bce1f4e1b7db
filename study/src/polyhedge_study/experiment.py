"""An experiment: a table of rows that grows, is resumed where it stopped, and says how it was made."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from polyhedge_study.inside import replace_file, sole_writer
from polyhedge_study.jobs import Progress, Workers, run_jobs
from polyhedge_study.machine import environment, source_fingerprint
from polyhedge_study.tidy import TidyTable

__all__ = ["Experiment"]

logger = logging.getLogger(__name__)

R = TypeVar("R")


@dataclass(frozen=True)
class Experiment(Generic[R]):
    """Rows of one kind, in `<name>.csv`, and their record, in `<name>.json`.

    Attributes
    ----------
    name : stem of the files.
    row_type : frozen dataclass of text and numbers with a `status` and a property `job`, which it was made from. Rows
        with the status "failed" (or "FAILED") are run again when they are asked for again.
    settings : frozen dataclass that all rows share, but for the names in `may_change`, which say how much is run.
    work : job -> row.
    failed : job and reason -> row.
    order : row -> its place in the finished table.
    about : rows -> what the record says about them.
    timed : whether the rows are about times, so that those of another machine do not belong to them.
    """

    name: str
    row_type: type[R]
    settings: Any
    work: Callable[[Any], R]
    failed: Callable[[Any, str], R]
    order: Callable[[R], Any]
    about: Callable[[Sequence[R]], dict[str, object]]
    may_change: tuple[str, ...] = ()
    timed: bool = False

    def run(
        self,
        jobs: Iterable[Any],
        folder: Path,
        *,
        workers: Workers | None = None,
        report: Callable[[Progress], None] | None = None,
        budget: float = math.inf,
    ) -> list[R]:
        """Run what the table in the folder lacks, and again what failed; return all its rows in order.

        Jobs run in this process unless `workers` are given; none is begun once `budget` seconds are over.
        """
        table = TidyTable(folder / f"{self.name}.csv", self.row_type)
        with sole_writer(table.path):
            return self._run(table, list(jobs), folder, workers or Workers(), report, budget)

    def _run(
        self,
        table: TidyTable[R],
        jobs: Sequence[Any],
        folder: Path,
        workers: Workers,
        report: Callable[[Progress], None] | None,
        budget: float,
    ) -> list[R]:
        again = set(jobs)
        rows = [row for row in self._known(table, folder) if not (_failed(row) and _job(row) in again)]
        known = {_job(row) for row in rows}
        todo = [job for job in jobs if job not in known]

        def keep(row: R) -> None:
            table.append(row)
            rows.append(row)

        def add_known(progress: Progress) -> None:
            if report is not None:
                report(replace(progress, done=progress.done + len(known), total=progress.total + len(known)))

        run_jobs(todo, self.work, self.failed, keep, workers=workers, report=add_known, budget=budget)
        rows.sort(key=self.order)
        table.write(rows)
        self._write_record(folder, rows)
        return rows

    def _known(self, table: TidyTable[R], folder: Path) -> list[R]:
        """Rows of earlier runs; an empty table where there are none that fit."""
        record = self._read_record(folder)
        if table.path.exists():
            if record is not None:
                self._check_settings(record, folder)
                if self._same_maker(record):
                    return table.recover()
            aside = table.set_aside((record or {}).get("source", "unknown"))
            made = "by other code or on another machine" if self.timed else "by other code"
            logger.warning("%s was made %s and is kept as %s: all runs start anew.", table.path, made, aside.name)
        # The record first: a table without one could not be resumed.
        self._write_record(folder, [])
        table.write([])
        return []

    def _check_settings(self, record: dict[str, Any], folder: Path) -> None:
        before, now = record.get("settings", {}), self._made_by()["settings"]
        compared = sorted({*before, *now} - set(self.may_change))
        changed = [name for name in compared if before.get(name) != now.get(name)]
        if changed:
            differences = ", ".join(f"{name}={before.get(name)!r} there, {now.get(name)!r} now" for name in changed)
            raise ValueError(
                f"The rows in {folder / self.name}.csv were made with other settings ({differences}). "
                "Use the same settings, choose another folder, or delete the file."
            )

    def _same_maker(self, record: dict[str, Any]) -> bool:
        now = self._made_by()
        part = (lambda made: made["machine"]) if self.timed else (lambda made: made["machine"]["packages"])
        return bool(record.get("source") == now["source"] and part(record) == part(now))

    def _read_record(self, folder: Path) -> dict[str, Any] | None:
        try:
            record = json.loads((folder / f"{self.name}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return dict(record)

    def _write_record(self, folder: Path, rows: Sequence[R]) -> None:
        record = {**self._made_by(), **self.about(rows)}
        replace_file(folder / f"{self.name}.json", (json.dumps(record, indent=2) + "\n").encode())

    def _made_by(self) -> dict[str, Any]:
        made_by = {
            "experiment": self.name,
            "settings": asdict(self.settings),
            "machine": environment(),
            "source": source_fingerprint(),
        }
        return dict(json.loads(json.dumps(made_by)))


def _job(row: Any) -> Any:
    return row.job


def _failed(row: Any) -> bool:
    return str(row.status).lower() == "failed"
