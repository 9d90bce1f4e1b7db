"""The paper's tasks, and what the library achieves on them."""

from typing import TYPE_CHECKING

from polyhedge_study.inside import lazy

if TYPE_CHECKING:
    from polyhedge_study.demo import Comparison, Row, bonferroni_box, compare, draw_sets
    from polyhedge_study.tasks import TASKS, Task, energy_task, make_task, synthetic_task
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "TASKS",
    "Comparison",
    "Row",
    "Task",
    "bonferroni_box",
    "compare",
    "draw_sets",
    "energy_task",
    "make_task",
    "synthetic_task",
]
