r"""The box along principal components, a polyhedron with 2 d facets: our reading of an ablation of the paper.

A box with orthonormal frame U and half-widths a is $\{e : |u_j^\top e| \le r a_j\}$. The paper leaves details open. We
read it so: boxes are centred at the prediction. Half-widths are the standard deviations of the learning residuals along
the frame. Facets keep the row norm $1 / a_j$, so that calibration grows a box in proportion.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhedge._support.validation import Array
from polyhedge.learners.samples import Learner, LearnResult, Samples, standard_deviations
from polyhedge.learners.starts import principal_frame
from polyhedge.problems import NoSolutionError
from polyhedge.robust import decide
from polyhedge.sets import Polyhedron
from polyhedge.solvers.program import Status


@dataclass(frozen=True)
class PcaBox(Learner):
    r"""The paper's ablation "Polyhedron": nothing is optimised and the problem is ignored.

    $$\{e : |u_j^\top e| \le r \sigma_j\},\quad \text{cov}(\epsilon) = \sum_j \sigma_j^2 u_j u_j^\top$$

    Parameters
    ----------
    max_contexts : as in `Learner`, for the reported objective

    Examples
    --------
    >>> import polyhedge as ph
    >>> residuals, centers = np.random.default_rng(0).normal(size=(2, 40, 2))
    >>> samples = ph.learners.Samples(residuals, centers, ph.problems.simplex_linear([0.0, 0.0]), 0.1)
    >>> len(PcaBox().learn(samples).set.b)
    4
    """

    max_contexts: int = 300

    def learn(self, samples: Samples, random_state: Any = None) -> LearnResult:
        """Take principal components and standard deviations of the learning split; see `Learner`."""
        began = time.perf_counter()
        shape = at_learning_radius(samples, box(principal_frame(samples.residuals), samples.residuals))
        return LearnResult(
            set=shape,
            objective=mean_cost(samples, shape, self.max_contexts),
            status=Status.OPTIMAL,
            seconds=time.perf_counter() - began,
            detail="box along the principal components of the learning residuals",
            scores_in="spreads",
        )


def mean_cost(samples: Samples, shape: Polyhedron, max_contexts: int | None, *, must_be_finite: bool = False) -> float:
    """The objective over some contexts, inf where one of them has no decision; an error where none has."""
    contexts = samples.scored_contexts(max_contexts)
    value = samples.value(shape, contexts)
    if not np.isfinite(value):
        decisions = decide(samples.problem, shape, samples.radius(shape), samples.centers[contexts])
        if must_be_finite or not np.isfinite(decisions.cost_bound).any():
            raise NoSolutionError(
                f"A box has no finite worst-case cost on the learning split. {decisions.complaint()}. Relax the "
                "constraints, bound the decision or drop such rows."
            )
    return value


def box(frame: Array, residuals: Array, aspects: Array | None = None) -> Polyhedron:
    """The box along orthonormal rows; half-widths at radius 1 are standard deviations times aspects."""
    half_widths = standard_deviations(residuals @ frame.T) * (1.0 if aspects is None else aspects)
    W = frame / half_widths[:, None]
    return Polyhedron(np.vstack([W, -W]), np.zeros(2 * len(frame)))


def at_learning_radius(samples: Samples, shape: Polyhedron) -> Polyhedron:
    """The same shape with radius 0 at the conformal radius of the learning split; row norms stay."""
    return Polyhedron(shape.W, shape.b - samples.radius(shape))
