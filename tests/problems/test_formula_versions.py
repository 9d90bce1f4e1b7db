"""Formulas travel between versions of CVXPY, which rename and move the parts they are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from polyhedge.problems import formula
from polyhedge.problems.formula import NotPortableError, from_data, to_data

FILES = sorted((Path(__file__).parents[1] / "files").glob("formulas_cvxpy_*.json"))
Z = np.array([0.3, 1.2, 0.5])
# Parts that came later than the oldest version we support: old versions say so.
LATER = {"broadcast"}


def arrays(plain: dict[str, Any]) -> Any:
    return np.array(plain["values"]) if set(plain) == {"values"} else plain


def written(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"), object_hook=arrays)


def value(node: Any) -> np.ndarray:
    return np.asarray(node.violation() if isinstance(node, cp.Constraint) else node.value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem.removeprefix("formulas_"))
def test_formulas_of_every_version_are_read_with_the_value_they_had(path: Path) -> None:
    z, rows = cp.Variable(3), written(path)
    z.value = Z
    assert len(rows) > 35
    for name, row in rows.items():
        if name in LATER and "broadcast_to" not in formula._classes():
            with pytest.raises(ValueError, match=r"does not have\. Install a newer CVXPY"):
                from_data(row["tree"], {"z": z})
            continue
        node = from_data(row["tree"], {"z": z})
        # A solver computes how far a point is from a cone.
        atol = 1e-5 if isinstance(node, cp.Constraint) else 1e-12
        np.testing.assert_allclose(value(node), row["value"], rtol=1e-9, atol=atol, err_msg=name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem.removeprefix("formulas_"))
def test_formulas_of_other_versions_are_written_again_as_one_of_ours(path: Path) -> None:
    z = cp.Variable(3)
    for name, row in written(path).items():
        if name not in LATER:
            tree = to_data(from_data(row["tree"], {"z": z}), {z.id: "z"})
            assert str(from_data(tree, {"z": z})) == str(from_data(row["tree"], {"z": z})), name


def test_every_known_part_is_found_or_came_later() -> None:
    later = {"broadcast_to", "nsd_wrap"}
    assert formula._ATOMS - set(formula._classes()) <= later


def test_settings_that_an_older_version_lacks_are_dropped_only_where_they_say_nothing() -> None:
    z = {"z": cp.Variable(3)}
    tree = {"atom": "log_sum_exp", "args": [{"leaf": "z"}], "data": [None, False, None, False]}
    assert from_data(tree, z).shape == ()
    with pytest.raises(ValueError, match=r"log_sum_exp has settings that CVXPY .* does not know\. Install a newer"):
        from_data({**tree, "data": [None, False, 3]}, z)


def test_parts_of_users_are_not_on_the_list_whatever_their_names() -> None:
    class abs(cp.exp):
        pass

    z = cp.Variable(3)
    formula._classes.cache_clear()
    with pytest.raises(NotPortableError, match="it holds abs, which is not on the list"):
        to_data(abs(z), {z.id: "z"})
