"""Files of saved programs that are not as they were written are refused by name."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import is_whole, some

import eqsat as eq
from eqsat.saved import is_possible

pytestmark = pytest.mark.skipif(not is_possible(), reason="not on this system")
HEAD = struct.Struct("<8sIIQ32s")
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
Change = Callable[[Any], Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with two kinds of code, constants, and a library for products."""
    w, table = np.ones((4, 5), np.float32), np.arange(5, dtype=np.float32)
    path = tmp_path_factory.mktemp("saved") / "f.eqsat"
    f = eq.jit(lambda x, p: {"y": np.tanh(x @ w) + table, "s": p["b"][0] * 2})
    f.lower(X, {"b": [X]}).save(path, cpu=("native", "generic"))
    assert eq.load(path)(X, {"b": [X]})["y"].shape == (3, 5)
    return path.read_bytes()


class Parts:
    """The parts of a file, to be changed and written with checksums that are right."""

    def __init__(self, whole: bytes) -> None:
        *self.head, length, _ = HEAD.unpack_from(whole)
        self.description = json.loads(whole[HEAD.size : HEAD.size + length])
        self.sections: list[bytes] = []
        at = HEAD.size + length
        for nbytes, _ in self.description["sections"]:
            self.sections.append(whole[at : at + nbytes])
            at += nbytes
        assert at == len(whole)

    def signed(self, sizes: bool = True) -> bytes:
        """The file, with lengths and digests of what is there now."""
        if sizes:
            self.description["sections"] = [
                [len(s), hashlib.sha256(s).hexdigest()] for s in self.sections
            ]
        text = json.dumps(self.description).encode()
        return self.framed(text) + b"".join(self.sections)

    def framed(self, text: bytes) -> bytes:
        """Head and description."""
        return HEAD.pack(*self.head, len(text), hashlib.sha256(text).digest()) + text


def flips(whole: bytes) -> Iterator[bytes]:
    """One bit of a byte of each part."""
    rng = np.random.default_rng(7)
    parts = Parts(whole)
    edges = [0, HEAD.size, len(whole) - sum(map(len, parts.sections))]
    for s in parts.sections:
        edges.append(edges[-1] + len(s))
    places = [*range(0, HEAD.size, 3)]
    for start, end in pairwise(edges[1:]):
        places += {start, end - 1, *map(int, rng.integers(start, end, 8))}
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        yield bytes(changed)


def lengths(whole: bytes) -> Iterator[bytes]:
    """Files that end early or late."""
    rng = np.random.default_rng(8)
    ends = {0, 1, HEAD.size - 1, HEAD.size, HEAD.size + 1, len(whole) - 1}
    for end in sorted(ends | {*map(int, rng.integers(0, len(whole), 24))}):
        yield whole[:end]
    for more in (b"\0", b"\0" * 64, whole):
        yield whole + more
    yield whole[1:]
    yield whole[64:]


def heads(whole: bytes) -> Iterator[bytes]:
    """Other versions, and lengths beyond the file."""
    magic, version, zero, length, digest = HEAD.unpack_from(whole)
    rest = whole[HEAD.size :]
    for v in (0, 2, 1 << 31):
        yield HEAD.pack(magic, v, zero, length, digest) + rest
    yield HEAD.pack(magic, version, 1, length, digest) + rest
    for n in (0, length - 1, length + 1, len(whole), 1 << 40, (1 << 64) - 1):
        yield HEAD.pack(magic, version, zero, n, digest) + rest
    parts = Parts(whole)
    for text in (b"", b"{}", b"[]", b"nul", b"\xff", b"[" * 100_000, b"9" * 9999):
        yield parts.framed(text) + rest[length:]


def set_to(*path: Any) -> Change:
    """Put the last of ``path`` at the place that the others lead to."""

    def change(description: Any) -> None:
        *steps, last, value = path
        for step in steps:
            description = description[step]
        description[last] = value

    return change


def dropped(*path: Any) -> Change:
    def change(description: Any) -> None:
        for step in path[:-1]:
            description = description[step]
        del description[path[-1]]

    return change


def again(*path: Any) -> Change:
    """The first item of a list twice."""

    def change(description: Any) -> None:
        for step in path:
            description = description[step]
        description.append(copy.deepcopy(description[0]))

    return change


ARGUMENT = "calls", "arguments", 0, "type"
TREE = "calls", "returns"
CODE = "codes", 0
CHANGES: list[Change] = [
    *(set_to(*ARGUMENT, "shape", s) for s in ([3, 2], [3, 5], [12], [], [1 << 60])),
    *(set_to(*ARGUMENT, "shape", s) for s in ([-3, 4], [3.0, 4], "34", [3] * 65, None)),
    *(set_to(*ARGUMENT, "shape", s) for s in ([1 << 40, 1 << 40], [True, 4])),
    *(set_to(*ARGUMENT, "dtype", d) for d in ("float64", "O", "f4", "", 4, "V8")),
    *(set_to("calls", "results", 0, "type", "shape", s) for s in ([3, 4], [1 << 50])),
    set_to("calls", "results", 0, "is_number", 1),
    set_to("calls", "arguments", 0, "digest", "00"),
    set_to("calls", "name", "other"),
    set_to("calls", "name", None),
    set_to("calls", "writes", [0]),
    set_to("calls", "writes", [0, 0]),
    set_to("calls", "returned", [[0, 0]]),
    again("calls", "arguments"),
    again("calls", "results"),
    again("calls", "positional"),
    dropped("calls", "positional", 0),
    dropped("calls", "results", 1),
    dropped("calls", "returns"),
    *(set_to(*TREE, "kind", k) for k in ("list", "object", "eval", "array", "value")),
    set_to(*TREE, "keys", 1, {"kind": "str", "text": "y"}),
    set_to(*TREE, "keys", 1, {"kind": "code", "text": "exit()"}),
    set_to(*TREE, "keys", 1, {"kind": "int", "text": "9" * 9999}),
    set_to(*TREE, "keys", 1, {"kind": "type", "text": "memmap"}),
    set_to(*TREE, "keys", []),
    set_to(*TREE, "name", 7),
    again("codes"),
    dropped("codes"),
    set_to("codes", []),
    *(set_to(*CODE, "cpu", c) for c in ("native2", "", 3)),
    *(set_to(*CODE, "library", n) for n in (-1, 99, 1.0)),
    *(set_to(*CODE, "constants", c) for c in ([99], [-1], [], [0, 0, 0, 0, 0])),
    *(set_to(*CODE, "arena_bytes", n) for n in (-1, 1 << 62, 1 << 20, 64 << 20)),
    *(set_to(*CODE, "fault", n) for n in (-2, 1 << 40)),
    *(set_to(*CODE, "threads", n) for n in (0, -4, 1 << 30, 3)),
    set_to(*CODE, "if_awake", "no"),
    again("libraries", 0, "exports"),
    set_to("libraries", 0, "section", 99),
    set_to("libraries", 0, "imports", ["system"]),
    set_to("libraries", 0, "exports", ["not a name"]),
    set_to("libraries", []),
    set_to("made_by", 1),
    set_to("more", 1),
    dropped("sections", 0),
    again("sections"),
    *(set_to("sections", 0, 0, n) for n in (-64, 0, 1 << 40, 1 << 62, 1.5)),
    set_to("sections", 0, 1, "0" * 64),
    set_to("sections", 0, 1, 0),
]


def descriptions(whole: bytes) -> Iterator[bytes]:
    """Descriptions that say something else, with a right checksum."""
    for change in CHANGES:
        parts = Parts(whole)
        change(parts.description)
        yield parts.signed(sizes=False)


def sections(whole: bytes) -> Iterator[bytes]:
    """Sections that are shorter, in another order, or of another program, with right
    checksums."""
    parts = Parts(whole)
    count = len(parts.sections)
    own = parts.description["codes"][0]
    code = parts.description["libraries"][own["library"]]["section"]
    for end in (0, 63, 64, 1000, -4096, -64, -1):
        parts = Parts(whole)
        parts.sections[code] = parts.sections[code][:end]
        yield parts.signed()
    for i in own["constants"]:
        parts = Parts(whole)
        data = bytearray(parts.sections[i])
        data[3] ^= 1
        parts.sections[i] = bytes(data)
        yield parts.signed()
        parts.sections[i] = bytes(data[:-4])
        yield parts.signed()
    parts = Parts(whole)
    parts.sections = [parts.sections[(i + 1) % count] for i in range(count)]
    yield parts.signed()
    parts = Parts(whole)
    parts.sections[code] = b"\0" * len(parts.sections[code])
    yield parts.signed()


def test_two_hundred_changed_files_are_refused(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "changed.eqsat"
    tried = 0
    tracemalloc.start()
    for kind in (flips, lengths, heads, descriptions, sections):
        for number, data in some([*enumerate(kind(whole))], 6, kind.__name__):
            assert data != whole
            path.write_bytes(data)
            with pytest.raises(eq.SavedProgramError) as found:
                eq.load(path)
                pytest.fail(f"{kind.__name__} {number} was loaded")
            assert str(found.value).startswith(f"{path} is no saved program: ")
            tried += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tried >= (200 if is_whole() else 20)
    assert peak < 1 << 22  # what is said of lengths is checked before it is believed
    path.write_bytes(Parts(whole).signed())
    assert eq.load(path)(X, {"b": [X]})["s"].shape == X.shape


def test_other_things_than_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        eq.load(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        eq.load(tmp_path)
    with pytest.raises(eq.SavedProgramError, match="it has 0 bytes"):
        eq.load("/dev/null")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    from eqsat.saved import write

    path = tmp_path / "f"
    path.write_bytes(b"before")
    with pytest.raises(TypeError):
        write(path, b"{}", [memoryview(b""), 3])  # type: ignore[list-item]
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    assert path.read_bytes() == b"before"


@pytest.mark.skipif(not is_possible(), reason="no libraries in memory here")
def test_files_that_others_closed_leave_the_next_program_as_it_is(
    tmp_path: Path,
) -> None:
    """In a process of its own: what is closed are all its files."""
    x = np.ones(3, np.float32)
    paths = [tmp_path / "a.eqsat", tmp_path / "b.eqsat"]
    for path, f in zip(paths, (lambda x: x + 1, lambda x: x * 3), strict=True):
        eq.jit(f).lower(x).save(path)
    code = (
        "import os, sys, numpy as np, eqsat as eq\n"
        "first = eq.load(sys.argv[1]); os.closerange(3, 64)\n"
        "x = np.ones(3, np.float32)\n"
        "print(first(x)[0], eq.load(sys.argv[2])(x)[0])"
    )
    command = [sys.executable, "-c", code, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2.0", "3.0"]
