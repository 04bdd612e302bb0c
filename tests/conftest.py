"""Settings that all tests share."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import sizes

# Where Python is told to keep no compiled modules beside their sources, they are kept
# with what other compilers made: each test that starts a process would compile all.
if sys.dont_write_bytecode:
    compiled = Path(__file__).resolve().parents[1] / ".test_cache" / "python"
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(compiled)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(compiled)

# A slow machine ends no search: its tests say how long it may take.
os.environ["EQSAT_DEADLINE_S"] = "3600"

# What one stage hands to the next is verified.
os.environ["EQSAT_VERIFY"] = "1"

# What kernels cost is what is shipped, not what somebody measured here.
os.environ["EQSAT_CONFIG_DIR"] = os.devnull

# Products of float32 are compared with float32's rounding; MLX rounds to 19 bits on
# NVIDIA's GPUs unless told.
os.environ["MLX_ENABLE_TF32"] = "0"

# What is made before the first test is not there in the next run.
_CACHE = tempfile.TemporaryDirectory(prefix="eqsat-tests-")
os.environ["EQSAT_CACHE_DIR"] = _CACHE.name

_PROGRAMS: pytest.StashKey[Any] = pytest.StashKey()
_OPS: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
"""All ops when the tests are known."""

SOURCES = tuple(
    f"{Path(__file__).resolve().parents[1] / folder}{os.sep}"
    for folder in ("eqsat", "rules", "backends")
)

GOLDEN = Path(__file__).resolve().parent / "golden"
"""Texts that generated code and listings must equal."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the files of tests/golden anew instead of comparing with them",
    )


def pytest_configure(config: pytest.Config) -> None:
    import made  # and eqsat, which is told by then what to keep where

    from eqsat.support.option_table import warn_of_unknown_variables

    with warnings.catch_warnings(action="ignore"):  # the tests have variables too
        warn_of_unknown_variables()

    sizes.load_profile(os.environ.get("HYPOTHESIS_PROFILE"), config.option.markexpr)
    made.keep_machine_code()
    config.stash[_PROGRAMS] = made.Programs(_CACHE.name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sizes.thin(items)
    sizes.leave_long(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_PROGRAMS].start()
    sizes.draw_alike(item)


def pytest_sessionfinish() -> None:
    import made

    made.trim()


def pytest_collection_finish(session: pytest.Session) -> None:
    from eqsat.terms.op import Op

    session.config.stash[_OPS] = dict(Op.registry)
    keep_what_is_there()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and item.path != nextitem.path:
        forget_ops_of_tests(item.config.stash[_OPS])
        keep_what_is_there()


def forget_ops_of_tests(known: Mapping[str, Any]) -> None:
    """What tests draw has no ops of a file that ran before them. Ops of eqsat that are
    made late stay."""
    from eqsat.terms.op import Op

    for name, op in [*Op.registry.items()]:
        code = getattr(op.reference, "__code__", None)
        if name not in known and code and not code.co_filename.startswith(SOURCES):
            del Op.registry[name]


def keep_what_is_there() -> None:
    """Modules, tests and what caches hold stay: later collections need not look at them
    again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # tests make many objects, and few in circles


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
