"""`python -m polyhedge`: the command line where the command `polyhedge` is not on the path."""

from __future__ import annotations

from polyhedge.app.cli import main

if __name__ == "__main__":
    main()
