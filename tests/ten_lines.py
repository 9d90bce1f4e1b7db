"""Run the README's ten lines with whatever polyhedge this Python has; `make release-check` does so in a new place."""

import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def ten_lines() -> str:
    """The first Python block of the README."""
    found = re.search(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, "README.md shows no Python"
    return found[1]


if __name__ == "__main__":
    sys.path.pop(0)
    exec(compile(ten_lines(), str(README), "exec"), {"__name__": "ten_lines"})
