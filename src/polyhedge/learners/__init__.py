"""Samples -> set: one file an algorithm, one place for the learning objective (`objective`)."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.learners.auto import Auto, Certified
    from polyhedge.learners.descent import Descent
    from polyhedge.learners.exact.bound import CertifiedBound
    from polyhedge.learners.exact.scenario import Scenario, lower_bound
    from polyhedge.learners.one_sided_box import OneSidedBox
    from polyhedge.learners.paper.boxes import MinVolume, PcaBox, RotatedBoxGrid
    from polyhedge.learners.paper.ccg import CCG
    from polyhedge.learners.paper.miqcp import MIQCP
    from polyhedge.learners.paper.pinball import Pinball
    from polyhedge.learners.samples import Learner, LearnResult, Needs, Samples
    from polyhedge.learners.spread import Spread, choose_spread, learn_with_spread
else:  # imported when they are first used
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "CCG",
    "MIQCP",
    "Auto",
    "Certified",
    "CertifiedBound",
    "Descent",
    "LearnResult",
    "Learner",
    "MinVolume",
    "Needs",
    "OneSidedBox",
    "PcaBox",
    "Pinball",
    "RotatedBoxGrid",
    "Samples",
    "Scenario",
    "Spread",
    "choose_spread",
    "learn_with_spread",
    "lower_bound",
]
