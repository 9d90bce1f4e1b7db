"""Robust decisions of many contexts and what proves them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from polyhedge._support.frames import as_frame, as_html, distinct_names
from polyhedge._support.text import amount, counted, with_unit
from polyhedge._support.validation import Array, Indices
from polyhedge.problems import DecisionProblem
from polyhedge.problems.layout import Layout
from polyhedge.solvers.program import Status


@dataclass(frozen=True)
class Labels:
    """What rows and columns of decisions are called.

    `index` labels the rows (None: 0, 1, ...), `decisions` and `outcomes` name the columns, and `frame` is the library
    ("pandas", "polars", ...) whose frame the caller gave. `promise` says how often bounds hold, in words.
    `units` are those of decisions, outcomes and "cost" by name, where they are known: tables for readers show them,
    frames have plain names.
    """

    decisions: tuple[str, ...]
    outcomes: tuple[str, ...]
    index: Any = None
    frame: str = "pandas"
    promise: str = ""
    units: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """One row of `Decisions`.

    Attributes
    ----------
    z : the decision, in the shape of its variable.
    cost_bound, worst_outcome, status, gap, detail : as in `Decisions`.
    label : what the row is called in the caller's frame; its position where it has no name.
    promise : how often the bound holds, in words; empty where nothing is promised.
    names, units : of the entries of the decision; none where they have none.
    """

    z: Array
    cost_bound: float
    worst_outcome: Array
    status: Status
    gap: float
    detail: str
    label: Any
    promise: str = ""
    names: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if not np.isfinite(self.z).all():
            return f"{self.label}: no decision. {self.status}{self.detail and f' ({self.detail})'}"
        z = f"z = {np.array2string(self.z, precision=4, suppress_small=True, separator=', ')}"
        if 0 < len(self.names) <= _FEW:
            values = [f"{value:.4g}" for value in self.z.ravel()]
            amounts = [amount(value, self.units.get(name)) for name, value in zip(self.names, values, strict=True)]
            z = ", ".join(f"{name} = {value}" for name, value in zip(self.names, amounts, strict=True))
        diagnostic = "" if self.status == Status.OPTIMAL else f" ({self.status.name.lower()}, gap {self.gap:.2g})"
        promise = f", {self.promise}" if self.promise else ""
        bound = amount(f"{self.cost_bound:.4g}", self.units.get("cost"))
        return f"{self.label}: {z} costs at most {bound}{promise}{diagnostic}"

    def __repr__(self) -> str:
        return f"<Decision {self}>"


@dataclass(frozen=True)
class Decisions:
    """Robust decisions for N contexts and what proves them.

    `decisions[3]` is one row, `decisions[2:5]`, `decisions[mask]` and `decisions[rows]` are decisions of some rows,
    `decisions["power"]` is a variable, or a column of the frame, by its name; iterating goes over the rows. `to_frame`
    gives a data frame.

    Attributes
    ----------
    flat : (N, p)
        All variables, row-major and one after the other, with auxiliary ones of the cost behind the decision's own.
        `z` is the decision as it was declared; `decisions["power"]` is the variable of that name, (N, ...).
        NaN where there is no decision. With sets, where several are optimal, which of them is returned may depend on
        the other contexts of the call; the bound does not. A policy's decision is a function of its own row.
    cost_bound : (N,)
        With sets, the worst-case cost over the set. With policies, the planned cost of the decision plus the calibrated
        radius. It holds as promised whatever `status` and `gap` say.
    worst_outcome : (N, n_outcomes)
        An outcome of the set at which the bound is attained; NaN with policies. Outcomes that neither the cost nor a
        constraint looks at are as near to the prediction as the set allows then.
    status : (N,) of Status
        How each solve ended; the decision of a policy of the user's is "finished".
    gap : (N,)
        With sets, the proven distance between the bound and the least possible worst-case cost. With policies, that of
        the rule's program over the cuts that it keeps.
    detail : N texts that explain the status, or none where there is nothing to explain.
    layout : where each variable stands in `flat`.
    labels : what rows and columns are called, where it is known.
    expected_cost : (N,)
        Mean cost that a policy expects of its decision, NaN where it expects none; None where the decision is robust
        against a set.
    radii : (N,)
        Calibrated radii that the bounds hold for, where a decider made them: what `update` counts errors against.
    may_tie : (N,) of bool
        Where other decisions may have the same bound; None where it is not known.
    blocks, total_radius : (N,) of str, float
        With `calibration=Total(...)` or `AllOf(...)`, the block of each row; and what `totals` adds for each row of it.
    risk : (share, radius)
        With `calibration=Mean(...)` or `CVaR(...)`, the worst share of rows, and what `risk_bound` adds to their plans.

    Examples
    --------
    >>> import polyhedge as ph
    >>> problem = ph.problems.simplex_linear([0.0, 0.0])
    >>> d = ph.robust.decide(problem, ph.Box([1.0, 1.0]), 0.5, np.array([[1.0, 2.0], [3.0, 0.0]]))
    >>> d.z.round(6).tolist(), d.cost_bound.round(6).tolist(), [str(status) for status in d.status]
    ([[1.0, 0.0], [0.0, 1.0]], [1.5, 0.5], ['optimal', 'optimal'])
    >>> len(d[:1]), float(d[0].cost_bound)
    (1, 1.5)
    """

    flat: Array
    cost_bound: Array
    worst_outcome: Array
    status: NDArray[np.object_]
    gap: Array
    layout: Layout
    detail: tuple[str, ...] = ()
    labels: Labels | None = None
    expected_cost: Array | None = None
    radii: Array | None = None
    may_tie: NDArray[np.bool_] | None = None
    blocks: NDArray[np.str_] | None = None
    total_radius: float | None = None
    risk: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", as_statuses(self.status, len(self.cost_bound)))
        nameless = [i for i in np.flatnonzero(np.isnan(self.cost_bound)) if self.status[i].has_solution]
        if nameless:  # without a bound nothing is proven
            status = self.status.copy()
            status[nameless] = Status.FAILED
            object.__setattr__(self, "status", status)

    @property
    def z(self) -> Array:
        """The decisions: (N, ...) of one variable (scalars as (N, 1)), (N, p) of several, side by side."""
        return self.layout.given(self.flat)

    @overload
    def __getitem__(self, key: str) -> Array: ...
    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> Decision: ...
    @overload
    def __getitem__(self, key: slice | Sequence[int] | NDArray[Any]) -> Self: ...
    def __getitem__(self, key: Any) -> Any:
        """A variable or a column of the decisions by name, one row by its position, or the decisions of some rows."""
        if isinstance(key, str):
            columns = () if self.labels is None else self.labels.decisions
            if key in columns and key not in self.layout.names:
                return self.flat[:, columns.index(key)]
            return self.layout.of(self.flat, key)
        if isinstance(key, int | np.integer):
            if not -len(self) <= key < len(self):
                raise IndexError(f"There are {counted(len(self), 'decision')}, counted from 0, got {key}.")
            return self._row(range(len(self))[key])
        return self.take(np.arange(len(self))[key])

    def __iter__(self) -> Iterator[Decision]:
        return map(self._row, range(len(self)))

    def _row(self, i: int) -> Decision:
        return Decision(
            z=self.layout.given(self.flat[[i]])[0],
            cost_bound=float(self.cost_bound[i]),
            worst_outcome=self.worst_outcome[i],
            status=self.status[i],
            gap=float(self.gap[i]),
            detail=self.detail[i] if self.detail else "",
            label=i if self.labels is None or self.labels.index is None else self.labels.index[i],
            promise="" if self.labels is None else self.labels.promise,
            names=() if self.labels is None else self.labels.decisions,
            units={} if self.labels is None else self.labels.units,
        )

    def take(self, rows: Indices) -> Self:
        """The decisions of some rows, in this order."""
        arrays = {name: getattr(self, name)[rows] for name in _ARRAYS}
        labels = self.labels
        if labels is not None and labels.index is not None:
            labels = replace(labels, index=labels.index[rows])
        detail = tuple(self.detail[i] for i in rows) if self.detail else ()
        known: dict[str, Any] = {
            name: None if (of_all := getattr(self, name)) is None else of_all[rows] for name in _IF_KNOWN
        }
        return replace(self, **arrays, detail=detail, labels=labels, **known)

    def among(self, rows: Indices, reasons: Sequence[str]) -> Self:
        """Decisions of N rows: these at their places, and none at the others, each with its reason."""
        fills = {"status": Status.NOT_DECIDED, "may_tie": False, "radii": np.inf, "blocks": ""}
        arrays: dict[str, Any] = {}
        for name in (*_ARRAYS, *_IF_KNOWN):
            own = getattr(self, name)
            if own is not None:
                arrays[name] = np.empty((len(reasons), *own.shape[1:]), dtype=own.dtype)
                arrays[name].fill(fills.get(name, np.nan))
                arrays[name][rows] = own
        texts = np.array(reasons, dtype=object)
        texts[rows] = self.detail or ""
        return replace(self, **arrays, detail=tuple(texts))

    def noted(self, notes: Sequence[str] | None) -> Self:
        """The decisions with a note for each row before the text of its status; unchanged if no row has a note."""
        if notes is None or not any(notes):
            return self
        details = self.detail or ("",) * len(self)
        texts = [". ".join(filter(None, pair)) for pair in zip(notes, details, strict=True)]
        return replace(self, detail=tuple(texts))

    def to_frame(self, backend: str | None = None) -> Any:
        """The decisions by name, the bound, the worst outcome, status and note of each row.

        With policies there is an expected cost and no worst outcome.

        Parameters
        ----------
        backend : "pandas", "polars" or "pyarrow"; None for the kind of frame that was given, pandas for others. The
            index of a pandas frame is the caller's.

        Examples
        --------
        >>> from polyhedge.problems import simplex_linear
        >>> from polyhedge.robust import decide
        >>> from polyhedge.sets import Box
        >>> frame = decide(simplex_linear([0.0, 0.0]), Box([1.0, 1.0]), 0.5, np.array([[1.0, 3.0]])).to_frame()
        >>> frame.columns.tolist()
        ['z_1', 'z_2', 'cost_bound', 'worst_u_1', 'worst_u_2', 'status', 'note']
        """
        labels = self.labels or _numbered(self)
        extra = dict(zip((f"worst_{name}" for name in labels.outcomes), self.worst_outcome.T, strict=True))
        if self.expected_cost is not None:
            extra = {"expected_cost": self.expected_cost}
        columns = [*self.flat[:, : self.layout.given_size].T, self.cost_bound, *extra.values()]
        columns.append(np.array([str(status).partition(":")[0] for status in self.status], dtype=object))
        columns.append(np.array(self.notes, dtype=object))
        names = distinct_names([*labels.decisions, "cost_bound", *extra, "status", "note"])
        return as_frame(dict(zip(names, columns, strict=True)), backend or labels.frame, labels.index)

    def totals(self) -> Any:
        """What the rows of each block cost together at most (pandas): bound, number of rows, expected cost.

        The bound of a block holds as promised if all of its rows are here, and is NaN where one of them is not decided.
        It is lower than the sum of the bounds of its rows, because costs above and below the plan cancel out.
        """
        if self.blocks is None or self.total_radius is None or self.radii is None:
            raise ValueError("Totals are promised by calibration=Total(by=...) alone, and these decisions have none.")
        own = self[self.blocks != ""]
        blocks, block_of, n = np.unique(np.asarray(own.blocks), return_inverse=True, return_counts=True)
        planned = np.bincount(block_of, weights=own.cost_bound - np.asarray(own.radii))
        columns = {"cost_bound": planned + n * self.total_radius, "n_rows": n}
        if own.expected_cost is not None:
            columns["expected_cost"] = np.bincount(block_of, weights=own.expected_cost)
        return as_frame(columns, "pandas", blocks)

    def risk_bound(self) -> float:
        """What these rows are expected to cost on average at most: all with `Mean`, their worst share with `CVaR`.

        It is the mean of the highest planned costs of these rows plus the calibrated bound. In the mean over tables of
        new rows, the mean cost of a table is at most this figure of the table.
        """
        if self.risk is None or self.radii is None:
            raise ValueError(
                "Means are promised by calibration=Mean(...) and CVaR(...), and these decisions have none."
            )
        planned = self.cost_bound - self.radii
        return tail_mean(planned[np.isfinite(planned)], self.risk[0]) + self.risk[1]

    @property
    def notes(self) -> list[str]:
        """For each row the explanation of its status, the gap of a solve that stopped early, and its detail."""
        texts = list(self.detail or [""] * len(self))
        for i in np.flatnonzero((self.status != Status.OPTIMAL) & (self.status != Status.NOT_DECIDED)):
            gap = f"gap {self.gap[i]:.2g}" if self.status[i] is Status.STOPPED_EARLY else ""
            texts[i] = "; ".join(filter(None, (str(self.status[i]).partition(": ")[2], gap, texts[i])))
        return texts

    def __str__(self) -> str:
        shown = [str(row) for row in self[:_SHOWN]]
        more = [f"... {counted(len(self) - _SHOWN, 'more row')}: to_frame() has all"] if len(self) > _SHOWN else []
        return "\n".join([counted(len(self), "decision"), *shown, *more])

    def __repr__(self) -> str:
        optimal = int(self.is_optimal.sum())
        bounds = self.cost_bound[np.isfinite(self.cost_bound)]
        extent = f", cost bounds {bounds.min():.4g} to {bounds.max():.4g}" if len(bounds) else ""
        return f"<Decisions: {counted(len(self), 'row')}, {optimal} optimal{extent}>"

    def _repr_html_(self) -> str:
        caption = f"{counted(len(self), 'decision')}, {int(self.is_optimal.sum())} of them optimal."
        if self.labels and self.labels.promise:
            caption += f" Each costs at most its bound, {self.labels.promise}."
        more = f"{counted(len(self) - _SHOWN, 'more row')}: to_frame() has all." if len(self) > _SHOWN else ""
        shown, labels = self[:_SHOWN].to_frame("pandas"), self.labels or _numbered(self)
        extra = labels.outcomes if self.expected_cost is None else ("cost",)
        whose = (*labels.decisions, "cost", *extra, *("",) * 2)  # status and note have no unit
        shown.columns = [with_unit(*head) for head in zip(shown.columns, map(labels.units.get, whose), strict=True)]
        return as_html(caption, shown if any(self[:_SHOWN].detail) else shown.iloc[:, :-1], more)

    def __len__(self) -> int:
        return len(self.cost_bound)

    @property
    def is_optimal(self) -> NDArray[np.bool_]:
        """Which decisions are proven optimal."""
        return np.asarray(self.status == Status.OPTIMAL, dtype=bool)

    def complaint(self) -> str:
        """What went wrong in which share of the contexts; empty if nothing did."""
        # A policy of the user's claims no optimum, and none is missed.
        fine = self.is_optimal | (self.status == Status.FINISHED)
        if fine.all() and not self.detail and np.isfinite(self.cost_bound).all():
            return ""
        counts = Counter(str(status) for status in self.status[~fine])
        parts = [f"{count} of {len(self)} decisions: {message}" for message, count in counts.most_common()]
        n_unbounded = int((np.isposinf(self.cost_bound) & fine).sum())
        parts += [f"{n_unbounded} of {len(self)} decisions: no finite bound"] * (n_unbounded > 0)
        details = sorted({text for text in self.detail if text})
        return ". ".join(parts + details[:3])


_ARRAYS = ("flat", "cost_bound", "worst_outcome", "status", "gap")
_IF_KNOWN = ("expected_cost", "radii", "may_tie", "blocks")
_FEW = 6  # entries of a decision that a line shows by name
_SHOWN = 10  # rows that a printed text or table shows: they fit a screen


def tail_mean(values: Array, share: float) -> float:
    """The mean of the largest share of the values, their CVaR; NaN of none.

    Examples
    --------
    >>> tail_mean(np.array([1.0, 2.0, 3.0, 4.0]), 0.5), tail_mean(np.array([1.0, 2.0, 3.0, 4.0]), 0.375)
    (3.5, 3.6666666666666665)
    """
    if not len(values):
        return float("nan")
    weights = np.clip(share * len(values) - np.arange(len(values)), 0.0, 1.0)
    return float(np.sort(values)[::-1] @ weights / weights.sum())


def _numbered(decisions: Decisions) -> Labels:
    n, d = decisions.layout.given_size, decisions.worst_outcome.shape[1]
    return Labels(tuple(f"z_{k + 1}" for k in range(n)), tuple(f"u_{k + 1}" for k in range(d)))


def no_decisions(problem: DecisionProblem, *, is_planned: bool) -> Decisions:
    """Decisions of no row; `is_planned` says whether they have expected costs."""
    return Decisions(
        flat=np.zeros((0, problem.layout.size)),
        cost_bound=np.zeros(0),
        worst_outcome=np.zeros((0, problem.n_outcomes)),
        status=np.zeros(0, dtype=object),
        gap=np.zeros(0),
        layout=problem.layout,
        expected_cost=np.zeros(0) if is_planned else None,
    )


def joined(parts: Sequence[Decisions], rows: Sequence[Indices]) -> Decisions:
    """Decisions for parts of the contexts, put together: part k has the contexts rows[k]."""
    back = np.argsort(np.concatenate(rows), kind="stable")
    arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts])[back] for name in _ARRAYS}
    texts = [text for part in parts for text in (part.detail or ("",) * len(part))]
    detail = tuple(texts[i] for i in back) if any(texts) else ()
    for name in ("expected_cost", "may_tie"):
        known = [of_part for part in parts if (of_part := getattr(part, name)) is not None]
        arrays[name] = np.concatenate(known)[back] if len(known) == len(parts) else None
    return Decisions(**arrays, layout=parts[0].layout, detail=detail)


def as_statuses(given: Any, n: int) -> NDArray[np.object_]:
    """Statuses (n,) as members of `Status`: NumPy makes plain texts of them in `np.full` and in arrays of texts."""
    status = np.asarray(given, dtype=object)
    if status.shape != (n,):
        raise ValueError(f"status must be a polyhedge.Status for each of {n} rows, got shape {status.shape}.")
    if n == 0 or type(status[0]) is type(status[-1]) is Status:  # arrays are of one kind: a million need no look each
        return status
    try:
        return np.array([Status(each) for each in status], dtype=object)
    except ValueError as error:
        raise ValueError(
            f"status must be a polyhedge.Status for each of {n} rows, such as Status.FINISHED, got: {error}."
        ) from error


def all_optimal(n: int) -> NDArray[np.object_]:
    """The status of N contexts that are all proven optimal."""
    status = np.empty(n, dtype=object)
    status.fill(Status.OPTIMAL)
    return status
