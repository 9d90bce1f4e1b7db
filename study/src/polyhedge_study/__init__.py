"""The paper's tasks, and what the library achieves on them."""

from typing import TYPE_CHECKING

from polyhedge_study.inside import lazy

if TYPE_CHECKING:
    from polyhedge_study.demo import (
        Comparison as Comparison,
        Row as Row,
        bonferroni_box as bonferroni_box,
        compare as compare,
        draw_sets as draw_sets,
    )
    from polyhedge_study.tasks import (
        TASKS as TASKS,
        Task as Task,
        energy_task as energy_task,
        make_task as make_task,
        synthetic_task as synthetic_task,
    )
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
