"""Sets whose residuals are some factor larger: of any shape, by its own way where it has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyhedge._support.validation import Array, as_rows
from polyhedge.sets.shape import (
    N_SAMPLES,
    Cornered,
    Round,
    Sampled,
    UncertaintySet,
    Union,
    Volume,
    as_directions,
    facets_of,
    has_support_formula,
    like_directions,
)
from polyhedge.solvers.program import ConicForm

if TYPE_CHECKING:
    from polyhedge.sets.polyhedron import Polyhedron


@runtime_checkable
class _OwnWay(Protocol):
    def scaled(self, factor: float) -> UncertaintySet: ...


def scaled(shape: UncertaintySet, factor: float) -> UncertaintySet:
    """The set whose residuals are `factor` times as large as those of `shape`, at every radius.

    Examples
    --------
    >>> from polyhedge.sets import Ball
    >>> scaled(Ball(2), 3.0).support([1.0, 0.0], radius=2.0)
    6.0
    """
    if factor == 1:
        return shape
    if not 0 < factor < np.inf:
        raise ValueError(f"factor must be positive, got {factor}.")
    if isinstance(shape, _OwnWay):
        return shape.scaled(factor)
    return _class_for(shape)(shape, factor)


class _Round(UncertaintySet, Round, Protocol): ...


class _Union(UncertaintySet, Union, Protocol): ...


class _Sampled(UncertaintySet, Sampled, Protocol): ...


class _SampledRound(_Round, _Sampled, Protocol): ...


class _SampledUnion(_Union, _Sampled, Protocol): ...


@dataclass(frozen=True, eq=False)
class Scaled:
    r"""The set $\{e : s(e / \sigma) \le r\}$ of a shape with scores s, $\sigma$ = `factor`."""

    shape: UncertaintySet
    factor: float

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the residuals."""
        return self.shape.n_outcomes

    @property
    def is_bounded(self) -> bool:
        """As the shape is."""
        return self.shape.is_bounded

    @property
    def has_support_formula(self) -> bool:
        """As the shape has."""
        return has_support_formula(self.shape)

    def scores(self, residuals: ArrayLike) -> Array:
        """Scores of the residuals over the factor."""
        return self.shape.scores(as_rows(residuals, "residuals", self.n_outcomes) / self.factor)

    def contains(self, residuals: ArrayLike, radius: float) -> NDArray[np.bool_]:
        """Whether each row of `residuals` (n, d) has a score of at most `radius`."""
        return self.scores(residuals) <= radius

    def support(self, directions: ArrayLike, radius: float) -> Any:
        """The shape's, times the factor."""
        V, single = as_directions(directions, self.n_outcomes)
        return like_directions(self.factor * np.asarray(self.shape.support(V, radius)), single)

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        """The shape's, times the factor to the power d."""
        whole, growth = self.shape.volume(radius, rng=rng, n_samples=n_samples), self.factor**self.n_outcomes
        return Volume(growth * whole, growth * whole.standard_error)

    def conic_form(self, radius: float) -> ConicForm:
        """The shape's, with the columns of the residual over the factor."""
        form = self.shape.conic_form(radius)
        columns = np.ones(form.G.shape[1])
        columns[: self.n_outcomes] /= self.factor
        return ConicForm(sp.csr_array(form.G * columns), form.g, form.cones)

    def facets(self) -> Polyhedron | None:
        """The shape's, where it has any, scaled."""
        facets = facets_of(self.shape)
        return None if facets is None else facets.scaled(self.factor)

    def vertices(self, radius: float) -> Array | None:
        """The shape's, where it lists any, times the factor; None where they follow from its facets."""
        # Facets come first, as before there were corners here: the last digits of a bound depend on which is taken.
        corners = self.shape.vertices(radius) if isinstance(self.shape, Cornered) and self.facets() is None else None
        return None if corners is None else self.factor * corners

    def scaled(self, factor: float) -> Scaled:
        """By both factors."""
        return type(self)(self.shape, self.factor * factor)


# A class for each of the protocols that have no "none of it": what a shape is not, its scaled set must not seem to be.
class ScaledRound(Scaled):
    """An affine image of unit balls, scaled."""

    shape: _Round

    def from_unit_ball(self, points: Array, radius: float, center: Array) -> Array:
        """Images (n, d), around a prediction, of points of the unit ball: the shape's around 0, times the factor."""
        return center + self.factor * self.shape.from_unit_ball(points, radius, np.zeros(self.n_outcomes))


class ScaledUnion(Scaled):
    """A union, scaled."""

    shape: _Union

    @property
    def parts(self) -> tuple[UncertaintySet, ...]:
        """The shape's, scaled one by one."""
        return tuple(scaled(part, self.factor) for part in self.shape.parts)


class ScaledSampled(Scaled):
    """A set that can be sampled, scaled."""

    shape: _Sampled

    def sample(self, radius: float, n_samples: int, rng: np.random.Generator) -> Array:
        """Independent uniform points (n_samples, d): the shape's, times the factor."""
        return self.factor * self.shape.sample(radius, n_samples, rng)


class ScaledSampledRound(ScaledRound, ScaledSampled):
    """An affine image of unit balls that can be sampled, scaled."""

    shape: _SampledRound


class ScaledSampledUnion(ScaledUnion, ScaledSampled):
    """A union that can be sampled, scaled."""

    shape: _SampledUnion


def _class_for(shape: UncertaintySet) -> type[Scaled]:
    # Costs over a union are those of its parts, whatever else it is.
    if isinstance(shape, Union):
        return ScaledSampledUnion if isinstance(shape, Sampled) else ScaledUnion
    if isinstance(shape, Round):
        return ScaledSampledRound if isinstance(shape, Sampled) else ScaledRound
    return ScaledSampled if isinstance(shape, Sampled) else Scaled
