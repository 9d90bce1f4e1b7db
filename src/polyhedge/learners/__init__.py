"""Residuals x problem -> set: one file an algorithm, one place for the learning objective."""

from polyhedge.learners.descent import Descent
from polyhedge.learners.objective import LearningObjective
from polyhedge.learners.result import Learner, LearnResult

__all__ = ["Descent", "LearnResult", "Learner", "LearningObjective"]
