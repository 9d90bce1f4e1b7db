"""The learners of the scaling experiment, and how long each may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polyhedge.learners import CCG, Descent, Learner, Pinball, Scenario
from polyhedge_study.inside import check_count
from polyhedge_study.learners.bilinear import check_installed
from polyhedge_study.learners.miqcp import MIQCP

__all__ = ["METHODS", "MODES", "Method", "ScalingSettings"]

MODES = ("single", "shared")


@dataclass(frozen=True)
class ScalingSettings:
    """What is run, and how long it may take.

    Attributes
    ----------
    task : "linear", "quadratic" or "newsvendor", on the synthetic data.
    sizes : learning samples n, in the order in which they are run.
    seeds : seeds 0, 1, ... of the data; all sizes and methods of a seed are done before the next one starts.
    alpha : miscoverage level.
    tolerance : relative gap at which a run counts as certified.
    n_train, n_calibrate, n_test : rows of the other splits.
    exact_limit : seconds for Scenario, CCG and MIQCP with aggregated rows on one context.
    printed_limit : seconds for MIQCP without aggregated rows, which hardly ever ends by itself.
    shared_limit : seconds for MIQCP on `shared_contexts` contexts.
    heuristic_limit : seconds for Pinball and Descent.
    max_nodes : nodes of MIQCP's search tree.
    shared_contexts : contexts that MIQCP plans for in the shared mode.
    budget : seconds for the whole run; what does not fit is left out and can be added by running again.
    """

    task: str = "linear"
    sizes: tuple[int, ...] = (20, 40, 80, 160, 300, 600)
    seeds: int = 5
    alpha: float = 0.1
    tolerance: float = 1e-4
    n_train: int = 1200
    n_calibrate: int = 300
    n_test: int = 1000
    exact_limit: float = 60.0
    printed_limit: float = 3.0
    shared_limit: float = 3.0
    heuristic_limit: float = 5.0
    max_nodes: int = 20_000
    shared_contexts: int = 4
    budget: float = 840.0

    def __post_init__(self) -> None:
        if self.task not in ("linear", "quadratic", "newsvendor"):
            raise ValueError(f"task must be linear, quadratic or newsvendor, got {self.task!r}.")
        check_count(self.seeds, "seeds", minimum=1)

    @classmethod
    def quick(cls, task: str = "linear", seeds: int = 2) -> ScalingSettings:
        """Few sizes, at most two seeds and short limits: under two minutes."""
        return cls(
            task,
            sizes=(20, 80, 300),
            seeds=min(seeds, 2),
            exact_limit=15.0,
            printed_limit=1.5,
            shared_limit=2.0,
            heuristic_limit=3.0,
            budget=100.0,
        )


@dataclass(frozen=True)
class Method:
    """One learner of the comparison.

    Attributes
    ----------
    name : as it stands in the results.
    make : settings, time limit and n -> learner.
    limit : which of the settings' limits applies in each mode; a mode without one is left out ...
    reason : ... for this reason.
    needs_scip : whether SCIP must be installed.
    """

    name: str
    make: Callable[[ScalingSettings, float, int], Learner]
    limit: dict[str, str]
    reason: str = ""
    needs_scip: bool = False

    def missing(self) -> str:
        """Why the method cannot run here; empty if it can."""
        try:
            if self.needs_scip:
                check_installed()
        except ImportError as error:
            return str(error)
        return ""


def _miqcp(**added: Any) -> Callable[[ScalingSettings, float, int], Learner]:
    def make(settings: ScalingSettings, limit: float, n: int) -> Learner:
        gap = settings.tolerance / 2
        return MIQCP(time_limit=limit, max_nodes=settings.max_nodes, relative_gap=gap, **added)

    return make


# What each adds to the program of Corollary 1, whose scale is free: a sum of multipliers; binaries that normalise every
# facet; these and aggregated rows.
_SUM: dict[str, Any] = {"normalisation": "multipliers", "aggregated_rows": False}
_BINARIES: dict[str, Any] = {"aggregated_rows": False}
_SINGLE_ONLY = "it does not certify even one context"

METHODS = (
    Method(
        "Scenario",
        lambda settings, limit, n: Scenario(time_limit=limit),
        {"single": "exact_limit", "shared": "exact_limit"},
    ),
    Method(
        "CCG",
        lambda settings, limit, n: CCG(tolerance=1e-6, time_limit=limit),
        {"single": "exact_limit"},
        reason="its master has a decision and cuts for every context",
    ),
    Method(
        "Descent",
        lambda settings, limit, n: Descent(max_contexts=n),
        {"single": "heuristic_limit", "shared": "heuristic_limit"},
    ),
    Method(
        "Pinball",
        lambda settings, limit, n: Pinball(max_contexts=n),
        {"single": "heuristic_limit", "shared": "heuristic_limit"},
    ),
    Method(
        "MIQCP + binaries + rows (SCIP)", _miqcp(), {"single": "exact_limit", "shared": "shared_limit"}, needs_scip=True
    ),
    *(
        Method(name, _miqcp(**added), {"single": "printed_limit"}, reason=reason, needs_scip=True)
        for name, added, reason in (
            ("MIQCP + binaries (SCIP)", _BINARIES, _SINGLE_ONLY),
            ("MIQCP + 1'lambda = 1 (SCIP)", _SUM, "it is a program for one context"),
        )
    ),
)
