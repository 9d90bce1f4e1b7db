"""What a registry shows of the README: the same text, with links that lead to the repository."""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)\s]+)\)")


def absolute(text: str, repository: str, version: str) -> str:
    """Markdown whose relative links and pictures lead to the files of a version in the repository.

    >>> absolute("![A](a.svg) [B](docs/b.md#c) [D](https://d.org)", "https://e.org/f", "1.0")
    '![A](https://e.org/f/raw/v1.0/a.svg) [B](https://e.org/f/blob/v1.0/docs/b.md#c) [D](https://d.org)'
    """

    def link(found: re.Match[str]) -> str:
        view = "raw" if found[1] else "blob"
        return f"{found[1]}{found[2]}({repository}/{view}/v{version}/{found[3]})"

    return LINK.sub(link, text)


class CustomMetadataHook(MetadataHookInterface):
    """Fill in `readme` and `urls`; without an address the links stay as they are and there are no addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Change the metadata in place."""
        root = Path(self.root)
        text = (root / "README.md").read_text(encoding="utf-8")
        source = (root / "src" / "polyhedge" / "__init__.py").read_text(encoding="utf-8")
        (version,) = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
        repository = (os.environ.get("REPOSITORY") or self.config.get("repository", "")).rstrip("/")
        metadata["urls"] = {}
        if repository:
            text = absolute(text, repository, version)
            pages = {"Repository": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md"}
            metadata["urls"] = {name: repository + path for name, path in pages.items()}
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
