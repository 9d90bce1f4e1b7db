"""How many modules of the package a newcomer walks through when following `fit` and `decide` of the README."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import cvxpy as cp
import pytest

import polyhedge as ph

PACKAGE = Path(ph.__file__).parent
MOST = {"fit": 45, "decide": 20}
"""Modules whose functions are called."""


@contextmanager
def walked(modules: set[str]) -> Iterator[None]:
    """Note the modules of the package whose functions are called; module bodies are imports, and do not count."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            path = frame.f_code.co_filename
            if path.startswith(str(PACKAGE)):
                modules.add(str(Path(path).relative_to(PACKAGE)))

    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


@pytest.mark.selection
def test_fit_and_decide_of_the_readme_walk_through_few_modules() -> None:
    shop = ph.data.make_example("newsvendor")
    history = shop.history.head(160)
    products = ["bread", "salad", "soup"]
    z = cp.Variable(3, nonneg=True, name="bring")
    problem = ph.DecisionProblem(
        decision=z,
        cost=lambda z, u: [1, 2, 1.5] @ cp.pos(z - u) + [2, 4, 4] @ cp.pos(u - z),
        constraints=[cp.sum(z) <= 160],
        n_outcomes=3,
    )
    decider = ph.RobustDecider(problem, random_state=0)
    fit, decide = set[str](), set[str]()
    with walked(fit):
        decider.fit(history.drop(columns=products), history[products])
    decider.decide(shop.new)  # imports and compiles what the first call needs
    with walked(decide):
        decider.decide(shop.new)
    assert {"fit": len(fit) <= MOST["fit"], "decide": len(decide) <= MOST["decide"]} == {"fit": True, "decide": True}, (
        f"fit: {len(fit)} {sorted(fit)}; decide: {len(decide)} {sorted(decide)}"
    )
