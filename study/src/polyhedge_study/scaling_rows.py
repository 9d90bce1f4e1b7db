"""Rows of the scaling experiment, and the files that keep them between runs."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from polyhedge._files import replace_file
from polyhedge_study.machine import source_fingerprint
from polyhedge_study.scaling_methods import ScalingSettings
from polyhedge_study.tidy import TidyTable

__all__ = ["ScalingRow", "ScalingStore"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScalingRow:
    """One method on one learning split.

    Attributes
    ----------
    mode, n, method, seed : which run.
    status : how the learner ended; FAILED where it raised an error, which is in `detail`.
    seconds, limit : wall-clock time of `learn`, and its time limit.
    n_contexts, planned_contexts : contexts of the objective, and those that the learner planned for.
    objective : mean worst-case cost over all contexts of the mode at the learning radius.
    lower_bound : the learner's own bound for these contexts (-inf where it proves none).
    gap : objective - lower_bound.
    certified : whether the gap is at most the tolerance times the objective's size (or 1e-7).
    nominal : mean cost over these contexts if the predictions were true; objective - nominal is the premium.
    recalibrated : mean worst-case cost over the same contexts at the calibrated radius.
    test_cost, test_premium, test_coverage : mean worst-case cost, the same less the nominal cost, and the share of
        outcomes inside their sets, on the test split.
    detail : what the learner says about its result.
    """

    mode: str
    n: int
    method: str
    seed: int
    status: str
    seconds: float
    limit: float
    n_contexts: int
    planned_contexts: int
    objective: float
    lower_bound: float
    gap: float
    certified: bool
    nominal: float
    recalibrated: float
    test_cost: float
    test_premium: float
    test_coverage: float
    detail: str

    @property
    def key(self) -> tuple[str, int, str, int]:
        """(mode, n, method, seed)."""
        return self.mode, self.n, self.method, self.seed


class ScalingStore:
    """`<stem>.csv` and `<stem>.json` in a folder; a killed run leaves whole rows."""

    def __init__(self, folder: Path, stem: str, settings: ScalingSettings, machine: dict[str, Any]) -> None:
        self.table = TidyTable(folder / f"{stem}.csv", ScalingRow)
        self.about = folder / f"{stem}.json"
        seeds, source = list(range(settings.seeds)), source_fingerprint()
        self.record = {"settings": asdict(settings), "seeds": seeds, "machine": machine, "source": source}

    def known(self) -> list[ScalingRow]:
        """Rows of an earlier run with the same code, settings and machine; else a fresh start, others set aside."""
        same = json.loads(json.dumps(self.record))
        try:
            if json.loads(self.about.read_text(encoding="utf-8")) == same:
                return self.table.recover()
        except (OSError, ValueError, KeyError) as error:
            logger.debug("No earlier rows: %s", error)
        # Before the record changes: rows of other settings beside it would pass for its own.
        self.table.set_aside("older")
        replace_file(self.about, (json.dumps(self.record, indent=2) + "\n").encode())
        self.table.write([])
        return []
