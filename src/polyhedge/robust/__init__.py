"""Set x problem -> decision: the worst case, the dual counterpart, column-and-constraint generation."""

from polyhedge.decisions import Decisions
from polyhedge.robust.adversary import Adversary, WorstCase
from polyhedge.robust.counterpart import Counterpart
from polyhedge.robust.decide import decide
from polyhedge.robust.nominal import decide_knowing
from polyhedge.robust.scenarios import decide_by_scenarios

__all__ = [
    "Adversary",
    "Counterpart",
    "Decisions",
    "WorstCase",
    "decide",
    "decide_by_scenarios",
    "decide_knowing",
]
