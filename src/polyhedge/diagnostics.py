"""Diagnostics of a fit, a calibration or an evaluation: few rows, ties, drift, copies, rows seen before.

Each diagnostic is a function that returns a list of one `Diagnostic`, or of none. Tests of drift, coverage and
categories are false in `FALSE_ALARMS` of all tables at most.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special, stats

from polyhedge._support.frames import as_pandas
from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge._support.warnings import Code, CodedWarning
from polyhedge.calibration import Radii, conformal_rank, coverage_law
from polyhedge.evaluation import Evaluation, Proportion, RowMeasures
from polyhedge.model import Model, Prints
from polyhedge.predictors.columns import time_order
from polyhedge.rows import Rows

FALSE_ALARMS = 0.01
"""Share of tables without drift in which a warning of drift comes up at most."""
_ALARM = f"false alarm in at most {FALSE_ALARMS:.0%} of tables"
_NOTABLE_MISSES = 0.8
"""Share of the allowed misses below which bounds are notably higher than need be: chance moves most models less."""
_NOTABLE_OVERLAP = 0.02
"""Share of rows that were seen before beyond which they are no fresh ones: fewer may be alike by chance."""


class Diagnostic(str):
    """A text for the reader, with a `code` for programs.

    Examples
    --------
    >>> few_rows_diagnostic(20, 0.1)[0].code
    <Code.FEW_ROWS: 'Few rows'>
    """

    code: Code

    def __new__(cls, code: Code, text: str) -> Diagnostic:  # noqa: D102
        diagnostic = super().__new__(cls, text)
        diagnostic.code = code
        return diagnostic

    def __getnewargs__(self) -> tuple[Code, str]:  # type: ignore[override]
        """What copies and pickles are made of."""
        return self.code, str(self)


class DiagnosticWarning(CodedWarning, UserWarning):
    """A diagnostic of a fit, or of what is measured on some rows; `decider.diagnostics_` keeps those of the fit.

    Parameters
    ----------
    text : the warning as it is shown.
    code : what the diagnostic is about, such as "Few rows" or "Drift", for programs; None where none was given.

    Examples
    --------
    >>> import warnings
    >>> warnings.filterwarnings("error", category=DiagnosticWarning)  # a fit with a diagnostic does not pass
    """


def warn_of(diagnostics: Sequence[Diagnostic], stacklevel: int = 2) -> None:
    """Warn of each diagnostic; `stacklevel` counts as that of `warnings.warn`, from the caller of this function."""
    for diagnostic in diagnostics:
        warnings.warn(DiagnosticWarning(str(diagnostic), diagnostic.code), stacklevel=stacklevel + 1)


def is_about(warning: str, code: Code) -> bool:
    """Whether a warning is a diagnostic with this code; texts of a user's own have none."""
    return isinstance(warning, Diagnostic) and warning.code is code


def _about(code: Code, text: str) -> list[Diagnostic]:
    return [Diagnostic(code, f"{code}: {text}")]


# Diagnostics of a model and its rows


def diagnostics_of_fit(model: Model, rows: Rows, calibrate: Indices, in_time: bool) -> tuple[Diagnostic, ...]:
    """Copies, few calibration rows, tied scores, drift; from rows that the predictor of the model has not seen.

    The rows `calibrate` set the radius: with pooled calibration, learning rows too.
    """
    own, names = rows.take(calibrate), model.problem.outcome_names
    # Rows that developed a policy have trained its predictor too: their residuals are smaller than those of new rows.
    calibrated = model.record.split.calibrate
    learn = model.record.split.learn[: 0 if model.family.trains_on_learning_rows else None]
    if in_time and len(learn):
        parts = {"learning part": learn, "calibration part": calibrated}
        drift = drift_diagnostic({name: _residuals(model, rows.take(part)) for name, part in parts.items()}, names)
    else:
        drift = _drift(_residuals(model, rows.take(np.sort(np.concatenate([learn, calibrated])))), names, in_time)
    copies = copies_diagnostic(row_hashes(own), model.record.seen, own.groups)
    return (*copies, *second_stage_diagnostic(model, calibrate), *diagnostics_of_radii(model, own), *drift)


def second_stage_diagnostic(model: Model, calibrate: Indices) -> list[Diagnostic]:
    """Rows whose second stage is infeasible at the decision that is taken: their score is infinite."""
    radii: Any = model.radii
    if not model.problem.has_recourse or model.guarantee != "cost" or not radii.is_marginal:
        return []
    scores = np.zeros(0) if radii.scores is None else radii.scores
    if len(scores) != len(calibrate):  # groups of near-copies have one score
        return []
    rows = np.sort(calibrate[np.isposinf(scores)])
    if not len(rows):
        return []
    text = (
        f"Second stage: {len(rows)} of {len(scores)} calibration rows score +infinity, because no second "
        f"decision is feasible for what is decided there; the first are rows {', '.join(map(str, rows[:5]))} of fit. "
        f"No more than a share alpha = {model.radii.alpha:g} may be such. Relax recourse_constraints, or add a "
        "recourse variable that is expensive and always feasible."
    )
    return [Diagnostic(Code.SECOND_STAGE, text)]


def diagnostics_of_new_radii(
    model: Model, rows: Rows, in_time: bool, made: Prints | None, trained: Prints | None = None
) -> tuple[Diagnostic, ...]:
    """The same findings for rows that set radii after a fit.

    `made` has fingerprints of the rows behind the parts of the model that stay, `trained` those of the rows that now
    train it.
    """
    hashes, residuals, names = row_hashes(rows), _residuals(model, rows), model.problem.outcome_names
    return (
        *seen_diagnostic(made, hashes),
        *copies_diagnostic(hashes, trained, rows.groups),
        *diagnostics_of_radii(model, rows),
        *_drift(residuals, names, in_time),
    )


def diagnostics_of_radii(model: Model, rows: Rows) -> list[Diagnostic]:
    """Few calibration rows, tied scores, categories that are covered less often; `rows` set the radii."""
    radii: Any = model.radii
    if not radii.is_marginal:
        return []
    found = diagnostics_of_size(radii)
    if radii.scores is not None:
        if not model.family.scores_are_steps:  # many steps of a path are equal whatever the rows
            found += ties_diagnostic(radii.scores, radii.radius, model.guarantee)
        if rows.groups is None:
            found += groups_diagnostic(radii.scores <= radii.radius, categories(rows.features))
    return found


def diagnostics_of_size(radii: Radii) -> list[Diagnostic]:
    """Few calibration rows, if only their number is known."""
    unit = "groups" if radii.is_grouped else "rows"
    return few_rows_diagnostic(radii.n_units, radii.alpha, unit) if radii.is_marginal else []


def diagnostics_of_evaluation(
    model: Model, evaluation: Evaluation, measured: RowMeasures, groups: Any = None
) -> list[Diagnostic]:
    """Coverage that is too low or notably too high, and expected costs that are off, on rows that were not used."""
    radii, coverage = model.radii, evaluation.evidence
    found = coverage_diagnostic(coverage, radii.n_units, radii.alpha) if radii.is_marginal else []
    return [*found, *expected_cost_diagnostic(measured.expected, measured.realised, groups)]


def categories(X: Any) -> dict[str, Any]:
    """The columns of a data frame that name kinds; none of an array."""
    frame = as_pandas(X)
    if not hasattr(frame, "select_dtypes"):
        return {}
    columns = ((str(name), frame.iloc[:, j]) for j, name in enumerate(frame.columns))  # names may stand twice
    return {name: column for name, column in columns if column.dtype.kind not in "fiucMm"}


def _residuals(model: Model, rows: Rows) -> Array:
    """Residuals (n, d) of the predictor, one for each group."""
    return one_of_each_group(rows.Y - model.family.predictor.predict(rows.features), rows.groups)


def _drift(residuals: Array, names: Sequence[str], in_time: bool) -> list[Diagnostic]:
    """Whether residuals in the order of time, or of the file, differ between their halves."""
    halves = ("older half", "newer half of the calibration part") if in_time else ("first", "second half of the file")
    parts = dict(zip(halves, np.split(residuals, [len(residuals) // 2]), strict=True))
    return drift_diagnostic(parts, names, in_time=in_time)


# Rows that are known already


def row_hashes(rows: Rows) -> Prints | None:
    """A number for each row by its features and outcomes; None if they cannot be hashed."""
    import pandas as pd

    try:
        features = as_pandas(rows.features)
        frame = pd.DataFrame(features if hasattr(features, "iloc") else np.asarray(features))
        if frame.columns.is_unique:  # 3 and 3.0 are one number, whatever the type of a column elsewhere
            frame = frame.astype({name: np.float64 for name, kind in frame.dtypes.items() if kind.kind in "iu"})
        hashes = [pd.util.hash_pandas_object(part, index=False) for part in (frame, pd.DataFrame(rows.outcomes))]
    except (TypeError, ValueError):
        return None
    # Other factors for the two, so that equal parts do not cancel.
    return np.asarray(3 * hashes[0].to_numpy() + 5 * hashes[1].to_numpy(), dtype=np.uint64)


def seen_rows(model: Model) -> Prints | None:
    """The rows that trained, learned or chose anything in the model; None if unknown."""
    known = [prints for prints in (model.record.seen, model.record.trained) if prints is not None]
    return np.concatenate(known) if known else None


def seen_diagnostic(seen: Prints | None, hashes: Prints | None) -> list[Diagnostic]:
    """Whether rows trained or shaped the model: then nothing that is measured or promised with them can be trusted."""
    share = 0.0 if seen is None or hashes is None or not len(hashes) else float(np.isin(hashes, seen).mean())
    if share <= _NOTABLE_OVERLAP:
        return []
    return _about(
        Code.SEEN,
        f"{share:.0%} of these rows trained or shaped the model. Coverage measured or promised with them is not to be "
        "trusted. Use rows that it has not seen.",
    )


def fresh_rows_diagnostic(model: Model, rows: Rows) -> list[Diagnostic]:
    """Whether rows that should be fresh have trained or shaped the model."""
    seen = seen_rows(model)
    return [] if seen is None else seen_diagnostic(seen, row_hashes(rows))


def copies_diagnostic(calibrate: Prints | None, others: Prints | None, groups: Any) -> list[Diagnostic]:
    """Whether calibration rows are copies of rows that trained or learned; without groups, also of one another."""
    if calibrate is None or not len(calibrate):
        return []
    is_copy = np.zeros(len(calibrate), dtype=bool) if others is None else np.isin(calibrate, others)
    if groups is None:
        _, place, count = np.unique(calibrate, return_inverse=True, return_counts=True)
        is_copy |= count[place] > 1
    if is_copy.mean() <= _NOTABLE_OVERLAP:
        return []
    return _about(
        Code.COPIES,
        f"{is_copy.mean():.0%} of the calibration rows are equal to another row in every column. Copies in two parts "
        "make a model look better than it is. Leave them out, or give groups=, one label for each row and its copies; "
        "if they are separate events, all is well.",
    )


# Single diagnostics


def drift_diagnostic(parts: Mapping[str, Array], names: Sequence[str], *, in_time: bool = True) -> list[Diagnostic]:
    """Whether residuals of consecutive parts differ, of rows that were not used for training.

    Two-sample Kolmogorov-Smirnov tests, corrected for their number, so that a table without drift is suspected with
    probability `FALSE_ALARMS` at most. `parts` are residuals (n, d) by name, in the order of time or of the file.
    """
    tests = [
        (float(stats.ks_2samp(old[:, j], new[:, j]).pvalue), name, before, after)
        for (before, old), (after, new) in pairwise(parts.items())
        if min(len(old), len(new)) > 1
        for j, name in enumerate(names)
    ]
    p, name, before, after = min(tests, key=lambda test: test[0], default=(1.0, "", "", ""))
    if p * len(tests) > FALSE_ALARMS or not tests:
        return []
    found = f"the residuals of {name} differ between the {before} and the {after} (p = {p:.1g}; {_ALARM})."
    if in_time:
        advice = "The promise holds for rows like the calibration part only. Recalibrate on recent rows, and often."
        return _about(Code.DRIFT, f"{found} {advice}")
    return _about(
        Code.ORDER,
        f'{found} If the rows are in the order of time, split them in time: split="time" or a TimeSplit; on the '
        "command line, give --time-column. If they are sorted by something else, shuffling took care of it.",
    )


def order_diagnostic(rows: Any, *, as_they_come: bool = False) -> list[Diagnostic]:
    """Whether rows of a frame are in the order of a column of dates, and their split is not.

    Parts follow one another `as_they_come`, or are random.
    """
    found = time_order(rows) if hasattr(rows, "select_dtypes") else None
    if found is None or (as_they_come and found[1]):
        return []
    name = found[0]
    how = "parts are cut as rows come, not from the oldest to the newest" if as_they_come else "parts are random"
    split = f"TimeSplit({name!r}); on the command line, give --time-column {name}"
    return _about(
        Code.ORDER,
        f"rows are sorted by the dates in {name}, but {how}. If decisions are for later dates, split in time: "
        f"split={'TimeSplit(times=X.index)' if name == 'X.index' else split}.",
    )


def one_of_each_group(values: Array, labels: Any) -> Array:
    """The mean (g, d) of each group, in the order of their first rows: near-copies are no independent evidence."""
    if labels is None or not len(values):
        return values
    _, first, group_of = np.unique(np.asarray(labels), return_index=True, return_inverse=True)
    sums = np.zeros((len(first), values.shape[1]))
    np.add.at(sums, group_of, values)
    means = sums / np.bincount(group_of)[:, None]
    return np.asarray(means[np.argsort(first)])


def groups_diagnostic(inside: Mask, labels: Mapping[str, Any]) -> list[Diagnostic]:
    """Whether rows of some category are covered less often than others: a promise for all rows hides that.

    The number of covered rows of each category is compared with its hypergeometric distribution if categories were
    assigned at random. p-values are corrected for their number, so that the warning is false in `FALSE_ALARMS` of all
    tables at most. `labels` are categories (n,) by the name of their column.
    """
    tests = []
    for column, values in labels.items():
        names, place = np.unique(np.asarray(values).astype(str), return_inverse=True)
        for k, name in enumerate(names if 1 < len(names) <= 30 else ()):  # a column of more names rows, not kinds
            own = place == k
            distribution = stats.hypergeom(len(inside), int(inside.sum()), int(own.sum()))
            tests.append(
                (float(distribution.cdf(int(inside[own].sum()))), column, str(name), float(inside[own].mean()))
            )
    less = sorted((one for one in tests if one[0] * len(tests) <= FALSE_ALARMS), key=lambda one: one[3])
    if not less:
        return []
    column, shares = less[0][1], [f"{share:.3g} where {column} is {name}" for _, column, name, share in less]
    return _about(
        Code.GROUPS,
        f"{inside.mean():.3g} of all rows are covered, but {', '.join(shares)} ({_ALARM}). The promise is for all "
        f"rows together. calibration=ByCategory({column!r}), on the command line --calibration "
        f"by-category:{column}, makes one for each.",
    )


def ties_diagnostic(scores: Array, radius: float, guarantee: str = "outcome") -> list[Diagnostic]:
    """Whether many calibration scores equal the radius, so that more is covered than has to be.

    `guarantee` says what is too large then: sets of outcomes, or bounds on costs.
    """
    share = float(np.isclose(scores, radius, rtol=TIE, atol=0.0).mean())
    if share <= max(0.05, 1.5 / len(scores)):  # one score always equals the radius
        return []
    return _about(
        Code.TIES,
        f"{share:.0%} of the calibration scores equal the radius, as with rounded or repeated outcomes. The promise "
        f"holds, but {'bounds are higher' if guarantee == 'cost' else 'the sets are larger'} than it asks for.",
    )


def few_rows_diagnostic(n_calibrate: int, alpha: float, unit: str = "rows") -> list[Diagnostic]:
    """Whether the coverage of one model may lie far from its mean, because few rows calibrate it.

    The rank is rounded up to a whole number, which makes the coverage jump with each row. The distribution of the rank
    that is not rounded decides: more rows never bring the warning back.
    """
    low, high = coverage_law(n_calibrate, alpha).ppf([0.05, 0.95])
    unrounded = stats.beta((1 - alpha) * (n_calibrate + 1), alpha * (n_calibrate + 1))
    if unrounded.ppf(0.05) >= 1 - alpha - 0.05:
        return []
    return _about(
        Code.FEW_ROWS,
        f"with {n_calibrate} calibration {unit} the coverage of this one model lies between {low:.2f} and "
        f"{high:.2f} in 9 of 10 cases; {1 - alpha:.6g} is promised for the mean over such models. More rows narrow it.",
    )


def coverage_diagnostic(coverage: Proportion, n_calibrate: int, alpha: float) -> list[Diagnostic]:
    """Whether fewer independent held-out rows are covered than chance allows, or notably more than promised.

    The number of covered rows is compared with its exact distribution if all rows are exchangeable, a beta-binomial
    one, so that the warning is false in `FALSE_ALARMS` of all tables at most. Too many are covered where a model that
    misses `_NOTABLE_MISSES` of the rows that it may miss would cover so many with probability `FALSE_ALARMS` at most.
    """
    if not coverage.n:
        return []
    k, n_covered = conformal_rank(n_calibrate, alpha), round(coverage.value * coverage.n)
    if stats.betabinom(coverage.n, k, n_calibrate + 1 - k).cdf(n_covered) <= FALSE_ALARMS:
        return _about(
            Code.COVERAGE,
            f"{coverage} was observed, further below the promised {1 - alpha:.6g} than chance allows "
            f"({_ALARM}). The held-out rows do not look like the calibration rows. Recalibrate on recent rows.",
        )
    if stats.binom.sf(n_covered - 1, coverage.n, 1 - _NOTABLE_MISSES * alpha) <= FALSE_ALARMS:
        return _about(Code.COVERAGE, _too_many(str(coverage), alpha))
    return []


def coverage_since_diagnostic(n: int, n_missed: int, alpha: float) -> list[Diagnostic]:
    """Whether notably more of n rows since calibration were covered than promised; may be looked at after every row.

    Consider models that miss at least `_NOTABLE_MISSES` of the share allowed. The likelihood ratios of lower shares of
    misses against that share are then a supermartingale: their mean ever reaches 1 / `FALSE_ALARMS` with probability
    `FALSE_ALARMS` at most.
    """
    most = _NOTABLE_MISSES * alpha
    shares = most / np.array([1.5, 2.0, 3.0, 5.0])  # the factors of the alarm, the other way
    ratios = n_missed * np.log(shares / most) + (n - n_missed) * np.log((1 - shares) / (1 - most))
    if special.logsumexp(ratios) - np.log(len(shares)) < -np.log(FALSE_ALARMS):
        return []
    return _about(Code.COVERAGE, _too_many(f"{1 - n_missed / n:.3f}", alpha))


def _too_many(observed: str, alpha: float) -> str:
    return (
        f"{observed} was observed, above the promised {1 - alpha:.6g}: a model that misses at least "
        f"{_NOTABLE_MISSES * alpha:.3g} of rows looks like this with probability {FALSE_ALARMS:g} at most. The promise "
        "holds, but bounds are higher than it asks for. Few calibration rows, tied scores or rows that have become "
        "easier do this: recalibrate on more and on recent rows."
    )


def expected_cost_diagnostic(expected: Array, realised: Array, groups: Any = None) -> list[Diagnostic]:
    """Whether decisions cost notably more or less in the mean than expected.

    Notably: by 5 % of the realised cost and, by a paired t-test, more than chance explains in
    `FALSE_ALARMS` of all tables. Costs (n,) are NaN where they are not known; near-copies of `groups` count once.
    """
    known = np.isfinite(expected) & np.isfinite(realised)
    own = None if groups is None else np.asarray(groups)[known]
    pairs = one_of_each_group(np.column_stack([expected, realised])[known], own)
    n = len(pairs)
    if n < 2:
        return []
    expected_mean, realised_mean = pairs.mean(axis=0)
    error = float((pairs[:, 1] - pairs[:, 0]).std(ddof=1)) / np.sqrt(n)
    if abs(realised_mean - expected_mean) - stats.t.ppf(1 - FALSE_ALARMS / 2, n - 1) * error <= 0.05 * abs(
        realised_mean
    ):
        return []
    more = "more" if realised_mean > expected_mean else "less"
    return _about(
        Code.EXPECTED_COST,
        f"decisions cost {realised_mean:.4g} in the mean, {abs(realised_mean - expected_mean):.3g} {more} than the "
        f"{expected_mean:.4g} that was expected ({_ALARM}). The bound does not depend on it, but the residuals of "
        "these rows are unlike those that the policy was made of. Refresh on newer rows, or fit again.",
    )
