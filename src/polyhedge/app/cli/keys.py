"""`polyhedge keygen`: a pair of keys for signed model files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyhedge import io
from polyhedge.app.cli.app import app
from polyhedge.app.cli.common import AsJson, tell, tell_json


@app.command()
def keygen(
    key: Annotated[Path, typer.Argument(help="File for the private key; the public one is KEY.pub beside it.")],
    as_json: AsJson = False,
) -> None:
    """Make a pair of keys, so that your organisation can refuse model files that it did not make.

    Sign with the private key (polyhedge fit --sign KEY) and keep it to yourself. Give away the public one: polyhedge
    decide --verify KEY.pub refuses every file that was not signed with its private key, or was changed since.

    Example: polyhedge keygen team.key
    """
    public, fingerprint = io.make_keys(key)
    if as_json:
        tell_json({"private": key, "public": public, "fingerprint": fingerprint})
        return
    tell(
        [
            ("private key", f"{key} (for you alone: who has it can sign as you)"),
            ("public key", f"{public} (for everyone who uses your models)"),
            ("fingerprint", fingerprint),
        ]
    )
