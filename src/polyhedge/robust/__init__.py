"""Set x problem -> decision: the worst case, the dual counterpart, column-and-constraint generation."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.robust.adversary import Adversary as Adversary, WorstCase as WorstCase
    from polyhedge.robust.counterpart import Counterpart as Counterpart
    from polyhedge.robust.routes import decide as decide, decide_knowing as decide_knowing
    from polyhedge.robust.scenarios import decide_by_scenarios as decide_by_scenarios
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
