"""Peers on the same sets: each in a bench environment of its own, as a child process that reads and writes JSON.

No peer is imported here. Their scripts are text files beside this one; the command makes the environment with
`python -m venv` and installs the peers from the package registry.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from polyhedge.robust import decide
from polyhedge.sets import Ball, Shape
from polyhedge_study.inside import Array
from polyhedge_study.speed.cases import Instance, Regime, draw
from polyhedge_study.tasks import advantage

__all__ = ["PEERS", "Peer", "PeerRow", "PeersRun", "PeersSettings", "run_peers"]

# Peers solve conic programs with their solvers' usual tolerances.
TOLERANCE = 1e-6
SETS = ("polyhedron", "linf", "l1", "l2")
_ORDER = {"linf": np.inf, "l1": 1, "l2": 2}


@dataclass(frozen=True)
class Peer:
    """A package to compare with: what pip installs, and the script that runs it."""

    name: str
    packages: tuple[str, ...]
    script: str


PEERS = (Peer("robbuffet", ("robbuffet",), "peer_robbuffet.txt"), Peer("RSOME", ("rsome", "ecos"), "peer_rsome.txt"))


@dataclass(frozen=True)
class PeersSettings:
    """What is timed.

    Attributes
    ----------
    outcomes : numbers of outcomes d; the polyhedron has K = 4 d facets.
    sets : some of "polyhedron", "linf", "l1" and "l2".
    n_contexts : predictions for ours; a peer solves as many as it can in its time.
    budget : seconds for a peer on one set.
    install_limit : seconds for the installation of a peer.
    seed : of all draws.
    """

    outcomes: tuple[int, ...] = (2, 5, 10)
    sets: tuple[str, ...] = SETS
    n_contexts: int = 2_000
    budget: float = 3.0
    install_limit: float = 1800.0
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> PeersSettings:
        """Two numbers of outcomes and a second a set."""
        return cls(outcomes=(2, 5), n_contexts=500, budget=1.0, seed=seed)


@dataclass(frozen=True)
class PeerRow:
    """One peer on one set.

    Attributes
    ----------
    peer, version, set, d, K : what was run; K is 0 for balls.
    timed, seconds : contexts that the peer solved, and its median time for one.
    ours : our time for one context, of `n_contexts`: the longer one of before and after the peer.
    ratio : seconds over ours.
    difference : largest difference of the optimal values.
    reason : why there is no time.
    """

    peer: str
    version: str
    set: str
    d: int
    K: int
    timed: int
    seconds: float
    ours: float
    ratio: float
    difference: float
    reason: str = ""

    @property
    def equal(self) -> bool | None:
        """Whether the optimal values agree within 1e-6; None where there are none."""
        return None if self.reason else bool(self.difference <= TOLERANCE)


@dataclass(frozen=True)
class PeersRun:
    """All rows with what made them."""

    settings: PeersSettings
    machine: dict[str, Any]
    rows: tuple[PeerRow, ...] = ()


Report = Callable[[PeersRun, str], None]


def run_peers(
    settings: PeersSettings,
    machine: dict[str, Any],
    environment: Path,
    *,
    peers: Sequence[Peer] = PEERS,
    report: Report | None = None,
) -> PeersRun:
    """Install each peer into `environment`, run it there on the sets, and compare times and values with ours."""
    say: Report = report if report is not None else lambda run, text: None
    run = PeersRun(settings, machine)
    cases = [_Case.of(name, d, settings) for d in settings.outcomes for name in settings.sets]
    for peer in peers:
        say(run, f"installing {peer.name}")
        python, reason = install(peer, environment, settings.install_limit)
        say(run, peer.name)
        answers = _ask(peer, python, cases, settings) if not reason else _Answers("", [{"reason": reason}] * len(cases))
        cases = [case.timed_again() for case in cases]
        rows = [_row(peer, answers.version, case, answer) for case, answer in zip(cases, answers.by_case, strict=True)]
        run = PeersRun(settings, machine, (*run.rows, *rows))
    say(run, "")
    return run


def install(peer: Peer, environment: Path, limit: float) -> tuple[Path, str]:
    """The Python of the bench environment with the peer in it; a reason where it could not be installed."""
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages]
    steps = [pip] if python.exists() else [[sys.executable, "-m", "venv", str(environment)], pip]
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True, timeout=limit)
        except (OSError, subprocess.TimeoutExpired) as error:
            return python, f"could not be installed: {error}"
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return python, f"could not be installed: {(errors or done.stderr.splitlines() or ['no message'])[-1]}"
    return python, ""


@dataclass(frozen=True)
class _Answers:
    version: str
    by_case: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class _Case:
    """A set with its predictions, our values and our time for one context."""

    name: str
    instance: Instance
    shape: Shape
    radius: float
    values: Array
    seconds: float

    @classmethod
    def of(cls, name: str, d: int, settings: PeersSettings) -> _Case:
        instance = draw(Regime(name, "linear", d, 4 * d, settings.n_contexts), settings.seed)
        shape: Shape = instance.shape if name == "polyhedron" else Ball(d, norm=_ORDER[name])
        radius = instance.radius if name == "polyhedron" else 1.0
        decide(instance.problem, shape, radius, instance.centers[:3])
        values, seconds = _timed(instance, shape, radius)
        return cls(name, instance, shape, radius, values, seconds)

    def timed_again(self) -> _Case:
        """With the longer of two times, before and after a peer: the load of the machine may have changed."""
        return replace(self, seconds=max(self.seconds, _timed(self.instance, self.shape, self.radius)[1]))

    def job(self, budget: float) -> dict[str, Any]:
        """What a peer's script reads."""
        instance = self.instance
        return {
            "set": self.name,
            "c": advantage(instance.regime.d).tolist(),
            "W": instance.shape.W.tolist(),
            "q": instance.q.tolist(),
            "radius": self.radius,
            "centers": instance.centers.tolist(),
            "budget": budget,
        }


def _timed(instance: Instance, shape: Shape, radius: float) -> tuple[Array, float]:
    began = time.perf_counter()
    decisions = decide(instance.problem, shape, radius, instance.centers)
    return decisions.cost_bound, (time.perf_counter() - began) / len(instance.centers)


def _ask(peer: Peer, python: Path, cases: Sequence[_Case], settings: PeersSettings) -> _Answers:
    """Run the peer's script; one that dies is a reason for all its rows."""
    script = resources.files("polyhedge_study.speed").joinpath(peer.script)
    # A minute to import what it needs, and ten times what it is asked to take.
    limit = 60.0 + 10 * settings.budget * len(cases)
    with tempfile.TemporaryDirectory() as folder, resources.as_file(script) as path:
        jobs, answers = Path(folder) / "jobs.json", Path(folder) / "answers.json"
        jobs.write_text(json.dumps([case.job(settings.budget) for case in cases]), encoding="utf-8")
        try:
            done = subprocess.run(
                [str(python), str(path), str(jobs), str(answers)], capture_output=True, text=True, timeout=limit
            )
            content = json.loads(answers.read_text(encoding="utf-8")) if not done.returncode else None
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return _Answers("", [{"reason": f"did not run: {error}"}] * len(cases))
    if content is None:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return _Answers("", [{"reason": f"did not run: {last}"}] * len(cases))
    return _Answers(content["version"], content["answers"])


def _row(peer: Peer, version: str, case: _Case, answer: dict[str, Any]) -> PeerRow:
    values = np.array(answer.get("values", []), dtype=float)
    seconds = float(answer["seconds"]) if len(values) else np.nan
    difference = float(np.abs(values - case.values[: len(values)]).max()) if len(values) else np.nan
    regime = case.instance.regime
    return PeerRow(
        peer=peer.name,
        version=version,
        set=case.name,
        d=regime.d,
        K=regime.K if case.name == "polyhedron" else 0,
        timed=len(values),
        seconds=seconds,
        ours=case.seconds,
        ratio=seconds / case.seconds,
        difference=difference,
        reason=" ".join(str(answer.get("reason", "")).split()),
    )
