"""What was decided and what came, in a SQLite database beside the model, so that a kill at any point loses nothing.

The schema, which anybody may query::

    outcomes(position INTEGER PRIMARY KEY, key TEXT UNIQUE, batch INTEGER, score REAL, radius REAL, known TEXT)
    about(name TEXT PRIMARY KEY, value TEXT)

`score` is the least radius at which the outcome would have been covered. `radius` is that of the bound that was issued,
NULL where it follows from the rows before; rows of one `batch` were fed together. A row is missed where score > radius.
`about` holds the digest of the calibration that the scores belong to. The state of a model is what replaying the rows
in the order of `position` makes of the model file: the database holds no other state that could disagree with it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge._validation import Array
from polyhedge.calibration import FollowingRadii, Rows
from polyhedge.following import Followed, after_scores, not_followed
from polyhedge.model import Model

_PATIENCE = 60.0
"""Seconds that a process waits for another to finish writing."""
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS outcomes (position INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, "
    "batch INTEGER NOT NULL, score REAL NOT NULL, radius REAL, known TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


class OutcomeLog:
    """The rows of one model whose outcomes are known; several processes may write at once.

    Parameters
    ----------
    path : of the database; it is made where it is missing.
    model : as it stands in its file, before any of these rows.
    """

    def __init__(self, path: str | Path, model: Model) -> None:
        self.path, self.model = Path(path), model
        with self._writing() as database:
            for statement in _SCHEMA:
                database.execute(statement)
            digest = model.trail[-1].digest
            database.execute("INSERT OR IGNORE INTO about VALUES ('calibration', ?)", (digest,))
            (found,) = database.execute("SELECT value FROM about WHERE name = 'calibration'").fetchone()
        if found != digest:
            raise ValueError(
                f"{self.path} belongs to another calibration of the model: its scores are not this one's. Move it away "
                "to begin a new log."
            )

    def add(self, keys: Sequence[str], X: Any, Y: Any, radii: Array | None = None) -> int:
        """Note outcomes of rows, one a key, whole or not at all; how many were new.

        `radii` (N,) are those of the bounds that were issued. Rows whose keys are known already are left as they are.
        """
        scores = self.model.scores(X, Y)
        if len(keys) != len(scores):
            raise ValueError(f"There must be one key for each of {len(scores)} rows, got {len(keys)}.")
        if radii is None and not isinstance(self.model.radii, FollowingRadii):
            radii = self.model.radii.at(Rows(self.model.features(X), len(scores)))
        issued = [None] * len(scores) if radii is None else np.asarray(radii, dtype=np.float64).tolist()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._writing() as database:
            (batch,) = database.execute("SELECT COALESCE(MAX(batch), 0) + 1 FROM outcomes").fetchone()
            before = database.total_changes
            database.executemany(
                "INSERT OR IGNORE INTO outcomes (key, batch, score, radius, known) VALUES (?, ?, ?, ?, ?)",
                [
                    (str(key), batch, score, radius, now)
                    for key, score, radius in zip(keys, scores.tolist(), issued, strict=True)
                ],
            )
            return database.total_changes - before

    def replay(self) -> tuple[Model, Followed]:
        """The model after all rows, and what came of its bounds: the same, bit for bit, wherever it is replayed."""
        with self._open() as database:
            rows = database.execute("SELECT batch, score, radius FROM outcomes ORDER BY position").fetchall()
        model, so_far = self.model, not_followed(self.model)
        for _, batch in groupby(rows, key=lambda row: row[0]):
            _, scores, radii = zip(*batch, strict=True)
            issued = None if radii[0] is None else np.array(radii, dtype=np.float64)
            model, so_far = after_scores(model, so_far, np.array(scores, dtype=np.float64), issued, repr(scores))
        return model, so_far

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            yield database
        finally:
            database.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction; nobody else writes meanwhile."""
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
