"""The study of the two guarantees: jobs, rows, and the table of paired differences."""

import numpy as np
import pytest

from polyhedge_study.guarantees import GuaranteeRow, _shift, guarantee_grid, guarantee_jobs

SETTING = "energy, d = 2, n = 160"


def row(guarantee, seed, premium, **others):
    known = {"shift": 0.0, "realised": 1.0, "held": 0.9, "seconds": 2.0, "detail": ""}
    return GuaranteeRow(SETTING, guarantee, seed, premium, **(known | others))


def test_the_shift_brings_the_bound_to_the_promised_share():
    excess = np.random.default_rng(0).normal(size=999)
    assert np.mean(excess <= _shift(excess, 0.1)) == pytest.approx(0.9, abs=0.002)


def test_differences_are_paired_and_seeds_that_only_one_has_are_left_out():
    rows = [row("cost", 0, 1.0, seconds=4.0), row("cost", 1, 2.0, seconds=4.0), row("cost", 2, 99.0)]
    rows += [row("outcome", 0, 1.5), row("outcome", 1, 2.7), row("outcome", 3, float("nan"))]
    (line,) = guarantee_grid(rows).rows
    assert line[:5] == (SETTING, "2", "1.500", "2.100", "-0.600 ± 0.100")
    assert line[-1] == "2.0"


def test_an_unknown_setting_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"setting must be one of linear, d = 2.*got 'cubic'"):
        guarantee_jobs(["cubic"])
