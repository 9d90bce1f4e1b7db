"""Decisions, bounds and expected costs of fits across the library are those that were kept."""

from __future__ import annotations

import json

import numpy as np
import pytest

from golden import CASES, GOLDEN
from polyhedge_study.real import NoDataError

KEPT = json.loads(GOLDEN.read_text())
SAME = 1e-9
"""Of the spread of costs: what no user could tell apart."""


def test_every_case_is_kept() -> None:
    assert set(KEPT) == set(CASES)


@pytest.mark.selection
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(CASES))
def test_figures_are_those_that_were_kept(name: str) -> None:
    try:
        found = CASES[name]()
    except NoDataError as error:
        pytest.skip(str(error))
    (spread,) = KEPT[name]["spread"]
    assert spread > 0
    assert found.keys() == KEPT[name].keys()
    for figure, kept in KEPT[name].items():
        np.testing.assert_allclose(found[figure], kept, rtol=0, atol=SAME * spread, err_msg=figure)
