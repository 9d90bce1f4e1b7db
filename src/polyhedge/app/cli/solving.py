"""Options of the solvers on the command line, for those who must choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

__all__ = ["Solving"]

_WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class Solving:
    """What is asked of solvers."""

    solver: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What decides in whole numbers: auto (HiGHS), scip, gurobi or another one."),
    ] = None
    solver_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="time_limit=SECONDS for each program, highs.NAME=VALUE, clarabel.NAME=VALUE, or an option of "
            "--solver.",
        ),
    ] = None

    def begin(self) -> None:
        """Let all programs of the command that is running be solved as asked; as ever where nothing was asked."""
        if self.solver is None and not self.solver_option:
            return
        from polyhedge.solvers.options import Solver

        asked: dict[str, Any] = {"backend": self.solver or "auto", "highs": {}, "clarabel": {}, "options": {}}
        for text in self.solver_option or ():
            _note(asked, text)
        Solver(**asked).keep_in_force()  # each command runs in a context of its own, see `app.py`


def _note(asked: dict[str, Any], text: str) -> None:
    """Put an option where its solver looks for it."""
    key, value = _read(text)
    whose, _, own = key.partition(".")
    if key == "time_limit":
        asked[key] = value
    elif own and whose in ("highs", "clarabel"):
        asked[whose][own] = value
    elif asked["backend"] == "auto":
        raise ValueError(
            f"--solver-option {text!r} is for no solver: write time_limit=..., highs.NAME=..., clarabel.NAME=..., "
            "or name whose option it is with --solver."
        )
    elif asked["backend"] == "scip":  # CVXPY takes these together, under one name
        asked["options"].setdefault("scip_params", {})[key] = value
    else:
        asked["options"][key] = value


def _read(text: str) -> tuple[str, Any]:
    key, sign, value = (part.strip() for part in text.partition("="))
    if not key or not sign or not value:
        raise ValueError(f"--solver-option must be KEY=VALUE, such as highs.mip_rel_gap=1e-4, got {text!r}.")
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return key, _WORDS.get(value.lower(), value)
