"""User code is type-checked: decisions, arrays and figures are known for what they are."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = """\
import numpy as np
import polyhedge as ph

X, Y = ph.data.make_synthetic(100, rng=np.random.default_rng(0))
decider = ph.RobustDecider(ph.problems.newsvendor(1.0, [4.0, 4.0])).fit(X, Y)
decisions = decider.decide(X)
reveal_type(decider)
reveal_type(decisions)
reveal_type(decisions.z)
reveal_type(decisions[0])
reveal_type(decisions[2:5])
reveal_type(decisions["order"])
reveal_type(decisions[0].cost_bound)
reveal_type(decider.evaluate(X, Y))
reveal_type(decider.evaluate(X, Y).coverage)
reveal_type(decider.at(alpha=0.05))
reveal_type(decider.region(X[0]))
reveal_type(decider.summary())
"""
# What each line is, without modules and parameters of arrays.
KINDS = [
    *("RobustDecider", "Decisions", "ndarray", "Decision", "Decisions", "ndarray", "float"),
    *("Evaluation", "Proportion", "RobustDecider", "Region", "str"),
]


def kinds_in(revealed: list[str]) -> list[str]:
    return [re.sub(r"\[.*", "", text).split(".")[-1] for text in revealed]


@pytest.mark.needs("mypy")
def test_mypy_knows_what_users_get(tmp_path):
    code = tmp_path / "user.py"
    code.write_text(CODE)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(code)]
    # The cache of the project's own check makes this quick, where there is one.
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert kinds_in(re.findall(r'Revealed type is "(.*)"', ran.stdout)) == KINDS, ran.stdout + ran.stderr
    assert ": error:" not in ran.stdout, ran.stdout


@pytest.mark.needs("pyright")
def test_pyright_knows_what_users_get(tmp_path):
    (tmp_path / "user.py").write_text(CODE)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT / "src")]}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    if not ran.stdout.startswith("{"):
        pytest.skip(f"pyright cannot be fetched here: {ran.stderr[-200:]}")
    said = [one["message"] for one in json.loads(ran.stdout)["generalDiagnostics"]]
    revealed = [re.findall(r'is "(.*)"', text)[0] for text in said if text.startswith("Type of")]
    assert kinds_in(revealed) == KINDS, ran.stdout
    assert [text for text in said if not text.startswith("Type of")] == []
