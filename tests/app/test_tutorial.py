"""The tutorial: its commands are run as written, and their output is the one shown, numbers masked.

``python tests/app/test_tutorial.py`` runs the commands and writes the output into the tutorial.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polyhedge.app import cli

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"```console\n(.*?)```", flags=re.DOTALL)
# Digests, then numbers, and whether a learner's proof was ready when its time was up: a busy machine proves less.
NUMBER = re.compile(r"\b[0-9a-f]{16}\b|[-+]?\d[\d.]*(?:e[-+]?\d+)?|(?<=\()(?:optimal|finished)(?=, [\d.]+ s\))")


# Which rules make a policy, or which learner wins, may be a near tie that the last bits of another machine decide.
RULES = re.compile(r"^( *learned +|learner +).*$")


def commands(block: str) -> list[tuple[str, str]]:
    """Commands of a block, each with the output shown below it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


def output(command: str) -> str:
    """What a command prints, to either stream, in the folder that we are in."""
    words = shlex.split(command)
    if words[0] == "polyhedge":
        return CliRunner().invoke(cli.app, words[1:], prog_name="polyhedge").output
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def masked(text: str) -> list[str]:
    """Lines with numbers and the width of gaps left out."""
    return [
        re.sub(r"\s+", " ", NUMBER.sub("#", RULES.sub(r"\1", line))).strip()
        for line in text.splitlines()
        if line.strip()
    ]


def check(text: str) -> None:
    steps = [step for block in BLOCK.findall(text) for step in commands(block)]
    assert len(steps) > 5
    for command, shown in steps:
        assert masked(output(command)) == masked(shown), command


@pytest.mark.needs("matplotlib")
@pytest.mark.selection
def test_first_example_gives_the_output_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(TUTORIAL.read_text(encoding="utf-8").partition("## 2.")[0])


@pytest.mark.needs("matplotlib")
@pytest.mark.slow
@pytest.mark.selection
def test_tutorial_commands_give_the_output_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(TUTORIAL.read_text(encoding="utf-8"))


def commands_shown(page: str, language: str = "sh") -> list[str]:
    """Commands of polyhedge in the blocks of a page, as they stand there."""
    text = (TUTORIAL.parents[1] / page).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL))
    return re.findall(r"^polyhedge .*$", blocks.replace("\\\n", " "), flags=re.MULTILINE)


@pytest.mark.needs("matplotlib", "cryptography")
def test_commands_of_signed_files_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = commands_shown("docs/model-file.md")
    assert len(shown) == 4
    for command in shown:
        done = CliRunner().invoke(cli.app, shlex.split(command, comments=True)[1:], prog_name="polyhedge")
        assert done.exit_code == 0, f"{command}\n{done.output}"
    assert (tmp_path / "decisions.csv").exists()


def test_masks_hide_numbers_and_nothing_else() -> None:
    assert masked("radius   0.5495 from 124 rows, -1e-15") == ["radius # from # rows, #"]
    assert masked("data 507f0a8617117552, decade") == ["data #, decade"]
    assert masked("box (optimal, 0.3 s)") == masked("box (finished, 2 s)") != masked("box (failed, 2 s)")
    assert masked("the work is finished") == ["the work is finished"]
    assert masked("learner policy; scaled residuals, mean (38%)") == ["learner"]


def renew() -> None:
    """Write the tutorial anew with the output that its commands give now."""

    def run(block: re.Match[str]) -> str:
        return "```console\n" + "".join(f"$ {command}\n{output(command)}" for command, _ in commands(block[1])) + "```"

    with tempfile.TemporaryDirectory() as folder:
        import os

        os.chdir(folder)
        TUTORIAL.write_text(BLOCK.sub(run, TUTORIAL.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    renew()
