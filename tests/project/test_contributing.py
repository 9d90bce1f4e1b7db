"""What CONTRIBUTING says is true: the tree, where the paper is, and the worked examples."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from test_house import ORDER

import polyhedge as ph
from polyhedge.planning.residual_distributions import DISTRIBUTIONS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAPER = re.findall(r"^\| (.+?) \| ((?:src|study)/\S+) \| (.+?) \|$", TEXT, re.MULTILINE)
PARTS = re.findall(r"^\*\*A ([\w ]+)\*\*(.*?)(?=^\*\*A [\w ]+\*\*|^## )", TEXT, re.MULTILINE | re.DOTALL)
# What is explained in several steps is one example.
EXAMPLES = [
    (what, "\n".join(re.findall(r"^```python\n(.*?)^```", part, re.MULTILINE | re.DOTALL))) for what, part in PARTS
]


@pytest.mark.parametrize(("what", "path", "word"), PAPER, ids=[row[0] for row in PAPER])
def test_what_the_paper_names_is_where_the_map_says(what: str, path: str, word: str) -> None:
    assert word in (ROOT / path).read_text(encoding="utf-8")


def test_the_map_has_everything_that_a_reader_of_the_paper_looks_for() -> None:
    named = " ".join(row[0] for row in PAPER)
    for name in ("score", "rank", "Lemma 2", "Proposition 1", "Corollary 1", "Algorithm 1", "Algorithm 2", "Step 2"):
        assert name in named
    for name in ("Theorem 1", "Theorem 2", "F-CROMS", "PICNN", "regret"):
        assert name in named


def test_the_tree_lists_the_parts_of_the_house_in_the_order_in_which_they_may_import() -> None:
    listed = [name.removesuffix(".py") for name in re.findall(r"^  ([\w.]+)/? ", TEXT, re.MULTILINE)]
    assert [name for name in listed if name in ORDER] == [name for name in ORDER if name != "__main__"]


def test_the_study_says_where_each_of_its_modules_belongs() -> None:
    text = (ROOT / "study" / "README.md").read_text(encoding="utf-8")
    named = [name.rstrip("/") for name in re.findall(r"`([\w*./]+)`", text)]
    parts = [path.name for path in (ROOT / "study" / "src" / "polyhedge_study").iterdir() if path.name[0] != "_"]
    assert [part for part in parts if not any(fnmatch(part, name) for name in named)] == []
    modules = [name for name in named if name.endswith(".py")]
    assert [name for name in modules if not any(fnmatch(part, name) for part in parts)] == []


@pytest.mark.parametrize(("what", "code"), EXAMPLES, ids=[one[0] for one in EXAMPLES])
def test_the_worked_example_runs(what: str, code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # what it saves is no part of the tree
    made = run(what, code, monkeypatch)
    for decided in (one for one in made.values() if isinstance(one, ph.Decisions)):
        frame = decided.to_frame()
        assert len(frame) == len(decided)
        assert set(frame["status"]) <= {str(status).partition(":")[0] for status in ph.Status}
        assert all(text for text in (repr(decided), str(decided), decided._repr_html_(), str(decided[0])))


def run(what: str, code: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What an example leaves behind, by name."""
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)  # dataclasses look for their module there
    with patch.dict(DISTRIBUTIONS):  # later tests do not try the distribution of an example
        exec(compile(code, f"CONTRIBUTING.md, a {what}", "exec"), vars(module))
    return vars(module)


def test_there_is_an_example_of_everything_that_can_be_added() -> None:
    assert [what for what, _ in EXAMPLES] == [
        *("shape", "learner", "calibrator", "policy", "residual distribution", "problem")
    ]
