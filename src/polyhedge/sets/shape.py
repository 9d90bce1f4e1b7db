"""What every uncertainty set of residuals can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyhedge._support.tolerances import CANCELLATION
from polyhedge._support.validation import Array, as_finite
from polyhedge.solvers.program import ConicForm

if TYPE_CHECKING:
    from polyhedge.sets.polyhedron import Polyhedron

N_SAMPLES = 10_000
"""Random points for a volume that has no closed form; its standard error is told with it."""
SCORE_BLOCK = 32_768
"""Rows that are scored together: what is needed in between does not grow with their number."""

# Exact by corners within milliseconds; beyond this a volume is sampled, and only on request.
_QUICK_OUTCOMES, _QUICK_FACETS = 3, 256


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


@runtime_checkable
class UncertaintySet(Protocol):
    r"""A family of sets of residuals that grows with the radius: $\{e \in R^d : s(e) \le r\}$.

    Here s is `scores` and r is `radius`. The shape is learned; the radius is calibrated. Any class with these members
    can be learned, calibrated, decided with and drawn. Costs that are convex but no maximum of affine functions of the
    outcome are decided over it where its conic form is polyhedral, or where it is `Round`, `Cornered` or a `Union`.

    Examples
    --------
    >>> from polyhedge.sets import Ball
    >>> shape: UncertaintySet = Ball(2)
    >>> shape.scores(np.array([[3.0, 4.0]]))
    array([5.])
    """

    @property
    def n_outcomes(self) -> int:
        """Dimension d of the residuals."""

    @property
    def is_bounded(self) -> bool:
        """Whether the set is bounded at every radius."""

    def scores(self, residuals: ArrayLike) -> Array:
        """Nonconformity of each row of `residuals` (n, d), as an array (n,)."""

    def contains(self, residuals: ArrayLike, radius: float) -> NDArray[np.bool_]:
        """Whether each row of `residuals` (n, d) has a score of at most `radius`."""

    def support(self, directions: ArrayLike, radius: float) -> Any:
        r"""Support function $\max\{v^\top e : s(e) \le r\}$ of each row v of `directions`.

        Returns an array (m,) for `directions` (m, d), a float for one direction (d,); `inf` where the set
        is unbounded, `-inf` if it is empty.
        """

    def volume(self, radius: float, *, rng: np.random.Generator | None = None, n_samples: int = N_SAMPLES) -> Volume:
        """Lebesgue volume; `rng` and `n_samples` matter only where it is estimated."""

    def conic_form(self, radius: float) -> ConicForm:
        r"""Arrays of the set: $\{e : \exists y,\ g - G\,[e; y] \in K\}$."""


class LearnedShape(UncertaintySet, Protocol):
    """What a shape offers beyond deciding; a class that lacks a part of it does without what the part is for."""

    def facets(self) -> Polyhedron | None:
        """The same sets, radius by radius, with the same scores, as half-spaces; None where there are none to list."""

    def scaled(self, factor: float) -> UncertaintySet:
        """The set whose residuals are `factor` times as large, at every radius; without it any shape is `Scaled`."""

    def state(self) -> dict[str, Any]:
        """Plain data for a model file: the arguments that make it again, and under "kind" the exported class."""


@runtime_checkable
class Faceted(Protocol):
    """Sets that may have facets."""

    def facets(self) -> Polyhedron | None:
        """See `LearnedShape`."""


@runtime_checkable
class Cornered(Protocol):
    """Sets that may be the hull of few vertices: a convex cost is worst at one of them."""

    def vertices(self, radius: float) -> Array | None:
        """Vertices (n, d); None where the set has none to list."""


@runtime_checkable
class Round(Protocol):
    """Affine images of unit balls: a convex cost is maximised over cones of directions."""

    def from_unit_ball(self, points: Array, radius: float, center: Array) -> Array:
        """Images (n, d), around a prediction, of points of the unit ball."""


@runtime_checkable
class Sampled(Protocol):
    """Sets that can be sampled."""

    def sample(self, radius: float, n_samples: int, rng: np.random.Generator) -> Array:
        """Independent uniform points (n_samples, d)."""


@runtime_checkable
class Union(Protocol):
    """Sets that are unions, so that worst cases and outlines are those of the parts."""

    @property
    def parts(self) -> tuple[UncertaintySet, ...]:
        """Convex sets of the same radius."""


@runtime_checkable
class Formulated(Protocol):
    """Sets that say whether their support function is a formula, which no solver can get wrong."""

    @property
    def has_support_formula(self) -> bool:
        """Whether `support` asks no solver."""


def has_support_formula(shape: UncertaintySet) -> bool:
    """Whether a shape says that its support function is a formula.

    Examples
    --------
    >>> from polyhedge.sets import Ball, Polyhedron
    >>> has_support_formula(Ball(2)), has_support_formula(Polyhedron([[1.0]], [0.0]))
    (True, False)
    """
    return isinstance(shape, Formulated) and shape.has_support_formula


def facets_of(shape: UncertaintySet) -> Polyhedron | None:
    """The facets of a `shape`; None for shapes that have none, or too many to list.

    Examples
    --------
    >>> from polyhedge.sets import Ball, Box
    >>> facets_of(Box([1.0, 2.0])).n_facets, facets_of(Ball(2))
    (4, None)
    """
    return shape.facets() if isinstance(shape, Faceted) else None


def has_quick_volume(shape: UncertaintySet) -> bool:
    """Whether the volume of a `shape` is finite and takes milliseconds: bounded, up to 3 outcomes, not too many facets.

    Beyond, vertices become too many to list, and a number such as 4.5e47 tells nobody anything.
    """
    if shape.n_outcomes > _QUICK_OUTCOMES:
        return False
    facets = facets_of(shape)
    return (facets is None or facets.n_facets <= _QUICK_FACETS) and shape.is_bounded


def mean_volume(shape: UncertaintySet, radius: float, scales: Array, **options: Any) -> Volume:
    """Mean volume of a `shape` at a `radius` over contexts with these `scales` (N,); `options` as for `volume`."""
    whole = shape.volume(radius, **options)
    growth = float(np.mean(scales**shape.n_outcomes)) if len(scales) else 1.0
    return whole if growth == 1 else Volume(growth * whole, growth * whole.standard_error)


def frozen(array: Array) -> Array:
    """A read-only copy, because a frozen dataclass does not protect the entries of its arrays."""
    copy = np.array(array, dtype=np.float64)
    copy.flags.writeable = False
    return copy


def score_in_blocks(score: Callable[[Array], Array], rows: Array) -> Array:
    """Scores of all rows, block by block: what is needed in between does not grow with their number."""
    if len(rows) <= SCORE_BLOCK:
        return score(rows)
    scores = np.empty(len(rows))
    for k in range(0, len(rows), SCORE_BLOCK):
        scores[k : k + SCORE_BLOCK] = score(rows[k : k + SCORE_BLOCK])
    return scores


def row_products(rows: Array, W: Array) -> Array:
    r"""Products $x_i^\top w_k$ (n, n_facets), each independent of the other rows to the last bit.

    A BLAS product rounds differently for different batch sizes. The radius is itself a score, so that the
    calibration point it comes from would fall in or out of its own set by chance.
    """
    products = np.zeros((len(rows), len(W)))
    for x, w in zip(rows.T, W.T, strict=True):
        products += x[:, None] * w
    return products


def row_norms(rows: Array, norm: float = 2) -> Array:
    """Norms of the rows, whatever the memory layout, which would change the order of summation."""
    return np.linalg.norm(np.ascontiguousarray(rows), ord=norm, axis=1)


def as_directions(directions: ArrayLike, n_outcomes: int) -> tuple[Array, bool]:
    """Directions as rows (m, d), and whether a single one (d,) was given."""
    single = np.ndim(directions) == 1
    rows = np.atleast_2d(as_finite(directions, "directions", ndim=1 if single else 2))
    if rows.shape[1] != n_outcomes:
        raise ValueError(f"Each direction must have {n_outcomes} entries, one for each outcome, got {rows.shape[1]}.")
    return rows, single


def like_directions(values: Array, single: bool) -> Any:
    """Values in the form in which the directions came: one float or an array."""
    return float(values[0]) if single else values


def as_center(center: ArrayLike | None, n_outcomes: int) -> Array:
    """A centre (d,); a number is repeated, None is the origin."""
    values = np.asarray(0.0 if center is None else center, dtype=np.float64)
    values = as_finite(np.full(n_outcomes, values) if values.ndim == 0 else values, "center", ndim=1)
    if len(values) != n_outcomes:
        raise ValueError(f"center must have {n_outcomes} entries, one for each outcome, got {len(values)}.")
    return frozen(values)
