"""What a worker needs to decide, and a table of rows -> a table of decisions."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from sklearn.exceptions import NotFittedError

from polyhedge._columns import names_of, select_columns
from polyhedge._validation import Array, Indices, Mask, numbers_of
from polyhedge.learners import Spread
from polyhedge.predictors import Predictor
from polyhedge.problems import DecisionProblem
from polyhedge.problems.parameters import by_name, column_names, from_columns
from polyhedge.robust import Decisions, decide
from polyhedge.sets import UncertaintySet
from polyhedge.solvers.program import Status

_SHORT = {status: str(status).partition(":")[0] for status in Status}
_UNDECIDED = "not decided"
_STATUSES = (*dict.fromkeys(_SHORT.values()), _UNDECIDED)
_MOST_REFUSED = 1000
"""Rows of one block that the predictor may refuse; beyond, it is the table that is wrong."""


class FittedDecider(Protocol):
    """What this package asks of a fitted `RobustDecider`."""

    problem_: DecisionProblem
    predictor_: Predictor
    set_: UncertaintySet
    spread_: Spread | None

    @property
    def radius_(self) -> float:
        """The radius in force."""
        ...


@dataclass(frozen=True)
class Model:
    """The part of a fitted decider that decides: small, never changed, sent to each worker once.

    Attributes
    ----------
    problem, predictor, set, spread, radius : what is decided, from which prediction, against which set.
    takes_nan : whether the predictor fills in missing numbers itself.
    names : columns that the predictor was fitted on; None where it was fitted on an array.
    parameters : where the values of the problem's parameters come from: columns, or one value for all rows.
    """

    problem: DecisionProblem
    predictor: Predictor
    set: UncertaintySet
    spread: Spread | None
    radius: float
    takes_nan: bool
    names: tuple[str, ...] | None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, decider: FittedDecider, parameters: Mapping[Any, Any] | None = None) -> Model:
        """The model of a fitted `RobustDecider`, for tables in which these columns hold the problem's parameters."""
        if not hasattr(decider, "radius_"):
            raise NotFittedError("This RobustDecider is not fitted yet. Call fit(X, Y) first.")
        return cls(
            problem=decider.problem_,
            predictor=decider.predictor_,
            set=decider.set_,
            spread=decider.spread_,
            radius=decider.radius_,
            takes_nan=decider.predictor_.takes_nan,
            names=known_names(decider),
            parameters=by_name(decider.problem_.parameters, parameters),
        )

    def check_parameters(self) -> None:
        """Raise unless all parameters can be taken along with rows that come in parts."""
        for parameter in self.problem.parameters:
            value: Any = self.parameters.get(parameter.name)
            n, is_flat = len(column_names(value)), len(parameter.shape) < 2
            is_fine = is_flat and n == parameter.leaf.size if n else np.shape(value) == parameter.shape
            if value is None or not is_fine:
                raise ValueError(
                    f"The parameter {parameter.name} must be given as {parameter.leaf.size} name(s) of columns or as "
                    f"one value of shape {parameter.shape}, because rows of tables come in parts; got {value!r}."
                )

    @property
    def parameter_columns(self) -> list[str]:
        """Columns that hold values of parameters."""
        return list(dict.fromkeys(name for value in self.parameters.values() for name in column_names(value)))

    def features(self, rows: Any) -> Any:
        """The columns of a data frame as the predictor knows them: by name, or as an array without parameters."""
        if self.names is None:
            names_of(rows)  # numbers that are out of order are no names, and no order either
            return rows.drop(columns=self.parameter_columns).to_numpy()
        return select_columns(rows, self.names, "The table")

    def predict(self, features: Any) -> tuple[Array, Array]:
        """Predictions (N, d), and how the set is scaled there (N,)."""
        centers = self.predictor.predict(features)
        return centers, np.ones(len(centers)) if self.spread is None else self.spread(features, centers)

    @property
    def columns(self) -> list[str]:
        """Names of all columns of a table of decisions."""
        outcomes = (f"worst_{name}" for name in self.problem.outcome_names)
        return distinct_names([*self.problem.decision_names, "cost_bound", *outcomes, "gap", "status", "note"])


def known_names(decider: FittedDecider) -> tuple[str, ...] | None:
    """Columns that a decider was fitted on; None where they had no names."""
    # A decider from an old file knows the names only through its predictor.
    predictor = getattr(decider.predictor_, "model", None)
    names = getattr(decider, "feature_names_in_", getattr(predictor, "feature_names_in_", None))
    return None if names is None else tuple(str(name) for name in names)


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names with an underscore after those that a later name needs: a decision may be called like a column of ours.

    Examples
    --------
    >>> distinct_names(["status", "z", "status"])
    ['status_', 'z', 'status']
    """
    taken: set[str] = set()
    found = []
    for name in reversed(names):
        while name in taken:
            name = f"{name}_"
        taken.add(name)
        found.append(name)
    return found[::-1]


def require(extra: str, packages: Sequence[str]) -> None:
    """Raise an error that names the extra to install where one of the packages is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"This needs {' and '.join(missing)}. Get it with: pip install 'polyhedge[{extra}]'")


def decide_rows(model: Model, rows: Any, *, n_jobs: int | None = None) -> Any:
    """One row of results for each row of a data frame, in the same order and with the same index.

    Rows with missing or infinite numbers, and rows that the predictor refuses, keep their place: their
    decision is NaN, their status "not decided", and `note` says why.

    Parameters
    ----------
    model : Model
    rows : pandas.DataFrame
    n_jobs : int, optional
        Number of threads, by default one a core.

    Returns
    -------
    pandas.DataFrame
        The decision by the problem's own names, `cost_bound`, the worst outcome as `worst_u_1` ..., `gap`, `status` and
        `note`, which is missing where the decision is optimal.

    Examples
    --------
    >>> import pandas as pd, polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(400, rng=np.random.default_rng(0))
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), random_state=0).fit(X, Y)
    >>> rows = pd.DataFrame(X[:2])
    >>> rows.iloc[1, 0] = float("nan")
    >>> decide_rows(ph.batches.Model.of(decider), rows)["status"].tolist()
    ['optimal', 'not decided']
    """
    model.check_parameters()
    given = from_columns(model.parameters, rows)
    features = model.features(rows)
    usable, reasons = _usable(model, features)
    for row in np.flatnonzero(usable & _has_no_value(model, rows)):
        usable[row], reasons[int(row)] = False, f"missing: one of {', '.join(model.parameter_columns)}"
    centers, scales = np.full((len(rows), model.problem.n_outcomes), np.nan), np.ones(len(rows))
    if usable.any():
        refused: dict[int, str] = {}
        centers[usable], scales[usable] = _predict(model, _take(features, usable), np.flatnonzero(usable), refused)
        usable[list(refused)] = False
        reasons |= refused
    found = None
    if usable.any():
        at = {key: value[usable] if column_names(model.parameters[key]) else value for key, value in given.items()}
        found = decide(
            model.problem,
            model.set,
            model.radius,
            centers[usable],
            scales=scales[usable],
            parameters=at,
            n_jobs=n_jobs,
        )
    return _table(model, rows.index, found, usable, reasons)


def _has_no_value(model: Model, rows: Any) -> Mask:
    numbers = rows[model.parameter_columns].to_numpy(dtype=np.float64)
    return np.logical_not(np.isfinite(numbers).all(axis=1))


def _usable(model: Model, features: Any) -> tuple[Mask, dict[int, str]]:
    """Which rows have the numbers the predictor needs, and why the others do not."""
    numbers = numbers_of(features)
    if numbers is None:
        return np.ones(len(features), dtype=bool), {}
    bad = np.isinf(numbers) if model.takes_nan else ~np.isfinite(numbers)
    usable: Mask = np.logical_not(bad.any(axis=1))
    names = getattr(features, "columns", None)
    names = np.arange(numbers.shape[1]) if names is None else features.select_dtypes("number").columns
    reasons = {}
    for row in np.flatnonzero(~usable):
        guilty = ", ".join(str(name) for name in names[bad[row]])
        kind = "missing" if np.isnan(numbers[row, bad[row]]).all() else "not finite"
        reasons[int(row)] = f"{kind}: {guilty}"
    return usable, reasons


def _predict(model: Model, features: Any, positions: Indices, refused: dict[int, str]) -> tuple[Array, Array]:
    """Predictions; rows that the predictor refuses are found by halving and get a reason instead."""
    try:
        return model.predict(features)
    except ValueError as error:
        if len(positions) == 1:
            refused[int(positions[0])] = " ".join(str(error).split())
            if len(refused) > _MOST_REFUSED:
                raise
            return np.full((1, model.problem.n_outcomes), np.nan), np.ones(1)
    half = np.arange(len(positions)) < len(positions) // 2
    parts = [_predict(model, _take(features, part), positions[part], refused) for part in (half, ~half)]
    centers, scales = zip(*parts, strict=True)
    return np.concatenate(centers), np.concatenate(scales)


def _take(features: Any, mask: Mask) -> Any:
    if mask.all():
        return features
    return features.loc[mask] if hasattr(features, "loc") else features[mask]


def _table(model: Model, index: Any, found: Decisions | None, usable: Mask, reasons: dict[int, str]) -> Any:
    import pandas as pd

    n, problem = len(index), model.problem
    numbers = np.full((n, len(problem.decision_names) + problem.n_outcomes + 2), np.nan)
    codes = np.full(n, _STATUSES.index(_UNDECIDED), dtype=np.int8)
    texts = np.full(n, None, dtype=object)
    texts[list(reasons)] = list(reasons.values())
    if found is not None:
        z = found.z.reshape(len(found), -1)
        numbers[usable] = np.column_stack([z, found.cost_bound, found.worst_outcome, found.gap])
        code_of = {status: _STATUSES.index(short) for status, short in _SHORT.items()}
        codes[usable] = np.fromiter(map(code_of.__getitem__, found.status), np.int8, len(found))
        texts[usable] = _explanations(found)
    columns = dict(zip(model.columns[:-2], numbers.T, strict=True))
    columns["status"] = pd.Categorical.from_codes(codes, categories=list(_STATUSES))
    columns["note"] = pd.array(texts, dtype=pd.StringDtype("pyarrow"))
    return pd.DataFrame(columns, index=index)


def _explanations(found: Decisions) -> Array:
    """Why a decision is not optimal, in words; None where it is."""
    texts = np.full(len(found), None, dtype=object)
    for i in np.flatnonzero(~found.is_optimal):
        said = str(found.status[i]).partition(": ")[2]
        detail = found.detail[i] if found.detail else ""
        texts[i] = ". ".join(part for part in (said, detail) if part)
    return texts


def empty_result(model: Model) -> Any:
    """A table of decisions without rows: the types of the columns."""
    import pandas as pd

    return _table(model, pd.RangeIndex(0), None, np.zeros(0, dtype=bool), {})
