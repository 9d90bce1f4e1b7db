"""A table of rows -> a table of decisions, in which every row keeps its place."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from polyhedge._support.alignment import listed, names_of, select_columns
from polyhedge._support.frames import distinct_names
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.calibration.labels import as_values, takes_labels
from polyhedge.model import Model, Placed
from polyhedge.predictors.raw_columns import as_table
from polyhedge.predictors.schema import features_of
from polyhedge.problems import DecisionProblem
from polyhedge.problems.parameters import column_names, from_columns, parameter_rows, with_columns
from polyhedge.regions import Work
from polyhedge.robust import Decisions
from polyhedge.solvers.program import Status

_SHORT = {status: str(status).partition(":")[0] for status in Status}
_UNDECIDED = _SHORT[Status.NOT_DECIDED]
_STATUSES = tuple(dict.fromkeys(_SHORT.values()))
_MOST_REFUSED = 1000
"""Rows of one block that the predictor may refuse; beyond, it is the table that is wrong."""


Parameters = Mapping[Any, Any]


def model_of(decider: Any) -> Model:
    """The model of a fitted `RobustDecider`."""
    if not hasattr(decider, "model_"):
        raise NotFittedError("This RobustDecider is not fitted yet. Call fit(X, Y) first.")
    model: Model = decider.model_
    return model


def check_parameters(problem: DecisionProblem, parameters: Parameters | None, columns: Any) -> dict[str, Any]:
    """The parameters by name; an error unless all can be taken along with rows that come in parts.

    Those of one entry that are not given are the columns of their names, where there are such.
    """
    given = with_columns(problem.parameters, parameters, columns)
    for parameter in problem.parameters:
        value: Any = given.get(parameter.name)
        n, is_flat = len(column_names(value)), len(parameter.shape) < 2
        is_fine = is_flat and n == parameter.leaf.size if n else np.shape(value) == parameter.shape
        if value is None or not is_fine:
            raise ValueError(
                f"The parameter {parameter.name} must be given as {parameter.leaf.size} name(s) of columns or as "
                f"one value of shape {parameter.shape}, because rows of tables come in parts; got {value!r}."
            )
    return given


def parameter_columns(parameters: Parameters | None) -> list[str]:
    """Columns that hold values of parameters."""
    return list(dict.fromkeys(name for value in (parameters or {}).values() for name in column_names(value)))


def table_features(model: Model, rows: Any, parameters: Parameters | None, labels: str | None = None) -> Any:
    """The columns of a data frame as the predictor knows them: by name, or as an array without those of other roles."""
    if model.schema is not None:
        return features_of(as_table(rows, model.schema.source_names), model.schema)[0]
    if model.names is None:
        names_of(rows)  # numbers that are out of order are no names, and no order either
        given = with_columns(model.problem.parameters, parameters, rows.columns)
        return rows.drop(columns=[*parameter_columns(given), *([] if labels is None else [labels])]).to_numpy()
    return select_columns(rows, model.names, "The table")


def result_columns(model: Model) -> list[str]:
    """Names of all columns of a table of decisions: those of `Decisions.to_frame`."""
    problem = model.problem
    told = ["expected_cost"] if model.guarantee == "cost" else [f"worst_{name}" for name in problem.outcome_names]
    return distinct_names([*problem.decision_names, "cost_bound", *told, "status", "note"])


def require(extra: str, packages: Sequence[str]) -> None:
    """Raise an error that names the extra to install where one of the packages is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"This needs {' and '.join(missing)}. Get it with: pip install 'polyhedge[{extra}]'")


def check_column(model: Model, labels: Any, columns: Any) -> None:
    """Raise unless the labels or weights that calibration reads are a column of the table."""
    if labels is None and not takes_labels(model.radii):
        return
    if not takes_labels(model.radii):
        raise ValueError(f"No labels are read, and labels={str(labels)[:40]!r} is given. Leave it out.")
    if not isinstance(labels, str) or labels not in columns:
        raise ValueError(
            "The model was calibrated by labels or weights of the rows, and rows of tables come in parts: labels must "
            f"name the column that holds them, one of {listed(list(columns))}, got {str(labels)[:40]!r}."
        )


def decide_rows(
    model: Model,
    rows: Any,
    parameters: Parameters | None = None,
    *,
    labels: str | None = None,
    n_jobs: int | None = None,
) -> Any:
    """One row of results for each row of a data frame, in the same order and with the same index.

    Rows with values that are missing or cannot be used, and rows that the predictor refuses, keep their place: their
    decision is NaN, their status "not decided", and `note` says why.

    Parameters
    ----------
    model : Model
        `RobustDecider.model_`.
    rows : pandas.DataFrame
    parameters : dict, optional
        Values of the problem's parameters, by name: a column of the table (a list of columns where the parameter has
        several entries), or one value for all rows; by default the column of its name.
    labels : str, optional
        Column with the labels or weights that calibration reads.
    n_jobs : int, optional
        Number of threads, by default one a core.

    Returns
    -------
    pandas.DataFrame
        The columns of `Decisions.to_frame`: the decision by the problem's own names, `cost_bound`, `expected_cost`
        (with guarantee="outcome" the worst outcome, as `worst_u_1` ..., instead), `status` and `note`, which is missing
        where there is nothing to say and tells the gap of a solve that stopped early.

    Examples
    --------
    >>> import pandas as pd, polyhedge as ph
    >>> X, Y = ph.data.make_synthetic(400, rng=np.random.default_rng(0))
    >>> decider = ph.RobustDecider(ph.problems.simplex_linear([0.0, 0.0]), random_state=0).fit(X, Y)
    >>> rows = pd.DataFrame(X[:2])
    >>> rows.iloc[1, 0] = float("nan")
    >>> decide_rows(decider.model_, rows)["status"].tolist()
    ['optimal', 'not decided']
    """
    given = check_parameters(model.problem, parameters, rows.columns)
    check_column(model, labels, rows.columns)
    features = table_features(model, rows, given, labels)
    kept, texts = model.usable(
        features if model.names is None else rows, from_columns(model.problem.parameters, given, rows)
    )
    usable, reasons = np.isin(np.arange(len(rows)), kept), {row: text for row, text in enumerate(texts) if text}
    decisions = None
    if usable.any():
        values = _values(model.problem, rows, given, usable)
        own = None if labels is None else as_values(rows[labels].to_list())
        placed = _place(model, features, values, usable, reasons, Work(n_jobs), own)
        decisions = None if placed is None else placed.decide()
    return _table(model, rows.index, decisions, usable, reasons)


def _values(problem: DecisionProblem, rows: Any, given: Parameters, usable: Mask) -> Array:
    """Flat values (N, t) of the parameters; NaN at rows that are not used."""
    read = from_columns(problem.parameters, given, rows)
    some = {key: value[usable] if column_names(given[key]) else value for key, value in read.items()}
    flat = parameter_rows(problem.parameters, some, int(usable.sum()))
    values = np.full((len(rows), flat.shape[1]), np.nan)
    values[usable] = flat
    return values


def _place(
    model: Model, features: Any, values: Array, usable: Mask, reasons: dict[int, str], work: Work, labels: Any
) -> Placed | None:
    """The regions at the usable rows; rows that the predictor refuses are marked, with its reason, and left out."""

    def place() -> Placed:
        own = None if labels is None else labels[usable]
        return model.place(_take(features, usable), int(usable.sum()), values[usable], work, own)

    try:
        return place()
    except ValueError:
        refused: dict[int, str] = {}
        _find_refused(model, features, values, np.flatnonzero(usable), refused)
        if not refused:
            raise
    usable[list(refused)] = False
    reasons |= refused
    return place() if usable.any() else None


def _find_refused(model: Model, features: Any, values: Array, rows: Indices, refused: dict[int, str]) -> None:
    """Rows that the predictor refuses, found by halving, and its reasons."""
    mask = np.zeros(len(features), dtype=bool)
    mask[rows] = True
    try:
        model.family.at(_take(features, mask), values[rows])
    except ValueError as error:
        if len(rows) > 1:
            half = len(rows) // 2
            for part in (rows[:half], rows[half:]):
                _find_refused(model, features, values, part, refused)
            return
        refused[int(rows[0])] = " ".join(str(error).split())
        if len(refused) > _MOST_REFUSED:
            raise


def _take(features: Any, mask: Mask) -> Any:
    if mask.all():
        return features
    return features.loc[mask] if hasattr(features, "loc") else features[mask]


def _table(model: Model, index: Any, decisions: Decisions | None, usable: Mask, reasons: dict[int, str]) -> Any:
    import pandas as pd

    n, names = len(index), result_columns(model)[:-2]
    numbers = np.full((n, len(names)), np.nan)
    codes = np.full(n, _STATUSES.index(_UNDECIDED), dtype=np.int8)
    texts = np.full(n, None, dtype=object)
    texts[list(reasons)] = list(reasons.values())
    if decisions is not None:
        z = decisions.z.reshape(len(decisions), -1)
        told = decisions.worst_outcome if decisions.expected_cost is None else decisions.expected_cost
        numbers[usable] = np.column_stack([z, decisions.cost_bound, told])
        code_of = {status: _STATUSES.index(short) for status, short in _SHORT.items()}
        codes[usable] = np.fromiter(map(code_of.__getitem__, decisions.status), np.int8, len(decisions))
        texts[usable] = _explanations(decisions)
    columns = dict(zip(names, numbers.T, strict=True))
    columns["status"] = pd.Categorical.from_codes(codes, categories=list(_STATUSES))
    columns["note"] = pd.array(
        texts, dtype=pd.StringDtype("pyarrow" if importlib.util.find_spec("pyarrow") else "python")
    )
    return pd.DataFrame(columns, index=index)


def _explanations(decisions: Decisions) -> Array:
    """Why a decision is not optimal, or what is not promised for it, in words; None where there is nothing to say."""
    texts = np.full(len(decisions), None, dtype=object)
    details = np.array(decisions.detail or [""] * len(decisions), dtype=object)
    for i in np.flatnonzero(~decisions.is_optimal | (details != "")):
        said = "" if decisions.status[i] is Status.OPTIMAL else str(decisions.status[i]).partition(": ")[2]
        gap = f"gap {decisions.gap[i]:.2g}" if decisions.status[i] is Status.STOPPED_EARLY else ""
        texts[i] = ". ".join(part for part in (said, gap, details[i]) if part)
    return texts


def empty_result(model: Model) -> Any:
    """A table of decisions without rows: the types of the columns."""
    import pandas as pd

    return _table(model, pd.RangeIndex(0), None, np.zeros(0, dtype=bool), {})
