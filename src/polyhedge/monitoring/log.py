"""The log of decisions and outcomes: a SQLite database, so that a kill at any point loses nothing.

The schema, which anybody may query::

    decided(key TEXT PRIMARY KEY, decision TEXT, cost_bound REAL, radius REAL, decided TEXT, expected_cost REAL)
    outcomes(position INTEGER PRIMARY KEY, key TEXT UNIQUE, batch INTEGER, outcome TEXT, score REAL, radius REAL,
             origin TEXT, cost REAL, known TEXT)
    about(name TEXT PRIMARY KEY, value TEXT)

`decision` and `outcome` are JSON objects by name, `decided` and `known` times in UTC. `score` is the least radius at
which the outcome would have been covered, and a row is missed where score > radius. `origin` says where the radius
comes from: "given" with the outcome, "log" from the decision that was noted under this key, "computed" by the model, or
"online" from the rows before (then it is NULL). `cost` is the realised cost of the noted decision; NULL if none was
noted. Rows of one `batch` were fed together. `about` holds the digest of the calibration that the scores
belong to. The state of a model is what replaying the rows in the order of `position` makes of the model file: the
database holds no other state that could disagree with it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge._support.files import replace_file, sole_writer
from polyhedge._support.frames import row_keys
from polyhedge._support.validation import Array
from polyhedge.decisions import Decisions
from polyhedge.diagnostics import Diagnostic, expected_cost_diagnostic
from polyhedge.model import Model
from polyhedge.monitoring.monitor import Monitoring, after_scores

_PATIENCE = 60.0
"""Seconds that a process waits for another to finish writing."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS decided (key TEXT PRIMARY KEY, decision TEXT NOT NULL, cost_bound REAL, "
    "radius REAL NOT NULL, decided TEXT NOT NULL, expected_cost REAL)",
    "CREATE TABLE IF NOT EXISTS outcomes (position INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, "
    "batch INTEGER NOT NULL, outcome TEXT NOT NULL, score REAL NOT NULL, radius REAL, origin TEXT NOT NULL, "
    "cost REAL, known TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


@dataclass(frozen=True)
class LoggedRow:
    """A row whose outcome is known, as the database has it.

    Attributes
    ----------
    key, known : its name, and when its outcome was noted.
    cost_bound, cost : of the decision that was noted under the key; None where none was.
    expected_cost : expected cost of the decision; None if the policy expects nothing.
    """

    key: str
    known: str
    cost_bound: float | None
    cost: float | None
    expected_cost: float | None = None


class OutcomeLog:
    """What one model decided, and the outcomes that are known; several processes may write at once.

    Parameters
    ----------
    path : of the database; it is made where it is missing.
    model : the fitted decider, or its model, as it stands in its file: before any of these rows.

    Examples
    --------
    >>> import polyhedge as ph
    >>> from tempfile import TemporaryDirectory
    >>> X, Y = ph.data.make_synthetic(200, rng=np.random.default_rng(0))
    >>> problem, learner = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
    >>> decider = ph.RobustDecider(problem, learner=learner, random_state=0).fit(X[:150], Y[:150])
    >>> with TemporaryDirectory() as folder:
    ...     log = ph.OutcomeLog(f"{folder}/outcomes.db", decider)
    ...     log.note(["mon", "tue"], decider.decide(X[150:152]))
    ...     monitored = decider.update(X[150:152], Y[150:152], keys=["mon", "tue"], log=log)
    >>> len(monitored.missed), monitored.was_recomputed
    (2, False)
    """

    def __init__(self, path: str | Path, model: Model | Any) -> None:
        if str(path) == ":memory:":  # SQLite's name for no file at all
            raise ValueError('A log is a file, which outlives the process; got ":memory:". Give it a path.')
        model = model if isinstance(model, Model) else model._fitted("OutcomeLog")
        self.path, self.model = Path(path), model
        if not self.path.exists() and self.path.parent.is_dir():
            self._begin()
        with self._writing() as database:
            for statement in _TABLES:
                database.execute(statement)
            digest = model.trail[-1].digest
            database.execute("INSERT OR IGNORE INTO about VALUES ('calibration', ?)", (digest,))
            (logged_digest,) = database.execute("SELECT value FROM about WHERE name = 'calibration'").fetchone()
        n_known = model.radii.n_rows
        if logged_digest != digest and n_known:
            raise ValueError(
                f"{self.path} replays all outcomes on the model as it was before them, and this one has taken in "
                f"{n_known} already. Open it with the file that was saved before any outcome; follow(log) then "
                "takes over what the log knows."
            )
        if logged_digest != digest:
            raise ValueError(
                f"{self.path} belongs to another calibration of the model: its scores are not this one's. Move it away "
                "to begin a new log."
            )

    def __repr__(self) -> str:
        return f"<OutcomeLog {self.path}>"

    def note(self, keys: Sequence[Any], decisions: Decisions) -> None:
        """Note what was decided, whole or not at all, so that outcomes count against the bounds that were issued.

        Whoever decides a key again before its outcome is known replaces what was decided before.

        Parameters
        ----------
        keys : what the rows are called: texts or numbers, each once.
        decisions : those of the rows, as `decide` returned them.
        """
        if decisions.radii is None or len(keys) != len(decisions):
            raise ValueError(
                f"There must be one key for each of {len(decisions)} decisions that decide returned, got {len(keys)}."
            )
        problem, now, keys = self.model.problem, _now(), row_keys(keys)
        n_auxiliary = problem.n_decisions - len(problem.decision_names)
        names = [*problem.decision_names, *(f"auxiliary_{k}" for k in range(n_auxiliary))]
        costs = np.full(len(keys), np.nan) if decisions.expected_cost is None else decisions.expected_cost
        numbers = decisions.cost_bound.tolist(), decisions.radii.tolist(), costs.tolist()
        rows = [
            (key, _as_json(names, z), _finite(bound), radius, now, _finite(expected))
            for key, z, bound, radius, expected in zip(keys, decisions.flat, *numbers, strict=True)
        ]
        with self._writing() as database:
            known = {key for (key,) in database.execute("SELECT key FROM outcomes")}
            fresh = [row for row in rows if row[0] not in known]
            database.executemany("INSERT OR REPLACE INTO decided VALUES (?, ?, ?, ?, ?, ?)", fresh)

    def add(
        self,
        keys: Sequence[Any],
        X: Any,
        Y: Any,
        radii: Array | None = None,
        *,
        parameters: Mapping[Any, Any] | None = None,
        labels: Any = None,
    ) -> int:
        """Note outcomes of rows, whole or not at all; how many were new.

        Parameters
        ----------
        keys : what the rows are called: texts or numbers, each once. Rows with keys that are known stay as they are.
        X, Y : the rows and their outcomes, as in `RobustDecider.fit`.
        radii : (N,) of the bounds that were issued; without them, those that were noted under the keys, and where
            nothing was noted, those that the model gives.
        parameters, labels : as in `RobustDecider.decide`.
        """
        model = self.model
        rows = model.read(X, Y, parameters, labels, to_score=True)
        scores, outcomes, values = model.scores(rows), rows.Y, rows.parameters
        keys = row_keys(keys, len(scores))
        computed: list[float | None] = [None] * len(scores)
        if not model.radii.follows_outcomes:
            computed = model.radii.at(rows).tolist()
        now, names = _now(), model.problem.outcome_names
        with self._writing() as database:
            (batch,) = database.execute("SELECT COALESCE(MAX(batch), 0) FROM outcomes").fetchone()
            had_none, entries = None, list[tuple[Any, ...]]()
            for i, key in enumerate(keys):
                query = "SELECT decision, radius FROM decided WHERE key = ?"
                decision, noted = database.execute(query, (key,)).fetchone() or (None, None)
                radius, origin = computed[i], "online" if computed[i] is None else "computed"
                if radii is not None:
                    radius, origin = float(radii[i]), "given"
                elif noted is not None:
                    radius, origin = noted, "log"
                # Rows that follow from those before are replayed without radii, so they have batches of their own.
                batch, had_none = batch + (had_none != (radius is None)), radius is None
                z = np.array([] if decision is None else list(json.loads(decision).values()), dtype=np.float64)
                cost = None  # unless a decision was noted
                if len(z) and np.isfinite(z).all():
                    at = None if values is None else values[[i]]
                    cost = _finite(float(model.problem.evaluate(z[None], outcomes[[i]], at)[0]))
                entries.append((key, batch, _as_json(names, outcomes[i]), float(scores[i]), radius, origin, cost, now))
            count = database.total_changes
            database.executemany(
                "INSERT OR IGNORE INTO outcomes (key, batch, outcome, score, radius, origin, cost, known) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                entries,
            )
            return database.total_changes - count

    def replay(self) -> tuple[Model, Monitoring]:
        """The model after all rows, and its coverage since calibration: the same wherever it is replayed."""
        with self._open() as database:
            rows = database.execute("SELECT batch, score, radius, origin FROM outcomes ORDER BY position").fetchall()
        model, so_far = self.model, Monitoring.of(self.model)
        for _, batch in groupby(rows, key=lambda row: row[0]):
            _, scores, radii, origins = zip(*batch, strict=True)
            issued = None if radii[0] is None else np.array(radii, dtype=np.float64)
            model, so_far = after_scores(model, so_far, np.array(scores, dtype=np.float64), issued, repr(scores))
            so_far = replace(so_far, was_recomputed=so_far.was_recomputed or "computed" in origins)
        return model, so_far

    def keys(self) -> list[str]:
        """The names of the rows whose outcomes are known, in the order in which they were noted."""
        with self._open() as database:
            return [key for (key,) in database.execute("SELECT key FROM outcomes ORDER BY position")]

    def history(self) -> list[LoggedRow]:
        """The rows whose outcomes are known, in the order in which they were noted."""
        columns = "key, known, cost_bound, cost, expected_cost"
        query = f"SELECT {columns} FROM outcomes LEFT JOIN decided USING (key) ORDER BY position"
        with self._open() as database:
            return [LoggedRow(*row) for row in database.execute(query)]

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Whether coverage is notably above the promise, and expected costs are far from realised ones."""
        rows = self.history()
        costs = np.array([[row.expected_cost, row.cost] for row in rows], dtype=np.float64).reshape(-1, 2)
        return (*self.replay()[1].diagnostics, *expected_cost_diagnostic(*costs.T))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)) as database:
                # A file of a stranger may have views and triggers: they must not call anything.
                database.execute("PRAGMA trusted_schema = OFF")
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = FULL")
                yield database
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _begin(self) -> None:
        """Make the database, whole or not at all: SQLite would leave an empty file where the disk is full."""
        with closing(sqlite3.connect(":memory:")) as database:
            for statement in _TABLES:
                database.execute(statement)
            database.commit()
            content = database.serialize()
        try:
            with sole_writer(self.path):
                if not self.path.exists():
                    replace_file(self.path, content)
        except OSError as error:
            if not self.path.exists():  # else another process has made it meanwhile
                raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> ValueError:
        return ValueError(
            f"{self.path} must be a database of outcomes that can be read and written: {str(error).rstrip('.')}. What "
            "it held is as it was. Free the disk or the folder, or move the file away to begin a new log."
        )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction; nobody else writes meanwhile."""
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                if database.in_transaction:  # where the disk is full, SQLite has rolled back already
                    database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")


def _as_json(names: Sequence[str], values: Array) -> str:
    """An object by name; what is not a number is null, because JSON has no NaN."""
    return json.dumps(dict(zip(names, map(_finite, np.asarray(values).ravel().tolist()), strict=True)))


def _finite(value: float) -> float | None:
    """SQLite has no NaN; an infinite bound is none."""
    return value if np.isfinite(value) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
