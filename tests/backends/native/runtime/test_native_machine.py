"""IR to object code to functions in memory, and what goes wrong on the way."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading

import llvmlite.binding as llvm
import numpy as np
import pytest
from memory_use import needs_proc, resident

from eqsat.backends.native.machine import processor
from eqsat.backends.native.machine.processor import Host, compile_ir, host, load
from eqsat.support.errors import BackendError, OptionError

ADD = "define i64 @add(i64 %a, i64 %b) {\n  %s = add i64 %a, %b\n  ret i64 %s\n}\n"
FMA = """
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
define void @fma8(ptr %p) {
  %x = load <8 x float>, ptr %p
  %y = call <8 x float> @llvm.fma.v8f32(<8 x float> %x, <8 x float> %x, <8 x float> %x)
  store <8 x float> %y, ptr %p
  ret void
}
"""


def call(code: bytes, *args: int, **imports: int) -> int:
    library = load(code, ["add"], imports)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))
    return int(kind(library.address("add"))(*args))


@pytest.mark.parametrize("passes", ["short", "full"])
def test_functions_run_and_are_named(passes: str) -> None:
    code = compile_ir(ADD, passes=passes)
    assert call(code, 40, 2) == 42
    with pytest.raises(BackendError, match="no function 'sub'; exported: add"):
        load(code, ["add"]).address("sub")


def test_code_is_the_same_every_time() -> None:
    assert compile_ir(ADD) == compile_ir(ADD)


def test_constants_and_calls_reach_far() -> None:
    ir = """
    @table = internal constant [3 x i64] [i64 10, i64 20, i64 30]
    declare i64 @given(i64)
    declare i64 @labs(i64)
    define i64 @add(i64 %i) {
      %p = getelementptr i64, ptr @table, i64 %i
      %v = load i64, ptr %p
      %w = call i64 @given(i64 %v)
      %a = call i64 @labs(i64 %w)
      ret i64 %a
    }
    """
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    given = kind(lambda x: -2 * x)
    address = ctypes.cast(given, ctypes.c_void_p).value or 0
    assert call(compile_ir(ir), 2, given=address) == 60


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(BackendError, match=r"refuses the IR: .*\n.*expected type"):
        compile_ir("define i64 @f( {")
    with pytest.raises(BackendError, match="undefined value"):
        compile_ir(ADD.replace("%s", "%x", 1))
    missing = ADD.replace("add i64 %a, %b", "call i64 @gone(i64 %a)")
    with pytest.raises(BackendError, match="does not link"):
        load(compile_ir("declare i64 @gone(i64)\n" + missing), ["add"])
    with pytest.raises(BackendError, match="does not link"):
        load(compile_ir(ADD)[:100], ["add"])
    with pytest.raises(BackendError, match="does not link"):
        load(b"", ["add"])


@pytest.mark.parametrize("cpu", ["native", "generic", "x86-64-v2", "x86-64-v3"])
def test_lesser_machines_compute_the_same(
    cpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CPU", cpu)
    try:
        machine = host()
    except OptionError:
        pytest.skip("not an x86-64")
    if not host("native").flags >= machine.flags:
        pytest.skip("this machine is less than that")
    x = np.arange(8, dtype=np.float32)
    library = load(compile_ir(FMA, machine), ["fma8"])
    if cpu == "generic" and not machine.has_fma:
        assert machine.vector_bits == 128
    aligned = np.empty(24, np.float32)
    start = (-aligned.ctypes.data % 32) // 4
    y = aligned[start : start + 8]
    y[...] = x
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("fma8"))(y.ctypes.data)
    np.testing.assert_array_equal(y, x * x + x)


def test_what_a_machine_has_follows_from_its_features() -> None:
    wide = "+avx2,+fma,+avx512f,+avx512bw,+avx512dq,+avx512vl"
    found = [
        (m.vector_bits, m.has_fma, m.is_arm)
        for m in (
            Host("x86_64-pc-linux-gnu", "a", wide),
            Host("x86_64-pc-linux-gnu", "b", wide.replace("+avx512vl", "-avx512vl")),
            Host("x86_64-apple-darwin", "c", "+sse4.2,-avx2"),
            Host("aarch64-unknown-linux-gnu", "d", "+neon"),
            Host("arm64-apple-darwin23", "e", ""),
        )
    ]
    assert [bits for bits, _, _ in found] == [512, 256, 128, 128, 128]
    assert [fma for _, fma, _ in found] == [True, True, False, True, True]
    with pytest.raises(OptionError, match="EQSAT_CPU='z80': expected native, generic"):
        host("z80")
    assert host("native").key != host("generic").key


@needs_proc
def test_libraries_that_are_dropped_leave_no_memory() -> None:
    code = compile_ir(ADD)

    def many(count: int) -> None:
        for _ in range(count):
            load(code, ["add"])

    many(60)
    gc.collect()
    before = resident()
    many(400)
    assert resident() - before < 2**20, sys.platform


@pytest.mark.skipif(llvm.llvm_version_info < (15,), reason="the option is not set")
def test_threads_do_not_change_the_code_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An option of LLVM's holds for the whole process: it is given back when the code
    of a thread is made, and not while that of another one is."""
    said: list[str] = []
    waits = threading.Event()

    def makes_code() -> None:
        with processor._addresses_as_written():
            waits.wait(0.01)  # another thread may come in between
            said.append("code")

    monkeypatch.setattr(llvm, "set_option", lambda name, option: said.append(option))
    threads = [threading.Thread(target=makes_code) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert said == ["-disable-lsr=true", "code", "-disable-lsr=false"] * 2
