"""`Shape`: the base class of every uncertainty set of residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from polyhedge._support.tolerances import CANCELLATION
from polyhedge._support.validation import Array, Mask, as_finite, as_rows
from polyhedge.solvers.linear import maximise_conic
from polyhedge.solvers.program import ConicForm

if TYPE_CHECKING:
    from polyhedge.sets.polyhedron import Polyhedron


N_SAMPLES = 10_000
"""Random points for a volume that has no closed form."""
_SCORE_BLOCK = 32_768
"""Rows that are scored together, so that memory does not grow with the number of rows."""


class Volume(float):
    """A volume that knows how exact it is: the float `value` with the attribute `standard_error` (0.0 if exact).

    Examples
    --------
    >>> Volume(4.0)
    Volume(4.0, exact)
    >>> Volume(4.0, standard_error=0.25)
    Volume(4.0, standard_error=0.25)
    >>> Volume(4.0, standard_error=0.25) / 2
    2.0
    """

    standard_error: float

    def __new__(cls, value: float, standard_error: float = 0.0) -> Volume:  # noqa: D102
        volume = super().__new__(cls, value)
        # What rounding leaves of equal volumes is no error.
        volume.standard_error = float(standard_error) if standard_error > CANCELLATION * abs(value) else 0.0
        return volume

    def __repr__(self) -> str:
        error = f"standard_error={self.standard_error:.3g}" if self.standard_error else "exact"
        return f"Volume({float(self)!r}, {error})"


class Shape:
    r"""A family of sets of residuals that grows with the radius: $S(r) = \{e \in R^d : s(e) \le r\}$.

    Here s is `scores` and r is `radius`. The shape is learned; the radius is calibrated. A subclass defines
    `n_outcomes`, `scores` and `conic_form`, or `facets` in place of the latter; every other method has a default. A
    cost that is convex in the outcome, but no maximum of affine functions, also needs `facets`, `vertices`,
    `from_unit_ball` or `parts`.

    Examples
    --------
    >>> from polyhedge.sets import Ball
    >>> shape: Shape = Ball(2)
    >>> shape.scores(np.array([[3.0, 4.0]]))
    array([5.])
    """

    if TYPE_CHECKING:  # subclasses have it as a field or as a property

        @property
        def n_outcomes(self) -> int:
            """Dimension d of the residuals."""

    @property
    def is_bounded(self) -> bool:
        """Whether the set is bounded at every radius."""
        return True

    @property
    def has_support_formula(self) -> bool:
        """Whether `support` is a formula that asks no solver."""
        return False

    @property
    def is_round(self) -> bool:
        """Whether the set is an affine image of a unit ball, which `from_unit_ball` maps."""
        return False

    @property
    def parts(self) -> tuple[Shape, ...]:
        """Convex sets of the same radius whose union the set is; none for a convex set."""
        return ()

    @property
    def has_quick_volume(self) -> bool:
        """Whether the volume is finite and exact within milliseconds: bounded, few outcomes, few facets."""
        if self.n_outcomes > 3:
            return False
        facets = self.facets()
        return (facets is None or facets.n_facets <= 256) and self.is_bounded

    def scores(self, residuals: ArrayLike) -> Array:
        """Nonconformity of each row of `residuals` (n, d), as an array (n,)."""
        rows = as_rows(residuals, "residuals", self.n_outcomes)
        blocks = range(0, max(len(rows), 1), _SCORE_BLOCK)
        return np.concatenate([self._scores(rows[k : k + _SCORE_BLOCK]) for k in blocks])

    def contains(self, residuals: ArrayLike, radius: float) -> Mask:
        """Whether each row of `residuals` (n, d) has a score of at most `radius`."""
        return np.asarray(self.scores(residuals) <= radius)

    def support(self, directions: ArrayLike, radius: float) -> Any:
        r"""Support function $\max\{v^\top e : e \in S(r)\}$ of each row v of `directions`.

        An array (m,) for `directions` (m, d), a float for one direction (d,); `inf` where the set is unbounded,
        `-inf` if it is empty.
        """
        V, single = as_directions(directions, self.n_outcomes)
        values = self._support(V, radius)
        return float(values[0]) if single else values

    def conic_form(self, radius: float) -> ConicForm:
        r"""Arrays of the set: $\{e : \exists y,\ g - G\,[e; y] \in K\}$."""
        return self.as_polyhedron().conic_form(radius)

    def facets(self) -> Polyhedron | None:
        """The same sets with the same scores as half-spaces; None if there are none, or too many to list."""
        return None

    def as_polyhedron(self) -> Polyhedron:
        """As `facets`; a TypeError if there are none."""
        facets = self.facets()
        if facets is None:
            raise TypeError(f"A {type(self).__name__} lists no facets. Use its support function or its conic form.")
        return facets

    def vertices(self, radius: float) -> Array | None:
        """Vertices (n, d) of a polytope, no rows if it is empty; None for sets that list none."""
        facets = self.facets()
        return None if facets is None else facets.vertices(radius)

    def from_unit_ball(self, points: Array, radius: float, center: Array) -> Array:
        """Images (n, d), around a prediction, of points of the unit ball; only if `is_round`."""
        raise TypeError(f"A {type(self).__name__} is no affine image of a unit ball.")

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        """Lebesgue volume; by default an estimate from uniform points of the bounding box."""
        if not self.is_bounded:
            return Volume(np.inf)
        eye, rng = np.eye(self.n_outcomes), np.random.default_rng(0) if rng is None else rng
        upper, lower = self.support(eye, radius), -self.support(-eye, radius)
        if not np.isfinite(upper).all():  # empty
            return Volume(0.0)
        inside = self.contains(rng.uniform(lower, upper, (n_samples, len(eye))), radius)
        return volume_from_share(inside, float(np.prod(upper - lower)))

    def scaled(self, factor: float) -> Shape:
        """The set whose residuals are `factor` times as large, at every radius."""
        return self if factor == 1 else Scaled(self, factor)

    def _scores(self, rows: Array) -> Array:
        """Scores (n,) of a block of residuals (n, d)."""
        raise NotImplementedError(f"{type(self).__name__} must define scores(residuals).")

    def _support(self, directions: Array, radius: float) -> Array:
        """Support (m,) of directions (m, d)."""
        return maximise_conic(self.conic_form(radius), directions)


@dataclass(frozen=True, eq=False)
class Scaled(Shape):
    r"""The set $\{e : s(e / \sigma) \le r\}$ of a shape with scores s, $\sigma$ = `factor`."""

    shape: Shape
    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.factor < np.inf:
            raise ValueError(f"factor must be positive, got {self.factor}.")

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
        return self.shape.has_support_formula

    @property
    def is_round(self) -> bool:
        """As the shape is."""
        return self.shape.is_round

    @property
    def parts(self) -> tuple[Shape, ...]:
        """The shape's, scaled one by one."""
        return tuple(part.scaled(self.factor) for part in self.shape.parts)

    def facets(self) -> Polyhedron | None:
        """The shape's, scaled."""
        facets = self.shape.facets()
        return None if facets is None else facets.scaled(self.factor)

    def vertices(self, radius: float) -> Array | None:
        """The shape's, times the factor."""
        corners = self.shape.vertices(radius)
        return None if corners is None else self.factor * corners

    def from_unit_ball(self, points: Array, radius: float, center: Array) -> Array:
        """Images (n, d), around a prediction, of points of the unit ball."""
        return center + self.factor * self.shape.from_unit_ball(points, radius, np.zeros(self.n_outcomes))

    def conic_form(self, radius: float) -> ConicForm:
        """The shape's, with the columns of the residual over the factor."""
        form = self.shape.conic_form(radius)
        columns = np.ones(form.G.shape[1])
        columns[: self.n_outcomes] /= self.factor
        return ConicForm(sp.csr_array(form.G * columns), form.g, form.cones)

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        """The shape's, times the factor to the power d."""
        return mean_volume(self.shape, radius, np.array([self.factor]), rng=rng, n_samples=n_samples)

    def scaled(self, factor: float) -> Shape:
        """By both factors."""
        return Scaled(self.shape, self.factor * factor)

    def _scores(self, rows: Array) -> Array:
        return self.shape.scores(rows / self.factor)

    def _support(self, directions: Array, radius: float) -> Array:
        return np.asarray(self.factor * self.shape.support(directions, radius))


def mean_volume(shape: Shape, radius: float, scales: Array, **options: Any) -> Volume:
    """Mean volume of a `shape` at a `radius` over contexts with these `scales` (N,); `options` as for `volume`."""
    volume = shape.volume(radius, **options)
    growth = float(np.mean(scales**shape.n_outcomes)) if len(scales) else 1.0
    return Volume(growth * volume, growth * volume.standard_error)


def volume_from_share(inside: Mask, around: float) -> Volume:
    """Volume of a set that holds a share of independent uniform points of a body with the volume `around`."""
    n, n_inside = len(inside), int(np.sum(inside))
    # One success and one failure more keep the standard error positive if all points or none are inside.
    share = (n_inside + 1) / (n + 2)
    return Volume(around * n_inside / n, around * float(np.sqrt(share * (1 - share) / n)))


def frozen(array: ArrayLike) -> Array:
    """A read-only copy, because a frozen dataclass does not protect the entries of its arrays."""
    copy = np.array(array, dtype=np.float64)
    copy.flags.writeable = False
    return copy


def as_directions(directions: ArrayLike, n_outcomes: int) -> tuple[Array, bool]:
    """Directions as rows (m, d), and whether a single one (d,) was given."""
    single = np.ndim(directions) == 1
    rows = np.atleast_2d(as_finite(directions, "directions", ndim=1 if single else 2))
    if rows.shape[1] != n_outcomes:
        raise ValueError(f"Each direction must have {n_outcomes} entries, one for each outcome, got {rows.shape[1]}.")
    return rows, single


def as_center(center: ArrayLike | None, n_outcomes: int) -> Array:
    """A centre (d,); a number is repeated, None is the origin."""
    values = np.asarray(0.0 if center is None else center, dtype=np.float64)
    values = as_finite(np.full(n_outcomes, values) if values.ndim == 0 else values, "center", ndim=1)
    if len(values) != n_outcomes:
        raise ValueError(f"center must have {n_outcomes} entries, one for each outcome, got {len(values)}.")
    return frozen(values)
