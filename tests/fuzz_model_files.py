"""Mutates model files at random: nothing but `ModelFileError` may come of it, within 2 seconds and 512 MB.

Usage: python fuzz_model_files.py DIRECTORY N SEED. Whole models are written to the directory first, if it is empty.
"""

from __future__ import annotations

import copy
import io
import json
import resource
import sys
import time
import traceback
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import polyhedge as ph
from polyhedge.io.archive import digest_of, pack, unpack

SECONDS, MEGABYTES = 2.0, 512
ODD = (None, True, -1, 0, 1, 10**9, 2**70, 0.5, float("nan"), float("inf"), "", "x" * 300, [], {}, [[]] * 9)
HEADERS = ("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "{'descr': '<f8', 'shape': (10**9,)}", "{")


def write_seeds(folder: Path) -> None:
    """Whole models of all kinds, small ones."""
    X, Y = ph.data.make_synthetic(160, rng=np.random.default_rng(0))
    linear, shop = ph.problems.simplex_linear([0.0, 0.1]), ph.problems.newsvendor(1.0, 3.0, 2)
    box = ph.learners.OneSidedBox()
    cases: dict[str, dict[str, Any]] = {
        "set": {"learner": box, "guarantee": "outcome"},
        "forest": {"learner": box, "guarantee": "outcome", "predictor": "forest"},
        "boosting": {"learner": box, "predictor": "boosting"},
        "categories": {"learner": box, "calibration": ph.calibration.ByCategory(0), "predictor": "precomputed"},
        "online": {"learner": box, "calibration": ph.calibration.Online(0.05)},
        "shop": {"problem": shop},
        "policy": {},
    }
    for name, settings in cases.items():
        features = np.round(Y) if name == "categories" else X
        if name == "categories":
            settings["calibration"] = ph.calibration.Marginal()
        decider = ph.RobustDecider(**{"problem": linear, "random_state": 0, **settings}).fit(features, np.abs(Y))
        decider.save(folder / f"{name}.polyhedge", {"columns": ["a", "b"]})
        np.save(folder / f"{name}.npy", features[:2])


def saved(array: np.ndarray[Any, Any]) -> bytes:
    """The bytes of a .npy member."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), version=(1, 0))
    return stream.getvalue()


def npy(header: str, content: bytes = b"") -> bytes:
    """A .npy member with any header."""
    padded = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode() + content


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive with these members as they are, without a digest of its own."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def places(tree: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """All places of a JSON tree, as containers with a key."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        found.append((tree, key))
        places(tree[key], found)
    return found


def mutate_tree(members: dict[str, bytes], rng: np.random.Generator) -> None:
    """Change, copy or delete one to three places of the description."""
    tree = json.loads(members["model.json"])
    for _ in range(rng.integers(1, 4)):
        every = places(tree, [])
        owner, key = every[rng.integers(len(every))]
        other, its_key = every[rng.integers(len(every))]
        kind = rng.integers(4)
        if kind == 0:
            owner[key] = ODD[rng.integers(len(ODD))]
        elif kind == 1:
            owner[key] = copy.deepcopy(other[its_key])
        elif kind == 2 and isinstance(owner[key], (int, float)) and not isinstance(owner[key], bool):
            owner[key] = owner[key] * float(rng.choice([-1, 0.5, 2, 1e9])) if rng.integers(2) else owner[key] + 1
        elif len(owner) > 1:
            del owner[key]
    members["model.json"] = json.dumps(tree).encode()


def mutate_array(members: dict[str, bytes], rng: np.random.Generator) -> None:
    """Change numbers, shape, type or header of one array."""
    names = [name for name in members if name.endswith(".npy")]
    name = names[rng.integers(len(names))]
    array, kind = np.load(io.BytesIO(members[name])), rng.integers(5)
    if kind == 0 and array.size and array.dtype != bool:
        array.flat[rng.integers(array.size)] = rng.choice([-1, 0, 1, 10**6, 2**40])
        members[name] = saved(array)
    elif kind == 1:
        members[name] = saved(array.ravel()[: rng.integers(array.size + 1)])
    elif kind == 2:
        members[name] = saved(array.astype(rng.choice(["<f8", "<i8", "<f4", "|b1"])))
    elif kind == 3:
        members[name] = npy(HEADERS[rng.integers(len(HEADERS))], bytes(16))
    else:
        members[name] = members[names[rng.integers(len(names))]]


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """A changed file; mostly one whose digest fits its content."""
    if rng.integers(5) == 0:
        changed = bytearray(content[: rng.integers(len(content)) + 1] if rng.integers(2) else content)
        for _ in range(rng.integers(1, 9)):
            changed[rng.integers(len(changed))] = rng.integers(256)
        return bytes(changed)
    members = {name: bytes(member) for name, member in unpack(io.BytesIO(content)).items()}
    (mutate_tree if rng.integers(2) else mutate_array)(members, rng)
    if rng.integers(9) == 0:
        members.pop(list(members)[rng.integers(len(members))])
    if rng.integers(20) == 0:
        return zipped({**members, "digest.txt": digest_of({}).encode()})
    return pack(members)


def problem_with(path: Path, X: Any) -> str:
    """What is wrong with how a file is read; nothing as a rule. Decisions of a file that is read may be refused."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (ph.inspect_model, ph.load):
        try:
            made = read(path)
        except ph.ModelFileError:
            continue
        except BaseException:
            return traceback.format_exc()
        if isinstance(made, ph.RobustDecider):
            try:
                made.decide(X)
            except (ValueError, ArithmeticError, RuntimeError, IndexError, np.linalg.LinAlgError):
                pass
            except BaseException:
                return traceback.format_exc()
    if time.process_time() - began > SECONDS:
        return f"took {time.process_time() - began:.1f} s"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return f"took {grown:.0f} MB" if grown > MEGABYTES else ""


def main(folder: Path, n: int, seed: int) -> int:
    """The number of files that did something else than they should; they stay in the folder."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    if not list(folder.glob("*.polyhedge")):
        write_seeds(folder)
    seeds = sorted(folder.glob("*.polyhedge"))
    for path in seeds:
        ph.load(path).decide(np.load(path.with_suffix(".npy")))
    wrong = 0
    for k in range(n):
        rng = np.random.default_rng([seed, k])
        path = seeds[k % len(seeds)]
        target = folder / f"mutated_{seed}_{k}.bad"
        target.write_bytes(mutated(path.read_bytes(), rng))
        reason = problem_with(target, np.load(path.with_suffix(".npy")))
        if reason:
            wrong += 1
            print(f"{target}: {reason}")
        else:
            target.unlink()
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])), 100))
