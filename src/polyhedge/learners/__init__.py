"""Samples -> set: one file an algorithm, one place for the learning objective (`objective`)."""

from typing import TYPE_CHECKING

from polyhedge._support.lazy import lazy

if TYPE_CHECKING:
    from polyhedge.learners.auto import Auto as Auto, Certified as Certified
    from polyhedge.learners.descent import Descent as Descent
    from polyhedge.learners.exact.bound import CertifiedBound as CertifiedBound
    from polyhedge.learners.exact.scenario import Scenario as Scenario, lower_bound as lower_bound
    from polyhedge.learners.one_sided_box import OneSidedBox as OneSidedBox
    from polyhedge.learners.paper.boxes import PcaBox as PcaBox
    from polyhedge.learners.paper.ccg import CCG as CCG
    from polyhedge.learners.paper.pinball import Pinball as Pinball
    from polyhedge.learners.samples import (
        Learner as Learner,
        LearnResult as LearnResult,
        Needs as Needs,
        Samples as Samples,
    )
    from polyhedge.learners.spread import (
        Spread as Spread,
        choose_spread as choose_spread,
        learn_with_spread as learn_with_spread,
    )
else:  # imported when they are first used
    __getattr__, __dir__, __all__ = lazy(__name__)
