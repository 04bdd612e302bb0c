"""Settings that all tests share."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A slow or loaded machine is no fault of the code under test: neither a deadline nor a
# slow generator fails a test.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", **PATIENT)
settings.register_profile(
    "ci", **PATIENT, derandomize=True, database=None, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# Nor does it end a search: its tests say how long it may take.
os.environ["EQSAT_DEADLINE_S"] = "60"

# What one stage hands to the next is verified.
os.environ["EQSAT_VERIFY"] = "1"

# What kernels cost is what is shipped, not what somebody measured here.
os.environ["EQSAT_CONFIG_DIR"] = os.devnull

# Products of float32 are compared with float32's rounding; MLX rounds to 19 bits on
# NVIDIA's GPUs unless told.
os.environ["MLX_ENABLE_TF32"] = "0"

# Nothing of one run of the tests is there in the next.
_CACHE = tempfile.TemporaryDirectory(prefix="eqsat-tests-")
os.environ["EQSAT_CACHE_DIR"] = _CACHE.name

GOLDEN = Path(__file__).resolve().parent / "golden"
"""Texts that generated code and listings must equal."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the files of tests/golden anew instead of comparing with them",
    )


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay: collections need not look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the file of a name, or writes it with --update-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), "run with --update-golden"

    return compare


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of native programs as they are kept in a cache of their own."""
    from eqsat.backends.native import program_record

    monkeypatch.setenv("EQSAT_CACHE", "1")
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path))
    names: list[str] = []
    put = program_record.keep

    def keep(name: str, made: program_record.Record) -> None:
        names.append(name)
        put(name, made)

    monkeypatch.setattr(program_record, "keep", keep)
    return names
