"""Residuals x problem -> set: one file an algorithm, one place for the learning objective."""

from polyhedge.learners.bound import CertifiedBound
from polyhedge.learners.certificate import lower_bound
from polyhedge.learners.descent import Descent
from polyhedge.learners.objective import LearningObjective
from polyhedge.learners.result import Learner, LearnResult
from polyhedge.learners.scenario import Scenario

__all__ = ["CertifiedBound", "Descent", "LearnResult", "Learner", "LearningObjective", "Scenario", "lower_bound"]
