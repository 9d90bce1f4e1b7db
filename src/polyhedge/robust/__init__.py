"""Set x problem -> decision: the worst case, the dual counterpart, column-and-constraint generation."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.robust.adversary import Adversary, WorstCase
    from polyhedge.robust.counterpart import Counterpart
    from polyhedge.robust.routes import decide, decide_knowing
    from polyhedge.robust.scenarios import decide_by_scenarios
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["Adversary", "Counterpart", "WorstCase", "decide", "decide_by_scenarios", "decide_knowing"]
