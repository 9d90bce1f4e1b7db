"""What a careful statistician would say about a fitted model: drift, ties, few rows, a poor predictor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special, stats

from polyhedge._support.tolerances import TIE
from polyhedge._support.validation import Array, Mask
from polyhedge._support.warnings import Code
from polyhedge.calibration import conformal_rank, coverage_law
from polyhedge.evaluation import Proportion
from polyhedge.predictors.dates import time_order

__all__ = [
    "Code",
    "Diagnostic",
    "coverage_diagnostic",
    "coverage_since_diagnostic",
    "drift_along_file",
    "drift_between_parts",
    "expected_cost_diagnostic",
    "few_rows_diagnostic",
    "groups_diagnostic",
    "is_about",
    "one_of_each_group",
    "order_diagnostic",
    "predictor_diagnostics",
    "ties_diagnostic",
]

# Share of tables without drift in which a warning of drift comes up at most.
FALSE_ALARMS = 0.01
# Share of calibration rows with one and the same score from which on coverage is notably larger than promised.
_NOTABLE_TIES = 0.05
_FEWEST_TIED = 1.5
"""Rows beyond which scores are tied: one always equals the radius, because the radius is its score."""
_MOST_CATEGORIES = 30
"""A column of more names rows rather than kinds of rows."""
# A coverage that one model in twenty misses by more than this is worth a sentence.
_NOTABLE_SPREAD = 0.05
_NOTABLE_MISSES = 0.8
"""Share of the allowed misses below which bounds are notably higher than need be: chance moves most models less."""
_FEWER = np.array([1.5, 2.0, 3.0, 5.0])
"""How many times fewer misses are suspected: the factors of the alarm, the other way."""
_NOTABLE_OFF = 0.05
"""Share of the realised cost by which an expected cost may be off: fits of a few hundred rows do not tell it better."""
_CLEAR = 1.645
"""Standard errors by which a gain is clear: chance alone would pass them in one of twenty cases."""


class Diagnostic(str):
    """A text for the reader, with a code for the program: what depends on a diagnostic asks its code.

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
        """What a copy or a pickle makes it anew from."""
        return self.code, str(self)


def is_about(warning: str, code: Code) -> bool:
    """Whether a warning is a diagnostic with this code; texts of a user's own have none."""
    return isinstance(warning, Diagnostic) and warning.code is code


def drift_between_parts(
    parts: Sequence[tuple[str, Array]], scores: Sequence[Array], names: Sequence[str]
) -> list[Diagnostic]:
    """Whether residuals of consecutive parts of an ordered split, or the scores of the last two, differ.

    Two-sample Kolmogorov-Smirnov tests, corrected for their number, so that a table without drift is suspected with
    probability `FALSE_ALARMS` at most. The scores of the learning part are left out: the set has seen them.

    Parameters
    ----------
    parts : (name, residuals of shape (n, d)) in the order of time, none of them used for training.
    scores : scores of the calibration and of the held-out part; may be empty.
    names : of the outcomes.
    """
    tests = [
        (f"the residuals of {name}", before[0], after[0], before[1][:, j], after[1][:, j])
        for before, after in pairwise(parts)
        for j, name in enumerate(names)
    ]
    if len(scores) == 2:
        tests.append(("the scores", "calibration", "held-out", scores[0], scores[1]))
    worst = _worst(tests)
    if worst is None:
        return []
    what, before, after, p = worst
    return _about(
        Code.DRIFT,
        f"{what} differ between the {before} and the {after} part (p = {p:.1g}; {_alarm()}). The promise holds "
        "for rows like the calibration part only. Recalibrate on recent rows, and often.",
    )


def drift_along_file(residuals: Array, names: Sequence[str]) -> list[Diagnostic]:
    """Whether residuals of a random split, given in the order of the file, differ between its two halves.

    The same tests as between parts. The rows must not have been used for training.
    """
    half = len(residuals) // 2
    tests = [
        (f"the residuals of {name}", "first", "second", residuals[:half, j], residuals[half:, j])
        for j, name in enumerate(names)
    ]
    worst = _worst(tests)
    if worst is None:
        return []
    return _about(
        Code.ORDER,
        f"{worst[0]} differ between the first and the second half of the file (p = {worst[3]:.1g}; {_alarm()}). "
        'If the rows are in the order of time, split them in time: split="time" or a TimeSplit; on the command line, '
        "give --time-column. If they are sorted by something else, shuffling took care of it.",
    )


def order_diagnostic(rows: Any, *, as_they_come: bool = False) -> list[Diagnostic]:
    """Whether rows of a frame are in the order of a column of dates, and their split is not.

    Parameters
    ----------
    rows : data frame; anything else has no dates.
    as_they_come : whether the parts follow one another in the order of the rows; else they are random.
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

    Of each category the number of covered rows is compared with its exact law if categories were dealt at random, a
    hypergeometric one. p-values are corrected for their number, so that the warning is false in `FALSE_ALARMS` of all
    tables at most.

    Parameters
    ----------
    inside : (n,) which rows are covered; rows that have trained nothing.
    labels : (n,) categories by the name of their column.
    """
    tests = []
    for column, values in labels.items():
        names, place = np.unique(np.asarray(values).astype(str), return_inverse=True)
        for k, name in enumerate(names if 1 < len(names) <= _MOST_CATEGORIES else ()):
            own = place == k
            law = stats.hypergeom(len(inside), int(inside.sum()), int(own.sum()))
            tests.append((float(law.cdf(int(inside[own].sum()))), column, str(name), float(inside[own].mean())))
    less = sorted((one for one in tests if one[0] * len(tests) <= FALSE_ALARMS), key=lambda one: one[3])
    if not less:
        return []
    column, shares = less[0][1], [f"{share:.3g} where {column} is {name}" for _, column, name, share in less]
    return _about(
        Code.GROUPS,
        f"{inside.mean():.3g} of all rows are covered, but {', '.join(shares)} ({_alarm()}). The promise is for all "
        f"rows together. calibration=ByCategory({column!r}), on the command line --calibration "
        f"by-category:{column}, makes one for each.",
    )


def ties_diagnostic(scores: Array, radius: float, guarantee: str = "outcome") -> list[Diagnostic]:
    """Whether many calibration scores equal the radius, so that more is covered than has to be.

    `guarantee` says what is too large then: sets of outcomes, or bounds on costs.
    """
    share = float(np.isclose(scores, radius, rtol=TIE, atol=0.0).mean())
    if share <= max(_NOTABLE_TIES, _FEWEST_TIED / len(scores)):
        return []
    return _about(
        Code.TIES,
        f"{share:.0%} of the calibration scores equal the radius, as with rounded or repeated outcomes. The promise "
        f"holds, but {'bounds are higher' if guarantee == 'cost' else 'the sets are larger'} than it asks for.",
    )


def few_rows_diagnostic(n_calibrate: int, alpha: float, unit: str = "rows") -> list[Diagnostic]:
    """Whether the coverage of one model may lie far from its mean, because few rows calibrate it.

    The rank is rounded up to a whole number, which makes the coverage jump with each row. The law of the rank that is
    not rounded decides: more rows never bring the warning back.
    """
    low, high = coverage_law(n_calibrate, alpha).ppf([0.05, 0.95])
    unrounded = stats.beta((1 - alpha) * (n_calibrate + 1), alpha * (n_calibrate + 1))
    if unrounded.ppf(0.05) >= 1 - alpha - _NOTABLE_SPREAD:
        return []
    return _about(
        Code.FEW_ROWS,
        f"with {n_calibrate} calibration {unit} the coverage of this one model lies between {low:.2f} and "
        f"{high:.2f} in 9 of 10 cases; {1 - alpha:.6g} is promised for the mean over such models. More rows narrow it.",
    )


def predictor_diagnostics(
    Y: Array, centers: Array, means: Array, names: Sequence[str], *, is_scaled: bool = False
) -> list[Diagnostic]:
    """Outcomes for which the predictor is not clearly better than the mean of the training rows.

    Clearly: its squared error on rows it has not seen is lower by more than 1.645 standard errors. Where the set is
    scaled by a predicted spread, the features help all the same.
    """
    gains = (Y - means) ** 2 - (Y - centers) ** 2
    if len(gains) < 2:
        return []
    errors = gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    poor = [name for name, gain, error in zip(names, gains.mean(axis=0), errors, strict=True) if gain <= _CLEAR * error]
    if not poor:
        return []
    so = (
        "The promise holds, and the features only tell how uncertain outcomes are"
        if is_scaled
        else "The promise holds, but bounds are as high as without features"
    )
    return _about(
        Code.PREDICTOR,
        f"it is no better than the mean for {', '.join(poor)} on rows it has not seen. {so}. Try another "
        "--predictor or other features.",
    )


def coverage_diagnostic(coverage: Proportion, n_calibrate: int, alpha: float) -> list[Diagnostic]:
    """Whether fewer independent held-out rows are covered than chance allows, or notably more than promised.

    The number of covered rows is compared with its exact law if all rows are exchangeable, a beta-binomial one, so
    that the warning is false in `FALSE_ALARMS` of all tables at most. Too many are covered where a model that misses
    `_NOTABLE_MISSES` of the rows that it may miss would cover so many with probability `FALSE_ALARMS` at most.
    """
    if not coverage.n:
        return []
    k, n_covered = conformal_rank(n_calibrate, alpha), round(coverage.value * coverage.n)
    if stats.betabinom(coverage.n, k, n_calibrate + 1 - k).cdf(n_covered) <= FALSE_ALARMS:
        return _about(
            Code.COVERAGE,
            f"{coverage} was observed, further below the promised {1 - alpha:.6g} than chance allows "
            f"({_alarm()}). The held-out rows do not look like the calibration rows. Recalibrate on recent rows.",
        )
    if stats.binom.sf(n_covered - 1, coverage.n, 1 - _NOTABLE_MISSES * alpha) <= FALSE_ALARMS:
        return _about(Code.COVERAGE, _too_many(str(coverage), alpha))
    return []


def coverage_since_diagnostic(n: int, n_missed: int, alpha: float) -> list[Diagnostic]:
    """Whether notably more of n rows since calibration were covered than promised; may be looked at after every row.

    Likelihood ratios of lower shares of misses against `_NOTABLE_MISSES` of those that are allowed are a
    supermartingale for models that miss at least as many: their mean ever reaches 1 / `FALSE_ALARMS` with probability
    `FALSE_ALARMS` at most.
    """
    most = _NOTABLE_MISSES * alpha
    shares = most / _FEWER
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


def expected_cost_diagnostic(expected: Array, realised: Array, labels: Any = None) -> list[Diagnostic]:
    """Whether decisions came to cost notably more or less in the mean than was expected of them.

    Notably: by `_NOTABLE_OFF` of the realised cost and, by a paired t-test, more than chance explains in
    `FALSE_ALARMS` of all tables.

    Parameters
    ----------
    expected, realised : (n,) costs of rows that the model has not seen; NaN where they are not known.
    labels : (n,) of near-copies, which count once; None where there are none.
    """
    known = np.isfinite(expected) & np.isfinite(realised)
    own = None if labels is None else np.asarray(labels)[known]
    pairs = one_of_each_group(np.column_stack([expected, realised])[known], own)
    n = len(pairs)
    if n < 2:
        return []
    before, came = pairs.mean(axis=0)
    error = float((pairs[:, 1] - pairs[:, 0]).std(ddof=1)) / np.sqrt(n)
    if abs(came - before) - stats.t.ppf(1 - FALSE_ALARMS / 2, n - 1) * error <= _NOTABLE_OFF * abs(came):
        return []
    return _about(
        Code.EXPECTED_COST,
        f"decisions cost {came:.4g} in the mean, {abs(came - before):.3g} {'more' if came > before else 'less'} than "
        f"the {before:.4g} that was expected ({_alarm()}). The bound does not depend on it, but the residuals of these "
        "rows are unlike those that the policy was made of. Refresh on newer rows, or fit anew.",
    )


def _about(code: Code, text: str) -> list[Diagnostic]:
    return [Diagnostic(code, f"{code}: {text}")]


def _worst(tests: Sequence[tuple[str, str, str, Array, Array]]) -> tuple[str, str, str, float] | None:
    """The test with the least p-value, if that is below its share of the false alarms."""
    usable = [test for test in tests if min(len(test[3]), len(test[4])) > 1]
    if not usable:
        return None
    p_values = [float(_two_sample(test[3], test[4])) for test in usable]
    least = int(np.argmin(p_values))
    if p_values[least] * len(usable) > FALSE_ALARMS:
        return None
    return *usable[least][:3], p_values[least]


def _two_sample(first: Array, second: Array) -> Any:
    return stats.ks_2samp(first, second).pvalue


def _alarm() -> str:
    return f"false alarm in at most {FALSE_ALARMS:.0%} of tables"
