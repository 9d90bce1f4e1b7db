"""Load and use mutated model files in a process of its own, and tell what happened as one line of JSON.

Usage: python fuzz_model_files.py DIRECTORY N SEED [FIRST [USES]]. The directory holds whole models, each with rows to
decide for beside it (`write_seeds` makes them, here those without selections where there are none). Mutation i of a
seed is always the same, so that one can be looked at alone: FIRST = i and N = i + 1. What loads is used in all ways,
or in USES of them in turn. The process watches itself for anything that a file could make it run, and limits its
memory and time; the number of the mutation at work stands in `at_work.txt`, for whoever finds it dead.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import struct
import sys
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd

import polyhedge as ph
from polyhedge.app.report import model_report
from polyhedge.calibration import Rows
from polyhedge.io.archive import MAX_BYTES, digest_of, pack, unpack

FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.", "pickle.", "shutil.")
FORBIDDEN += ("os.remove", "os.rename", "os.mkdir", "os.chmod", "ctypes.", "code.__new__", "urllib.", "import")
ODD = (None, True, -1, 0, 2**31, 2**63, 10**30, "", "x" * 5000, "../../x", [], {}, [[[]]], {"$float": "nan"})
ODD += ({"$float": "inf"}, {"$float": "0x1p+1000"}, {"$array": "arrays/0.npy"}, {"$array": "../x"}, 1e308, "eval")
NUMBERS = (0, -1, 1, 2, 3, 7, 255, 256, 65_536, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, -(2**31), -(2**62))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, -1e-9, 1e9, 1e30, -1e30, 1e300, 1.7e308, np.inf, -np.inf, np.nan)
MEMORY = 512 * 2**20
SECONDS = 2.0
"""Of the processor, not of the clock: other programs on the machine do not count."""
PATIENCE = 120


def main(directory: str, n: int, seed: int, first: int = 0, uses: int = 6) -> dict[str, object]:
    folder = Path(directory)
    if not any(folder.glob("*.polyhedge")):
        import fuzz_seeds

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fuzz_seeds.write_seeds(folder, selections=False)
    models = [(path.read_bytes(), rows_of(path)) for path in sorted(folder.glob("*.polyhedge"))]
    target, at_work = folder / f"mutated_{seed}.bin", folder / f"at_work_{seed}.txt"
    for i, (content, rows) in enumerate(models):  # warm: what is imported now is not imported by a mutated file
        target.write_bytes(content)
        assert timed_attempt(target, rows, in_turn(i, uses))[0] in ("used", "used, but for region"), "a seed is none"
    events = watched()
    limit_memory()
    outcomes: Counter[str] = Counter()
    findings: list[str] = []
    slowest, largest = (0.0, -1), (0, -1)
    for i in range(first, n):
        kind, content, rows = mutated(models, i, np.random.default_rng([seed, i]))
        target.write_bytes(content)
        at_work.write_text(f"{i} {kind}")
        signal.alarm(PATIENCE)  # kills a process that hangs
        before = memory("VmRSS", reset=True)
        events["now"], spent = True, 0.0
        try:
            told, spent = timed_attempt(target, rows, in_turn(i, uses))
            outcomes[f"{kind}: {told}"] += 1
        except BaseException as error:  # anything here is a finding
            findings.append(f"number {i}, {kind}: {type(error).__name__}: {str(error)[:300]}")
        events["now"] = False
        signal.alarm(0)
        taken = memory("VmHWM") - before
        slowest, largest = max(slowest, (spent, i)), max(largest, (taken, i))
        if spent > SECONDS or taken > MEMORY:
            findings.append(f"number {i}, {kind}: {spent:.1f} s, {taken >> 20} MB")
    target.unlink()
    return {
        "outcomes": outcomes,
        "findings": findings,
        "events": sorted(events["seen"]),
        "slowest": slowest,
        "largest": largest,
    }


def watched() -> dict[str, object]:
    """A note of what this process does that a file has no business to make it do."""
    state: dict[str, object] = {"now": False, "seen": set()}
    known = set(sys.modules)

    def hook(name: str, arguments: tuple[object, ...]) -> None:
        if not state["now"] or not name.startswith(FORBIDDEN):
            return
        if name == "import":
            # Parts of scikit-learn and SciPy are imported late, and once; a file must not choose which.
            package = str(arguments[0]).split(".")[0]
            ours = ("sklearn", "scipy", "numpy", "cvxpy", "pandas", "polyhedge", "encodings")
            if str(arguments[0]) in known or package in ours:
                return
        if name == "ctypes.dlsym":
            return  # a name in a library that is there: threadpoolctl asks for some when a model is trained
        if name == "os.remove" and Path(os.fsdecode(arguments[0])).name.startswith("scipy-"):  # type: ignore[arg-type]
            return  # SciPy 1.13 lets Qhull complain into a file of its own
        state["seen"].add(f"{name} {arguments[0] if name == 'import' else ''}".strip())

    sys.addaudithook(hook)
    return state


def limit_memory() -> None:
    """Let this process take a gigabyte more than it has: what it reserves is not all taken."""
    size = memory("VmSize") + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def memory(name: str, *, reset: bool = False) -> int:
    """Bytes of this process by the kernel's account; `reset` makes the highest of them count anew."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(status[name].split()[0]) * 1024


def mutated(models: list[tuple[bytes, object]], i: int, rng: np.random.Generator) -> tuple[str, bytes, object]:
    """The i-th mutation: first each dangerous archive once, then the other kinds in turn."""
    content, rows = models[rng.integers(len(models))]
    if i < len(HOSTILE):
        content, rows = models[i % len(models)]
        return HOSTILE[i].__name__, HOSTILE[i](unpack(io.BytesIO(content))), rows
    kind = list(MUTATIONS)[i % len(MUTATIONS)]
    if kind in ON_BYTES:
        return kind, MUTATIONS[kind](content, rng), rows
    members = unpack(io.BytesIO(content))
    digest = digest_of(members)
    others = unpack(io.BytesIO(models[rng.integers(len(models))][0]))
    with suppress(ValueError):  # where one mutation has left nothing for the next to change
        for _ in range(int(rng.integers(1, 4))):
            MUTATIONS[kind](members, rng, others)
    fixed = pack(members) if kind != "edit without digest" else zipped({**members, "digest.txt": digest.encode()})
    return kind, fixed, rows


def rows_of(path: Path) -> object:
    """Features, outcomes, and what calls take besides: the values of a problem's parameters."""
    said = json.loads(path.with_suffix(".json").read_text())
    given = {"parameters": said["parameters"]} if said["parameters"] else {}
    if not said["columns"]:
        return np.array(said["rows"]), np.array(said["outcomes"]), given
    rows = pd.DataFrame(said["rows"], columns=said["columns"])
    rows[said["dates"]] = rows[said["dates"]].apply(pd.to_datetime)
    return rows, np.array(said["outcomes"]), given


def in_turn(i: int, n: int) -> list[Callable[..., None]]:
    """The n ways to use a model whose turn it is."""
    return [USES[(i + k * len(USES) // n) % len(USES)] for k in range(n)]


def timed_attempt(path: Path, rows: object, uses: list[Callable[..., None]]) -> tuple[str, float]:
    """Inspect, load and use; what came of it, and the seconds of the slowest call.

    A bad file is a `ModelFileError`; what loads may say that rows or numbers do not fit.
    """
    X, Y, given = rows
    seconds: list[float] = []

    def call(function: Callable[..., object], *arguments: object, **more: object) -> object:
        began = time.process_time()
        try:
            return function(*arguments, **more)
        finally:
            # A refresh trains what the file says, within limits of size: SECURITY.md. It ends before `PATIENCE` does.
            seconds.append(0.0 if function is refresh else time.process_time() - began)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with suppress(ph.ModelFileError):
            str(call(ph.inspect_model, path))
        try:
            decider = call(ph.load, path)
        except ph.ModelFileError:
            return "refused", max(seconds)
        said = []
        for use in uses:
            try:
                call(use, decider, X, Y, **given)
            except ValueError:
                said.append(use.__name__)
    return f"used, but for {', '.join(said)}" if said else "used", max(seconds)


def decide(decider: ph.RobustDecider, X: object, Y: np.ndarray, **given: object) -> None:
    decider.decide(X, **given)


def region(decider: ph.RobustDecider, X: object, Y: np.ndarray, **given: object) -> None:
    decider.region(X.iloc[0] if hasattr(X, "iloc") else X[0]).volume()


def evaluate(decider: ph.RobustDecider, X: object, Y: np.ndarray, **given: object) -> None:
    decider.evaluate(X, Y, **given)


def recalibrate(decider: ph.RobustDecider, X: object, Y: np.ndarray, **given: object) -> None:
    many = np.arange(40) % len(Y)
    decider.recalibrate(X.iloc[many] if hasattr(X, "iloc") else X[many], Y[many], **given)


def refresh(decider: ph.RobustDecider, X: object, Y: np.ndarray, **given: object) -> None:
    many = np.arange(120) % len(Y)
    decider.refresh(X.iloc[many] if hasattr(X, "iloc") else X[many], Y[many], **given)


def update(decider: ph.RobustDecider, X: object, Y: np.ndarray, **given: object) -> None:
    str(decider.update(X, Y, **given))
    decider.model_.radii.at(Rows(decider.model_.features(X), len(Y)))


def tell(decider: ph.RobustDecider, X: object, Y: np.ndarray, **given: object) -> None:
    """All that is said of a model: in words, of a decision, and on its page."""
    first = X.iloc[:1] if hasattr(X, "iloc") else X[:1]
    said = [str(decider), decider.promise_, *map(str, decider.decide(first, **given))]
    with suppress(AttributeError):  # there was no selection
        said += [str(decider.policy_), decider.policy_.why(), str(decider.policy_.frontier())]
    model_report(decider)


USES = (decide, region, evaluate, tell, update, recalibrate, refresh)


# --- bytes ------------------------------------------------------------------------------------------------


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for position in rng.integers(len(changed), size=rng.integers(1, 8)):
        changed[position] ^= int(rng.integers(1, 256))
    return bytes(changed)


def truncate(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: int(rng.integers(len(content)))]


def insert(content: bytes, rng: np.random.Generator) -> bytes:
    position = int(rng.integers(len(content) + 1))
    return content[:position] + rng.bytes(int(rng.integers(1, 200))) + content[position:]


# --- descriptions -----------------------------------------------------------------------------------------


def edit(members: dict[str, bytes], rng: np.random.Generator, others: dict[str, bytes]) -> None:
    """Replace, drop or copy a place of a description, or lose or spoil a member."""
    names = [name for name in members if name.endswith(".json")] if rng.random() < 0.8 else list(members)
    name = pick(names, rng)
    action = rng.random()
    if action < 0.03:
        del members[name]
    elif action < 0.06:
        members[name] = rng.bytes(100)
    elif name.endswith(".json"):
        in_json(members, name, lambda document: spoil(document, rng))
    else:
        members[name] = flip(members[name], rng)


def in_json(members: dict[str, bytes], name: str, change: Callable[[object], None]) -> None:
    try:
        document = json.loads(members[name])
    except ValueError:  # a mutation before has spoiled it
        return
    change(document)
    members[name] = json.dumps(document).encode()


def places_of(document: object) -> list[tuple[object, object]]:
    places: list[tuple[object, object]] = []
    todo = [document]
    while todo:
        item = todo.pop()
        pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        for key, value in list(pairs):
            places.append((item, key))
            todo.append(value)
    return places


def spoil(document: object, rng: np.random.Generator) -> None:
    """Replace, drop or copy a random place of a JSON document."""
    places = places_of(document)
    if not places:
        return
    (owner, key), (other, other_key) = (pick(places, rng) for _ in range(2))
    action = rng.random()
    if action < 0.5:
        owner[key] = deepcopy(pick(ODD, rng))
    elif action < 0.75:
        owner[key] = deepcopy(other[other_key])
    elif action < 0.85 and isinstance(owner[key], list):
        owner[key] = owner[key] * int(pick((2, 3, 1000), rng))
    else:
        del owner[key]


def numbers(members: dict[str, bytes], rng: np.random.Generator, others: dict[str, bytes]) -> None:
    """Other numbers and texts where there are numbers and texts: types stay, values do not."""

    def change(document: object) -> None:
        places = [(o, k) for o, k in places_of(document) if isinstance(o[k], (int, float, str))]
        for _ in range(int(rng.integers(1, 4))):
            owner, key = pick(places, rng)
            value = owner[key]
            if isinstance(value, bool):
                owner[key] = not value
            elif isinstance(value, (int, float)):
                owner[key] = pick((value + 1, value - 1, 2 * value, -value, pick(NUMBERS, rng)), rng)
            elif key == "$float":
                owner[key] = float(pick(FLOATS, rng)).hex()
            else:
                texts = [o[k] for o, k in places if isinstance(o[k], str)]
                owner[key] = pick(texts, rng)

    names = [name for name in members if name.endswith(".json") and name != "details.json"]
    if names:
        in_json(members, pick(names, rng), change)


def classes(members: dict[str, bytes], rng: np.random.Generator, others: dict[str, bytes]) -> None:
    """Another class, way of making or identity for a part of the predictor; parts in each other's roles."""

    def change(document: object) -> None:
        places = places_of(document)
        objects = [(o, k) for o, k in places if isinstance(o[k], dict) and ("$object" in o[k] or "__class__" in o[k])]
        if not objects:
            return
        (owner, key), (other, other_key) = pick(objects, rng), pick(objects, rng)
        action = rng.random()
        if action < 0.4:
            owner[key] = deepcopy(other[other_key])
        elif "$object" in owner[key]:
            owner[key]["$object"] = pick([o[k]["$object"] for o, k in objects if "$object" in o[k]], rng)
        else:
            field = pick(("__class__", "__module__", "__loader__", "__id__", "file"), rng)
            values = [o[k][field] for o, k in objects if field in o[k]]
            owner[key][field] = pick([*values, "CachedNode", "os", "numpy.f2py.__main__"], rng)

    names = [name for name in members if name in ("predictor.json", "predictor/schema.json")]
    if names:
        in_json(members, names[0], change)


def references(members: dict[str, bytes], rng: np.random.Generator, others: dict[str, bytes]) -> None:
    """Arrays at other places: exchanged, named twice, or taken from another model."""
    names = [name for name in members if name.endswith(".npy")]
    if len(names) < 2:
        return
    one, other = pick(names, rng), pick(names, rng)
    action = rng.random()
    if action < 0.4:
        members[one], members[other] = members[other], members[one]
    elif action < 0.7:
        foreign = [name for name in others if name.endswith(".npy")]
        members[one] = others[pick(foreign, rng)] if foreign else members[other]
    else:
        holder = pick([name for name in members if name.endswith(".json")], rng)
        members[holder] = members[holder].replace(f'"{one}"'.encode(), f'"{other}"'.encode())


def splice(members: dict[str, bytes], rng: np.random.Generator, others: dict[str, bytes]) -> None:
    """A part of the description, or the whole predictor, of another model."""
    if rng.random() < 0.3:
        for name in [name for name in members if name.startswith("predictor")]:
            del members[name]
        members.update({name: member for name, member in others.items() if name.startswith("predictor")})
        return
    foreign = json.loads(others["model.json"])

    def change(document: object) -> None:
        if not isinstance(document, dict):
            return
        key = pick(list(foreign), rng)
        document[key] = foreign[key]
        members.update({name: member for name, member in others.items() if name.startswith("arrays/")})

    in_json(members, "model.json", change) if "model.json" in members else None


# --- arrays -----------------------------------------------------------------------------------------------


def arrays(members: dict[str, bytes], rng: np.random.Generator, others: dict[str, bytes]) -> None:
    """Other values, shapes or types of an array, with a header that says so."""
    names = [name for name in members if name.endswith(".npy")]
    if not names:
        return
    name = pick(names, rng)
    try:
        array = np.load(io.BytesIO(members[name]), allow_pickle=False)
    except (ValueError, OSError, EOFError):
        return
    action = rng.random()
    array = new_values(array, rng) if action < 0.6 else new_shape(array, rng) if action < 0.85 else new_type(array, rng)
    members[name] = saved(array)


def new_values(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    array = array.copy()
    part = array[pick(array.dtype.names, rng)] if array.dtype.names else array
    if not part.size or part.dtype.kind not in "fiub":
        return array
    flat = part.reshape(-1) if part.flags.c_contiguous else part
    where = rng.integers(len(flat), size=max(1, int(len(flat) * rng.random() ** 4)))
    with np.errstate(all="ignore"):
        if part.dtype.kind == "f":
            values = np.array(FLOATS)[rng.integers(len(FLOATS), size=len(where))]
            flat[where] = values if rng.random() < 0.5 else -2 * flat[where]
        else:
            values = np.array(NUMBERS, dtype=np.int64)[rng.integers(len(NUMBERS), size=len(where))]
            flat[where] = values.astype(part.dtype) if rng.random() < 0.7 else flat[where[::-1]]
    return array


def new_shape(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    shapes = (
        lambda: array[:-1] if array.ndim else array[None],
        lambda: array[:0] if array.ndim else array[None],
        lambda: array.reshape(-1),
        lambda: array.T.copy(),
        lambda: np.asfortranarray(array),
        lambda: array[None],
        lambda: np.concatenate([array, array]) if array.ndim else array,
        lambda: array.reshape(*array.shape, 1),
    )
    return pick(shapes, rng)()


def new_type(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if array.dtype.names:
        return array[pick(array.dtype.names, rng)].copy()
    kinds = ("<f8", "<f4", "<i8", "<i4", "|u1", "|b1", ">f8", "<c16", "<U3", "<M8[s]", "<f2")
    with np.errstate(all="ignore"):
        try:
            return array.astype(np.dtype(str(pick(kinds, rng))))
        except (ValueError, TypeError):
            return array


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def headers(members: dict[str, bytes], rng: np.random.Generator, others: dict[str, bytes]) -> None:
    """Arrays that announce what they are not."""
    names = [name for name in members if name.endswith(".npy")]
    shapes = ["(1000000000000,)", "(-1,)", "(2, 3, 4)", "()", "(0,)", "(99999999999999999999,)", "'x'", "((1,),)"]
    types = ["'<f8'", "'|O'", "'<f4'", "'|V9999999999'", "[('a', '<f8')]", "'<U1000000000'", "'x'", "'>f8'"]
    header = f"{{'descr': {pick(types, rng)}, 'fortran_order': False, 'shape': {pick(shapes, rng)}, }}"
    members[pick(names, rng)] = npy(header, rng.bytes(int(rng.integers(0, 64))))


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def pick(items: object, rng: np.random.Generator) -> object:
    return items[int(rng.integers(len(items)))]


# --- dangerous archives -----------------------------------------------------------------------------------


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    # The least effort: a quarter of a gigabyte of zeros becomes small all the same.
    with zipfile.ZipFile(stream, "w", compression, compresslevel=1) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return stream.getvalue()


def bomb(members: dict[str, bytes]) -> bytes:
    return pack({**members, "arrays/bomb.npy": bytes(MAX_BYTES)})


def lying_bomb(members: dict[str, bytes]) -> bytes:
    """A member whose header says 100 bytes and whose stream unpacks to a quarter of a gigabyte."""
    content = bytearray(zipped({**members, "arrays/bomb.npy": bytes(2**28)}))
    size = struct.pack("<I", 2**28)
    position = content.find(size)
    while position >= 0:
        content[position : position + 4] = struct.pack("<I", 100)
        position = content.find(size)
    return bytes(content)


def heavy(members: dict[str, bytes]) -> bytes:
    """A predictor, or else a set, of the largest size that is let in when it is packed into few bytes."""
    names = [name for name in members if name.endswith(".npy")]
    name = max(names, key=lambda name: (name.startswith("predictor/"), len(members[name])))
    n = (MAX_BYTES // 4 - sum(map(len, members.values())) - 1024) // 8
    return pack({**members, name: npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({n},), }}", bytes(8 * n))})


def json_bomb(members: dict[str, bytes]) -> bytes:
    return pack({**members, "details.json": b'{"a": [' + b"[]," * (5 * 2**19) + b"1]}"})


def json_of_dictionaries(members: dict[str, bytes]) -> bytes:
    return pack({**members, "details.json": b'{"a": [' + b'{"b":{}},' * 199_000 + b"1]}"})


def deep_json(members: dict[str, bytes]) -> bytes:
    return pack({**members, "model.json": b"[" * 10**6})


def with_cost(members: dict[str, bytes], tree: object) -> bytes:
    document = json.loads(members["model.json"])
    document["problem"]["stored"]["cost"] = [tree]
    return pack({**members, "model.json": json.dumps(document).encode()})


def deep_formula(members: dict[str, bytes]) -> bytes:
    tree = {"leaf": "u"}
    for _ in range(300):
        tree = {"atom": "NegExpression", "args": [tree], "data": []}
    return with_cost(members, tree)


def wide_formula(members: dict[str, bytes]) -> bytes:
    tree = {"atom": "Promote", "args": [{"constant": 1}], "data": [{"tuple": [10**9, 10]}]}
    return with_cost(members, {"atom": "Sum", "args": [tree], "data": [None, False]})


def large_formula(members: dict[str, bytes]) -> bytes:
    """Many parts, each of the largest size."""
    large = {"atom": "Promote", "args": [{"constant": 1}], "data": [{"tuple": [1000, 1000]}]}
    return with_cost(members, {"atom": "Sum", "args": [{"atom": "AddExpression", "args": [large] * 500, "data": []}],
                               "data": [None, False]})  # fmt: skip


def sparse_formula(members: dict[str, bytes]) -> bytes:
    parts = {f"arrays/s{k}.npy": saved(np.zeros(0, dtype=dtype)) for k, dtype in enumerate(("<i8", "<i8", "<f8"))}
    constant = {"sparse": [{"$array": name} for name in parts], "shape": [1, 10**8], "format": "csc"}
    return with_cost({**members, **parts}, {"atom": "Sum", "args": [{"constant": constant}], "data": [None, False]})


def traversal(members: dict[str, bytes]) -> bytes:
    return pack({**members, "../../outside.npy": b"x"})


def absolute(members: dict[str, bytes]) -> bytes:
    return pack({**members, "/tmp/outside.json": b"{}"})


def duplicate(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO(pack(members))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(stream, "a") as archive:
            archive.writestr("model.json", members["model.json"])
    return stream.getvalue()


def crowd(members: dict[str, bytes]) -> bytes:
    """A directory that announces a million members."""
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0) + b"a.json"
    directory = entry * 100_000
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFE, 0xFFFE, len(directory), 0, 0)
    return directory + end


def evil(loader: str) -> Callable[[dict[str, bytes]], bytes]:
    """A predictor that asks for a system call when it is made, in one of the ways skops has to make objects."""

    def build(members: dict[str, bytes]) -> bytes:
        text = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": '"exit 3"'}
        args = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": [text]}
        node = {"__class__": "system", "__module__": "os", "__loader__": loader, "content": args, "key_types": args}
        node |= {"__reduce__": {"args": args}, "attrs": args, "protocol": 2, "_skops_version": "0.16.0"}
        document = json.loads(members["model.json"])
        document["predictor"]["kind"] = "trained"
        schema = {"predictor/schema.json": json.dumps(node).encode()}
        own = {name: member for name, member in members.items() if name != "predictor.json"}
        return pack({**own, **schema, "model.json": json.dumps(document).encode()})

    build.__name__ = f"evil {loader}"
    return build


HOSTILE = (bomb, heavy, lying_bomb, json_bomb, json_of_dictionaries, deep_json, deep_formula, wide_formula)
HOSTILE += (large_formula, sparse_formula, traversal, absolute, duplicate, crowd)
HOSTILE += tuple(
    evil(f"{kind}Node") for kind in ("ConstructorFromReduce", "Loss", "Object", "Function", "Dict", "Type")
)
# Content comes three times as often as bytes, which are nearly all refused by the digest.
ON_BYTES = ("flip", "truncate", "insert")
MUTATIONS = {
    "values of arrays": arrays,
    "numbers and texts": numbers,
    "flip": flip,
    "classes and roles": classes,
    "places of descriptions": edit,
    "values of arrays again": arrays,
    "truncate": truncate,
    "references": references,
    "numbers and texts again": numbers,
    "edit without digest": edit,
    "splice": splice,
    "insert": insert,
    "headers": headers,
}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:]))))
    sys.stdout.flush()
    os._exit(0)  # threads of solvers may not find the memory to end themselves
