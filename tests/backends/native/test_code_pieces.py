"""Pieces of machine code that a second thread compiles while others are written."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
from llvmlite.binding import ffi

import eqsat as eq
from eqsat.backends.native.code_pieces import CodePieces
from eqsat.backends.native.machine import Host, holds_llvm, host
from eqsat.support import BackendError, Deadline, short_turns


def made_by(
    make: Callable[[str, Host, str], bytes], seconds: float = math.inf
) -> CodePieces:
    """Pieces of which one has been made."""
    pieces = CodePieces(host(), Deadline(seconds), make)
    assert pieces.begin("first", [], "short", 9)() == make("first", host(), "short")
    pieces.note("short", 1)
    return pieces


def test_a_second_thread_compiles_while_the_first_one_writes() -> None:
    threads: list[int] = []

    def make(text: str, host: Host, passes: str) -> bytes:
        threads.append(threading.get_ident())
        return text.encode()

    with made_by(make) as pieces:
        codes = [pieces.begin(f"piece{n}", [], "short", 9) for n in range(4)]
        assert pieces.passes(5) == "short"
        assert b" ".join(code() for code in codes) == b"piece0 piece1 piece2 piece3"
    mine = threading.get_ident()
    assert threads[0] == mine and len({*threads[2:]}) == 1 and mine not in threads[2:]
    assert pieces.texts == ["first", *(f"piece{n}" for n in range(4))]


@pytest.mark.parametrize(("seconds", "left"), [(math.inf, 0), (0.0, 9)])
def test_the_last_piece_and_those_that_are_late_have_no_second_thread(
    seconds: float, left: int
) -> None:
    threads: list[int] = []

    def make(text: str, host: Host, passes: str) -> bytes:
        threads.append(threading.get_ident())
        return b""

    with made_by(make, seconds) as pieces:
        pieces.begin("piece", [], "short", left)
    assert {*threads} == {threading.get_ident()}


def test_an_error_of_the_second_thread_is_raised_where_code_is_needed() -> None:
    def make(text: str, host: Host, passes: str) -> bytes:
        if text == "wrong":
            raise BackendError("native: LLVM refuses the IR")
        return b""

    with made_by(make) as pieces:
        code = pieces.begin("wrong", [], "short", 9)
        with pytest.raises(BackendError, match="LLVM refuses"):
            code()


def test_what_an_interrupt_has_left_locked_is_let_go() -> None:
    """One that comes after llvmlite has taken LLVM's lock, and before its call."""
    lock, is_kept = ffi.lib._lock._lock, threading.Event()

    def make(text: str, host: Host, passes: str) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            is_kept.wait(10)
            assert lock.acquire(timeout=10)
            lock.release()
        return text.encode()

    with made_by(make) as pieces:
        code = pieces.begin("piece", [], "short", 9)
        lock.acquire()
        is_kept.set()
        assert code() == b"piece"
    with pytest.raises(KeyboardInterrupt), made_by(make) as pieces:
        pieces.begin("piece", [], "short", 9)
        lock.acquire()
        raise KeyboardInterrupt
    assert not holds_llvm()


def test_a_thread_that_is_inside_of_llvm_has_no_second_one() -> None:
    threads: list[int] = []

    def make(text: str, host: Host, passes: str) -> bytes:
        threads.append(threading.get_ident())
        return b""

    with ffi.lib._lock, made_by(make) as pieces:
        pieces.begin("piece", [], "short", 9)()
        assert holds_llvm()
    assert {*threads} == {threading.get_ident()} and not holds_llvm()


def test_programs_of_many_pieces_are_right() -> None:
    sizes = range(3, 30)
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((n, n + 1)) / n for n in sizes]

    def f(x: np.ndarray) -> np.ndarray:
        for w in weights:
            x = np.tanh(x @ w) - x.mean(-1, keepdims=True)
        return x

    x = rng.standard_normal((5, 3))
    turns = sys.getswitchinterval()
    assert np.allclose(eq.jit(f, backend="native")(x), f(x), rtol=1e-12, atol=1e-13)
    assert sys.getswitchinterval() == turns


def test_turns_are_as_long_as_before_whoever_ends_first() -> None:
    before = sys.getswitchinterval()
    first, second = short_turns(), short_turns()
    first.__enter__()
    second.__enter__()
    assert sys.getswitchinterval() < before
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() < before
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_turns_are_as_long_as_before_in_a_child() -> None:
    before = sys.getswitchinterval()
    with short_turns():
        child = os.fork()
        if not child:
            os._exit(sys.getswitchinterval() != before)
        assert os.waitpid(child, 0) == (child, 0)
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before
