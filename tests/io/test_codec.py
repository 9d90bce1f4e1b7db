"""The codec: what it stores comes back with every bit, and what it cannot store or trust is refused."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import polyhedge as ph
from polyhedge._support.stored import _BY_NAME, stored
from polyhedge._support.validation import Array, Indices, Mask
from polyhedge.io import ModelFileError
from polyhedge.io.codec import Decoder, encode


class Colour(Enum):
    RED = "red, like this"
    BLUE = "blue"


class Shape(Protocol):
    def area(self) -> float: ...


@stored("test square", transient=("cache",))
@dataclass(frozen=True, eq=False)
class Square:
    side: float
    cache: Any = None

    def __post_init__(self) -> None:
        if not self.side > 0:
            raise ValueError(f"side must be positive, got {self.side}.")

    def area(self) -> float:
        return self.side**2


@stored("test everything", unbounded=("free",))
@dataclass(frozen=True, eq=False)
class Everything:
    count: int = 1
    share: float = 0.1
    text: str = "ä€"
    flag: bool = True
    maybe: float | None = None
    colour: Colour = Colour.BLUE
    pair: tuple[int, str] = (1, "a")
    many: tuple[float, ...] = (0.1, -math.inf)
    nested: tuple[tuple[str, tuple[str, ...]], ...] = (("a", ("b", "c")),)
    table: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: {"x": (1, 2)})
    names: frozenset[str] = frozenset({"a", "b"})
    numbers: Array = field(default_factory=lambda: np.array([[0.1, -0.0]]))
    places: Indices = field(default_factory=lambda: np.arange(3))
    mask: Mask = field(default_factory=lambda: np.array([True, False]))
    free: Array = field(default_factory=lambda: np.array([np.nan, np.inf]))
    shape: Shape | None = field(default_factory=lambda: Square(2.0))
    anything: Any = None


@dataclass(frozen=True)
class Unregistered:
    x: float = 1.0


class Cube(Square):
    pass


def round_trip(value: Any, **external: object) -> Any:
    text, members = encode({"value": value}, external)
    return Decoder(text, dict(members), external)["value"]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, Square):
        return one.side == other.side
    return type(one) is type(other) and one == other


def test_every_kind_of_field_comes_back_as_it_was() -> None:
    value = Everything(anything=[1, {"a": None}])
    twin = round_trip(value)
    for each in fields(Everything):
        assert same(getattr(value, each.name), getattr(twin, each.name)), each.name


@given(arrays(np.float64, array_shapes(min_dims=0), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_arrays_keep_every_bit(values: Array) -> None:
    assert same(values, round_trip(values))
    assert same(np.asfortranarray(values), round_trip(np.asfortranarray(values)))


@given(st.floats(allow_nan=False))
def test_numbers_keep_every_bit(number: float) -> None:
    assert same(np.array(number), np.array(round_trip(number)))


def test_an_object_that_occurs_twice_is_stored_once_and_stays_one() -> None:
    square = Square(1.0)
    one, (two,) = round_trip([square, [square]])
    assert one is two


def test_one_object_or_array_cannot_stand_for_many() -> None:
    with pytest.raises(ModelFileError, match="one object twice"):
        edited([Square(1.0)], lambda tree: tree.update(value=[{"$object": 0}] * 2))
    with pytest.raises(ModelFileError, match="used twice"):
        edited([np.ones(1)], lambda tree: tree.update(value=[{"$array": "arrays/0.npy"}] * 2))


def test_external_objects_are_brought_by_the_reader() -> None:
    problem = object()
    assert round_trip({"problem": problem}, problem=problem) == {"problem": problem}


def test_transient_fields_are_not_stored() -> None:
    assert round_trip(Square(1.0, cache="a secret")).cache is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Unregistered(), "a Unregistered in value. Make it a frozen dataclass and register it"),
        (Cube(1.0), "a Cube in value"),
        (Everything(anything=lambda x: x), "the function .*<lambda> in Everything.anything"),
        (Everything(numbers=np.array([np.nan])), "finite, got NaN or infinity in Everything.numbers"),
        (np.array(["a"]), "must hold numbers, got <U1"),
        ({1: 2}, "texts as keys, got 1"),
        ({"$object": 2}, "texts as keys"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_what_to_do(value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        round_trip(value)


def edited(value: Any, change: Callable[[dict[str, Any]], None]) -> Any:
    text, members = encode({"value": value})
    tree = json.loads(text)
    change(tree)
    return Decoder(json.dumps(tree).encode(), dict(members))["value"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", 1.0),
        ("count", True),
        ("share", "0.1"),
        ("flag", 1),
        ("colour", "GREEN"),
        ("pair", [1]),
        ("pair", ["a", 1]),
        ("many", [None]),
        ("table", [1]),
        ("numbers", [1.0]),
        ("numbers", {"$array": "arrays/1.npy"}),
        ("mask", {"$array": "arrays/0.npy"}),
        ("numbers", {"$array": "../secret.npy"}),
        ("numbers", {"$array": ["arrays/0.npy"]}),
        ("shape", 3),
        ("shape", {"$object": 1}),
        ("shape", {"$object": -1}),
        ("shape", {"$object": 10**9}),
        ("unknown", 1),
    ],
)
def test_values_of_another_type_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ModelFileError, match=r"must be|is missing|does not come before it|has no field"):
        edited(Everything(), lambda tree: tree["objects"][1][1].update({name: value}))


def test_objects_of_unknown_classes_are_refused() -> None:
    with pytest.raises(ModelFileError, match="no imported module registers"):
        edited(Square(1.0), lambda tree: tree["objects"][0].__setitem__(0, "builtins.eval"))


def test_checks_of_the_class_are_checks_of_the_file() -> None:
    with pytest.raises(ValueError, match="side must be positive"):
        edited(Square(1.0), lambda tree: tree["objects"][0][1].update(side=-1.0))


def test_a_name_belongs_to_one_class() -> None:
    with pytest.raises(ValueError, match="already call"):
        stored("test square")(Unregistered)
    with pytest.raises(TypeError, match="frozen"):
        stored("test thawed")(dataclass(type("Thawed", (), {})))


def test_a_process_that_has_imported_little_finds_every_class_of_the_library_by_its_name() -> None:
    """Most modules are imported when they are first used, and a model file may be the first to use one."""
    sources = (path.read_text(encoding="utf-8") for path in Path(ph.__file__).parent.rglob("*.py"))
    names = sorted({name for source in sources for name in re.findall(r'^@stored\(\s*"([^"]+)"', source, re.MULTILINE)})
    code = f"from polyhedge._support.stored import stored_class_named as s; print([n for n in {names} if s(n) is None])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert len(names) > 50
    assert done.stdout.strip() == "[]", done.stderr


def test_every_registered_class_says_what_its_fields_hold() -> None:
    assert ph.RobustDecider  # everything is imported
    for known in _BY_NAME.values():
        assert known.hints.keys() | known.transient >= {one.name for one in fields(known.cls) if one.init}
