"""Radii, bounds and decisions of fits across all routes stay what they were."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from pins import FITS, PINS, as_text

_PINNED = json.loads(PINS.read_text())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", list(FITS))
def test_figures_of_a_fit_are_those_that_were_pinned(name: str) -> None:
    found = FITS[name]()
    if os.environ.get("POLYHEDGE_PINS") == "exact":
        assert as_text(found) == _PINNED[name]
    else:
        pinned = [float.fromhex(value) for value in _PINNED[name]]
        np.testing.assert_allclose(found, pinned, rtol=1e-9, atol=1e-9)
