"""On the command line a solver can be chosen where one must, and tables for readers show units where there are any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import polyhedge as ph
from polyhedge.solvers.options import solver_in_force
from shared import run

PROBLEM = """\
kind = "newsvendor"
outcomes = ["rolls"]
decisions = ["bake"]
overage = [1.0]
underage = [4.0]
units = { cost = "EUR", rolls = "pieces", bake = "trays" }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("units")
    (made / "problem.toml").write_text(PROBLEM)
    rng = np.random.default_rng(0)
    for name, n in (("history", 200), ("fresh", 60)):
        a = rng.normal(size=n).round(6)
        frame = pd.DataFrame({"a": a, "town": rng.choice(["Bern", "Oslo"], n), "rolls": 30 + a + rng.normal(size=n)})
        frame.to_csv(made / f"{name}.csv", index=False)
    fixed = ("--problem", made / "problem.toml", "--predictor", "linear", "--guarantee", "outcome", "--features", "a")
    done = run("fit", made / "history.csv", "--out", made / "model.polyhedge", *fixed)
    assert done.exit_code == 0, done.output
    assert "EUR" in done.stdout
    return made


class TestSolver:
    """--solver and --solver-option."""

    @pytest.fixture
    def seen(self, monkeypatch: pytest.MonkeyPatch) -> list:
        """What is asked of solvers wherever a row is decided."""
        found: list = []
        decide = ph.model.Model.decide

        def spy(*given: object, **named: object) -> object:
            found.append(solver_in_force())
            return decide(*given, **named)

        monkeypatch.setattr(ph.model.Model, "decide", spy)
        return found

    def test_what_is_asked_is_in_force_for_one_command_and_no_longer(self, folder: Path, seen: list) -> None:
        given = ("decide", folder / "model.polyhedge", folder / "fresh.csv", "--out", folder / "out.csv")
        options = ("time_limit=7", "highs.mip_rel_gap=1e-4", "clarabel.max_iter=500", "highs.presolve=off")
        asked = [word for option in options for word in ("--solver-option", option)]
        assert run(*given, *asked).exit_code == 0
        expected = ph.Solver(time_limit=7, highs={"mip_rel_gap": 1e-4, "presolve": "off"}, clarabel={"max_iter": 500})
        assert seen == [expected]
        assert run(*given).exit_code == 0
        assert seen[1] == solver_in_force() == ph.Solver()

    @pytest.mark.needs("pyscipopt")
    def test_options_of_a_back_end_reach_it(self, folder: Path, seen: list) -> None:
        given = ("decide", folder / "model.polyhedge", folder / "fresh.csv", "--out", folder / "out.csv")
        assert run(*given, "--solver", "scip", "--solver-option", "limits/time=60").exit_code == 0
        assert seen[0].backend == "scip"
        assert seen[0].options == {"scip_params": {"limits/time": 60}}


class TestUnits:
    """Frames and files have plain names; what is read by people has units."""

    def test_texts_and_notebooks_show_them_and_frames_do_not(self, folder: Path) -> None:
        decider, fresh = ph.load(folder / "model.polyhedge"), pd.read_csv(folder / "fresh.csv")
        decisions = decider.decide(fresh)
        assert "trays costs at most" in str(decisions[0])
        assert " EUR, " in str(decisions[0])
        for head in ("bake [trays]", "cost_bound [EUR]", "worst_rolls [pieces]"):
            assert f"<th>{head}</th>" in decisions._repr_html_()
        assert decisions.to_frame().columns[:3].tolist() == ["bake", "cost_bound", "worst_rolls"]
        found = decider.evaluate(fresh, fresh[["rolls"]], by="town")
        assert str(found).count(" EUR") == 7  # five figures, and the cost of each of two towns
        assert "<th>regret [EUR]</th>" in found._repr_html_()
        assert "regret" in found.to_frame().index
        planned = ph.Decisions(
            decisions.flat, decisions.cost_bound, decisions.worst_outcome, decisions.status,
            decisions.gap, decisions.layout, labels=decisions.labels, expected_cost=decisions.cost_bound,
        )  # fmt: skip
        assert "<th>expected_cost [EUR]</th>" in planned._repr_html_()
