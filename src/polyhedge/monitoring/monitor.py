"""Life after fit: outcomes become known, radii follow them, an alarm watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from html import escape
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from polyhedge._support.alignment import check_same_rows
from polyhedge._support.frames import as_pandas
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.calibration import FollowingRadii, Rows, conformal_rank, n_followed
from polyhedge.calibration.labels import as_values
from polyhedge.data import digest_rows, take_rows
from polyhedge.diagnostics import Diagnostic, coverage_since_diagnostic
from polyhedge.evaluation import Proportion, proportion
from polyhedge.fitting import n_rows_of, one_row
from polyhedge.model import Model
from polyhedge.monitoring.alarm import Alarm, alarm_for
from polyhedge.monitoring.issued_radii import issued_radii
from polyhedge.monitoring.row_keys import row_keys
from polyhedge.problems.parameters import by_row, parameter_rows
from polyhedge.robust import Decisions
from polyhedge.solvers.options import solver_of

_COUNTING = Lock()
"""Held while outcomes are counted: those of two threads must both be."""
EXCHANGE = Lock()
"""Held, and not for long, while a decider gets another model: what was made for the old one must not replace it."""


@dataclass(frozen=True, eq=False)
class Followed:
    """What came of the bounds since `fit`, `recalibrate` or `refresh`.

    Attributes
    ----------
    missed : (n,) whether each row's outcome lay outside what its bound was for, in the order in which they were fed;
        False for rows without a bound, which cannot be missed.
    radii : (n,) the radii that the rows were held to, infinite where a row had no bound.
    promised : 1 - alpha.
    alarm : whether this is more than chance; None where the promise has no exact law, such as by category.
    was_recomputed : whether some rows came without the bounds that were issued, so that radii were computed anew.
    """

    missed: Mask
    radii: Array
    promised: float
    alarm: Alarm | None
    was_recomputed: bool = False

    @property
    def has_bound(self) -> Mask:
        """Which rows (n,) had a finite bound."""
        return np.isfinite(self.radii)

    @property
    def coverage(self) -> Proportion | None:
        """Share of the rows with a bound that were covered; None before any such row.

        Its interval holds at a moment chosen beforehand.
        """
        held_to = ~self.missed[self.has_bound]
        return proportion(held_to) if len(held_to) else None

    @property
    def without_bound(self) -> Proportion | None:
        """Share of all rows that had no finite bound; None before any row."""
        return proportion(~self.has_bound) if len(self.missed) else None

    @property
    def not_missed(self) -> Proportion | None:
        """Share of all rows that were not missed, where those without a bound count as held; None before any row.

        The promises of `Online` and `Weighted` are about this share.
        """
        return proportion(~self.missed) if len(self.missed) else None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """That notably more rows were covered than promised, where the promise asks for no more; else nothing.

        It may be looked at after every row.
        """
        alarm, alpha = self.alarm, 1 - self.promised
        if alarm is None or not alarm.n or alarm.rank != conformal_rank(alarm.n_calibrate, alpha):
            return ()
        return tuple(coverage_since_diagnostic(alarm.n, alarm.n_missed, alpha))

    def __str__(self) -> str:
        how = "; bounds were not given for all rows and were computed anew" if self.was_recomputed else ""
        alarm = [] if self.alarm is None else [str(self.alarm)]
        return "\n".join([f"{self.in_words()}{how}", *alarm, *self.diagnostics])

    def __repr__(self) -> str:
        raised = "; alarm raised" if self.alarm is not None and self.alarm.is_raised else ""
        return f"<Followed: {self.in_words()}{raised}>"

    def _repr_html_(self) -> str:
        """What came so far, and the alarm."""
        return "".join(f"<p>{escape(line)}</p>" for line in str(self).splitlines())

    def in_words(self) -> str:
        """How many rows were covered, and how many had no bound."""
        n, n_bounded = len(self.missed), int(self.has_bound.sum())
        promised = f"(promised {self.promised:.3g})"
        if not n:
            return f"no outcome is known yet {promised}"
        if n == n_bounded:
            return f"covered {self.coverage} of {n} rows {promised}"
        covered = f"covered {self.coverage} of {n_bounded} rows with a bound" if n_bounded else "no row had a bound"
        return (
            f"{covered} {promised}; {n - n_bounded} of {n} rows had no bound, and where these count as held "
            f"{self.not_missed} of all rows did"
        )


class Log(Protocol):
    """What keeps decisions and outcomes by key, such as `OutcomeLog`."""

    @property
    def model(self) -> Model:
        """As it was before any outcome."""

    def add(
        self,
        keys: Sequence[Any],
        X: Any,
        Y: Any,
        radii: Array | None = None,
        *,
        parameters: Any = None,
        labels: Any = None,
    ) -> int:
        """Note outcomes that are not known yet; how many these were."""

    def keys(self) -> list[str]:
        """The names of all rows whose outcomes are known."""

    def replay(self) -> tuple[Model, Followed]:
        """The model after all outcomes, and what came of its bounds."""


class FollowsOutcomes:
    """What a fitted decider can do once outcomes become known."""

    def update(
        self,
        X: Any,
        Y: Any,
        bounds: Decisions | ArrayLike | None = None,
        *,
        radii: ArrayLike | None = None,
        keys: Sequence[Any] | None = None,
        log: Log | None = None,
        parameters: Mapping[Any, Any] | None = None,
        labels: ArrayLike | None = None,
    ) -> Followed:
        """Feed outcomes as they become known, late and in batches too, in the order of time.

        Coverage is counted, an alarm tells where it is worse than chance allows, and radii that follow outcomes
        (`calibration=Online()`) move. An error counts against the bound that was issued.

        Parameters
        ----------
        X, Y : rows whose outcomes are known now; each row once. One row may be a series, as in `decide`, with its
            outcome as a series, a list or a number.
        bounds : what `decide` returned for these rows. With guarantee="cost" also the bounds (N,) on their costs: a row
            is missed where its decision came to cost more. None takes those that `log` has noted under the keys;
            otherwise radii are computed anew, row by row in this order, which is the same where the decider was not
            recalibrated or updated in between, and the result says so.
        radii : (N,) those of the decisions, where they were kept without them; instead of `bounds`.
        keys : N names of rows, each once. Rows whose keys were fed before, also through a log that was left since, are
            left as they are.
        log : `OutcomeLog` of this decider, a database that outlives the process; needs `keys`. It must know all
            outcomes: once some were fed without it, it is refused.
        parameters, labels : as in `decide`.

        Returns
        -------
        Followed
            What came of all bounds since the last calibration; also in `followed_`.

        Examples
        --------
        >>> import numpy as np
        >>> import polyhedge as ph
        >>> X, Y = ph.data.make_synthetic(600, rng=np.random.default_rng(0))
        >>> problem, box = ph.problems.simplex_linear([0.0, 0.0]), ph.learners.OneSidedBox()
        >>> decider = ph.RobustDecider(problem, learner=box, random_state=0).fit(X[:400], Y[:400])
        >>> issued = decider.decide(X[400:])
        >>> print(decider.update(X[400:], Y[400:], issued))
        covered 0.8... of 200 rows (promised 0.9)
        no alarm: 2... of 200 rows were not covered
        """
        decider: Any = self
        model = decider._fitted("update")
        X, Y, keys = _as_rows(model, X, Y, keys)
        check_same_rows({"X": X, "keys": keys})
        names = None if keys is None else row_keys(keys, n_rows_of(X))
        issued = issued_radii(model, X, bounds, radii, parameters, labels)
        decider._diagnostic_rows(model, X, Y)
        if log is not None:
            if names is None:
                raise ValueError("A log needs keys, one for each row: they find what was decided. Give keys=.")
            self._check_log(log, model)
            if vars(self).get("_fed_alone", False):
                raise ValueError(
                    "Outcomes were fed to this decider without a log, which does not know them: they would be "
                    "forgotten. Feed all through the log, or drop them with follow(log) first."
                )
            with solver_of(self):
                log.add(names, X, Y, issued, parameters=parameters, labels=labels)
            return self.follow(log)
        with _COUNTING:
            begun, model = model, decider._fitted("update")  # another thread may have fed outcomes meanwhile
            if model.family is not begun.family:
                raise _exchanged()
            if names is None:
                decider._diagnostic_fed(model, X, Y)
                return self._count(model, X, Y, issued, parameters, labels)
            return self._count_new(model, names, X, Y, issued, parameters, labels)

    def _count_new(
        self, model: Model, names: Sequence[str], X: Any, Y: Any, issued: Array | None, parameters: Any, labels: Any
    ) -> Followed:
        """Count outcomes of those rows whose keys were not fed before."""
        known = vars(self).get("_fed_keys", frozenset())
        fresh = np.array([i for i, name in enumerate(names) if name not in known], dtype=np.int64)
        return self._count(
            model,
            take_rows(as_pandas(X), fresh),
            take_rows(as_pandas(Y), fresh),
            None if issued is None else issued[fresh],
            _taken(model, X, parameters, fresh),
            None if labels is None else as_values(labels)[fresh],
            known.union(names),
        )

    def _count(
        self,
        begun: Model,
        X: Any,
        Y: Any,
        issued: Array | None,
        parameters: Any,
        labels: ArrayLike | None,
        keys: frozenset[str] | None = None,
    ) -> Followed:
        """Count outcomes of rows, all of which are new; `keys` are then those of all rows that were fed."""
        model, so_far = begun, vars(self).get("followed_") or not_followed(begun)
        if n_rows_of(X):
            with solver_of(self):
                model, so_far = followed(begun, so_far, X, Y, issued, parameters, labels)
        with EXCHANGE:
            if vars(self).get("model_") is not begun:
                raise _exchanged()
            self.model_, self.followed_ = model, so_far
            self._fed_alone = vars(self).get("_fed_alone", False) or n_rows_of(X) > 0
            if keys is not None:
                self._fed_keys = keys
        return so_far

    def follow(self, log: Log) -> Followed:
        """Take over what a log knows: the radius after its last outcome, and what came of all bounds in it."""
        decider: Any = self
        self._check_log(log, decider._fitted("follow"))
        with _COUNTING:
            model, so_far = log.replay()
            keys = frozenset(log.keys())  # should the log be left, its rows are still known
            with EXCHANGE:
                self._check_log(log, decider._fitted("follow"))  # another thread may have recalibrated meanwhile
                self.model_, self.followed_, self._fed_keys, self._fed_alone = model, so_far, keys, False
        return so_far

    def _check_log(self, log: Log, model: Model) -> None:
        """Raise where a log belongs to another calibration: its scores are not this decider's."""
        has_followed = n_followed(model.radii) > 0  # then the last entry stands for the outcomes since
        if log.model.trail != (model.trail[:-1] if has_followed else model.trail):
            raise ValueError(
                "This log belongs to another calibration of the decider: its scores are not this one's. Begin a new "
                "one, OutcomeLog(path, decider), after each fit, recalibrate and refresh."
            )

    def _followed_anew(self) -> None:
        for name in ("followed_", "_fed_keys", "_fed", "_fed_alone"):
            vars(self).pop(name, None)


def _exchanged() -> RuntimeError:
    return RuntimeError(
        "This decider was fitted, refreshed or recalibrated by another thread while outcomes were counted, so that "
        "they were held against bounds that are no more in force, and none of them was counted. Update once more."
    )


def _as_rows(model: Model, X: Any, Y: Any, keys: Any) -> tuple[Any, Any, Any]:
    """One row that came by itself in the form of many, with its outcome and its key; others as they came."""
    rows = model.as_rows(X)
    if rows is X or len(rows) != 1:
        return rows, Y, keys
    if hasattr(Y, "to_frame"):  # a row of outcomes by name; one row cannot be that of another
        Y = one_row(Y).set_axis(getattr(rows, "index", [0]))
    elif not hasattr(Y, "columns"):
        Y = np.reshape(Y, (1, -1))
    return rows, Y, [keys] if keys is not None and np.ndim(keys) == 0 else keys


def not_followed(model: Model) -> Followed:
    """Before any outcome is known."""
    return Followed(np.zeros(0, dtype=bool), np.zeros(0), 1 - model.radii.alpha, alarm_for(model.radii))


def followed(
    model: Model,
    so_far: Followed,
    X: Any,
    Y: Any,
    issued: Array | None,
    parameters: Mapping[Any, Any] | None,
    labels: ArrayLike | None = None,
) -> tuple[Model, Followed]:
    """The model and what came of its bounds, after the outcomes Y of the rows X became known.

    `issued` (N,) are the radii of these bounds; None where they are to be computed anew.
    """
    scores = model.scores(X, Y, parameters)
    at = issued
    if issued is None and not isinstance(model.radii, FollowingRadii):
        at = model.radii.at(model.rows(X, labels))
    later, later_followed = after_scores(model, so_far, scores, at, digest_rows(X, model.outcomes(X, Y)))
    return later, replace(later_followed, was_recomputed=so_far.was_recomputed or issued is None)


def after_scores(
    model: Model, so_far: Followed, scores: Array, radii: Array | None, digest: str
) -> tuple[Model, Followed]:
    """The same after scores (N,) against radii (N,), which only radii that follow outcomes can do without."""
    was_recomputed = so_far.was_recomputed or radii is None
    if isinstance(model.radii, FollowingRadii):
        later, radii = one_by_one(model.radii, scores, radii)
        model = _with_followed(model, later, digest)
    held_to = np.asarray(radii, dtype=np.float64)
    missed = scores > held_to
    return model, replace(
        so_far,
        missed=np.concatenate([so_far.missed, missed]),
        radii=np.concatenate([so_far.radii, held_to]),
        alarm=None if so_far.alarm is None else so_far.alarm.updated(missed[np.isfinite(held_to)]),
        was_recomputed=was_recomputed,
    )


def _taken(model: Model, X: Any, parameters: Mapping[Any, Any] | None, rows: Indices) -> Mapping[Any, Any] | None:
    """Values of parameters at some of the rows."""
    if parameters is None or not model.problem.parameters:
        return parameters
    values = parameter_rows(model.problem.parameters, parameters, n_rows_of(X), X)
    return by_row(model.problem.parameters, values[rows])


def one_by_one(radii: Any, scores: Array, issued: Array | None) -> tuple[Any, Array]:
    """The radii after all scores, and those (N,) that each row was held to."""
    if issued is not None:
        return radii.updated(scores, issued), issued
    in_force = np.empty(len(scores))
    for i, score in enumerate(scores):
        in_force[i] = radii.at(Rows(None, 1))[0]
        radii = radii.updated([score])
    return radii, in_force


def _with_followed(model: Model, radii: Any, digest: str) -> Model:
    """The model with radii that have followed: one entry of the audit trail stands for all rows since calibration.

    Its digest is a chain, so that it tells whether the same rows were fed in the same order.
    """
    has_followed = n_followed(model.radii) > 0
    chained = sha256(f"{model.trail[-1].digest}{digest}".encode()).hexdigest()
    entered = model.with_radii(radii, chained)
    return replace(entered, trail=(*model.trail[:-1], entered.trail[-1])) if has_followed else entered
