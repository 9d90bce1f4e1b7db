"""`polyhedge example`: files to try the other commands on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyhedge._support.files import replace_file
from polyhedge.app.cli.app import app
from polyhedge.app.cli.common import AsJson, tell_json
from polyhedge.app.cli.output import say


@app.command()
def example(
    name: Annotated[str, typer.Argument(help="energy or newsvendor.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the files; made if it is missing.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a history, fresh rows, new rows and a decision problem, to try the other commands on.

    Files that are there already are left alone if they are the same, and never overwritten.

    Example: polyhedge example energy --out energy
    """
    from importlib import resources

    from polyhedge.data.examples import make_example

    tables = make_example(name)
    contents = {
        f"{part}.csv": getattr(tables, part).to_csv(index=False, lineterminator="\n").encode()
        for part in ("history", "fresh", "new")
    }
    contents["problem.toml"] = resources.files("polyhedge.data").joinpath(f"example_{name}.toml").read_bytes()
    there = [file for file in contents if (out / file).exists()]
    other = [file for file in there if (out / file).read_bytes() != contents[file]]
    if other:
        raise ValueError(f"{out / other[0]} is there already and differs. Choose another folder with --out.")
    for file, content in contents.items():
        replace_file(out / file, content)
    if as_json:
        tell_json({"files": [out / file for file in contents]})
        return
    for file in contents:
        say(f"{out / file}")
