"""Decisions with recourse: our exact worst case, and decision rules of peers, over the same calibrated regions.

A decider with guarantee="outcome" is fitted to the bakeries' table. The region of each of some test rows goes to all:
ours by column-and-constraint generation, PyROS by static and affine rules, RSOME by an affine rule. Peers run in an
environment of their own, as in `peers.py`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import polyhedge as ph
from polyhedge.data.splits import evenly_chosen
from polyhedge_study.grid import Grid
from polyhedge_study.inside import Array
from polyhedge_study.recourse import CASES
from polyhedge_study.speed.peers import Peer, install

__all__ = ["PEERS", "RuleRow", "compare_rules", "rules_grid"]

PEERS = (
    Peer("PyROS", ("pyomo", "highspy", "numpy", "scipy"), "peer_pyros_recourse.txt"),
    Peer("RSOME", ("rsome", "ecos"), "peer_rsome_recourse.txt"),
)
_PRICES = (1.0, 4.0, 1.0)
"""Left over, missing and moved: those of the case."""


@dataclass(frozen=True)
class RuleRow:
    """A way to decide: mean bound over the rows, CPU seconds of one row, or the reason why there is none."""

    name: str
    bound: float
    seconds: float
    reason: str = ""


def compare_rules(
    environment: Path, *, n_rows: int = 5, budget: float = 120.0, peers: Sequence[Peer] = PEERS, seed: int = 0
) -> list[RuleRow]:
    """Ours and the peers' decisions at some test rows, over the same regions; and ours with guarantee="cost"."""
    case = CASES["bakeries"]()
    X, Y = (part.to_numpy(dtype=np.float64)[-900:] for part in case.table)
    order = np.random.default_rng(seed).permutation(len(Y))
    train, learn, calibrate, test = np.split(order, [405, 585, 720])
    parts: dict[str, Any] = {"train": train, "learn": learn, "calibrate": calibrate}
    rows = X[test[evenly_chosen(len(test), n_rows)]]

    def decided(guarantee: str) -> tuple[Any, Array, float]:
        decider = ph.RobustDecider(case.both, "ridge", guarantee=guarantee, random_state=seed).fit(X, Y, **parts)
        before = process_time()
        bounds = decider.decide(rows).cost_bound
        return decider, bounds, (process_time() - before) / len(rows)

    decider, exact, seconds = decided("outcome")
    found = [RuleRow("Polyhedge, exact over the set", float(exact.mean()), seconds)]
    _, bounds, seconds = decided("cost")
    found.append(RuleRow('Polyhedge, guarantee="cost"', float(bounds.mean()), seconds))
    regions = [decider.region(row) for row in rows]
    job = {
        "n": Y.shape[1],
        "prices": _PRICES,
        "W": regions[0].W.tolist(),
        "h": [region.h.tolist() for region in regions],
        "centers": [region.center.tolist() for region in regions],
        "budget": budget,
    }
    for peer in peers:
        python, reason = install(peer, environment, 1800.0)
        answers = {} if reason else _asked(peer, python, job, budget * n_rows * 2 + 60)
        rules = answers.get("rules", {"": {"reason": reason or answers.get("reason", "no answer")}})
        for rule, answer in rules.items():
            name = f"{peer.name} {answers.get('version', '')}, {rule} rule"
            values = answer.get("values")
            found.append(
                RuleRow(name, np.nan, np.nan, answer.get("reason", ""))
                if values is None
                else RuleRow(name, float(np.mean(values)), answer["seconds"])
            )
    return found


def _asked(peer: Peer, python: Path, job: dict[str, Any], limit: float) -> dict[str, Any]:
    script = resources.files("polyhedge_study.speed").joinpath(peer.script)
    with tempfile.TemporaryDirectory() as folder, resources.as_file(script) as path:
        given, answers = Path(folder) / "job.json", Path(folder) / "answers.json"
        given.write_text(json.dumps(job), encoding="utf-8")
        try:
            command = [str(python), str(path), str(given), str(answers)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"reason": f"did not run: {error}"}
        if done.returncode:
            return {"reason": f"did not run: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"}
        found: dict[str, Any] = json.loads(answers.read_text(encoding="utf-8"))
        return found


def rules_grid(rows: Sequence[RuleRow]) -> Grid:
    """Bound and time of every way to decide."""
    first = rows[0]
    lines = [
        (row.name, row.reason, "", "")
        if row.reason
        else (row.name, f"{row.bound:.4g}", f"{100 * (row.bound / first.bound - 1):+.1f}", f"{row.seconds:.3g}")
        for row in rows
    ]
    note = "Mean bound over the same rows of the bakeries' table, and CPU seconds of one row."
    return Grid("Recourse over the same regions", ("way", "bound", "above exact, %", "CPU s a row"), tuple(lines), note)
