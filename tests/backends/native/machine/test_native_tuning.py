"""The tables of numbers that were chosen by measuring."""

import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

import eqsat.backends
from eqsat.backends.loop_ir import (
    LoopTuning,
)
from eqsat.backends.native.machine import Host, Tuning, tuning

ROOT = Path(next(iter(eqsat.backends.__path__)))
TABLES = [LoopTuning, Tuning, *Tuning.__subclasses__()]
WIDE = "avx512f,avx512bw,avx512dq,avx512vl"
HOSTS = [
    ("x86_64-linux", "znver4", WIDE, tuning.AMD),
    ("x86_64-linux", "znver3", "avx2,fma", tuning.AMD),
    ("x86_64-linux", "emeraldrapids", WIDE, tuning.AVX512),
    ("x86_64-linux", "haswell", "avx2,fma", tuning.X86),
    ("arm64-apple-darwin", "apple-m1", "neon", tuning.ARM),
]


def sources() -> str:
    """The code of the native backend and of loops, but for the tables."""
    rooms = ("native", "loop_ir", "to_loops")
    files = [f for room in rooms for f in (ROOT / room).rglob("*.py")]
    return "\n".join(f.read_text("utf-8") for f in files if f.name != "tuning.py")


def test_each_number_says_what_is_known_of_it() -> None:
    for table in TABLES:
        for f in fields(table):
            assert set(f.metadata) == {"meaning", "measured", "on", "gained"}, f.name
            assert all(f.metadata.values()), f.name


def test_each_number_is_read() -> None:
    read = set(re.findall(r"\.(\w+)", sources()))
    assert {f.name for f in fields(Tuning)} - read == set()


def test_what_families_change_is_read_from_their_tables() -> None:
    shared = set(re.findall(r"\b(?:COMMON|LOOPS)\.(\w+)", sources()))
    assert len(shared) > 20
    for table in Tuning.__subclasses__():
        changed = set(table.__annotations__)
        assert changed and not changed & shared


@pytest.mark.parametrize(("triple", "cpu", "flags", "table"), HOSTS)
def test_each_processor_has_a_table(
    triple: str, cpu: str, flags: str, table: Tuning
) -> None:
    host = Host(triple, cpu, "+" + flags.replace(",", ",+"))
    assert host.tuning is table


def test_bfloat_pairs_are_multiplied_where_that_is_fast() -> None:
    flags = "+" + f"{WIDE},avx512bf16".replace(",", ",+")
    assert Host("x86_64-linux", "znver4", flags).has_bfloat_pairs
    assert not Host("x86_64-linux", "emeraldrapids", flags).has_bfloat_pairs
    assert Host("x86_64-linux", "emeraldrapids", flags, "own").has_bfloat_pairs
    assert not Host("x86_64-linux", "znver3", "+avx2,+fma").has_bfloat_pairs


def test_nobody_writes_to_a_table() -> None:
    with pytest.raises(FrozenInstanceError):
        tuning.COMMON.unroll = 2  # type: ignore[misc]
