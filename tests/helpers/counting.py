"""A program that a team of threads runs, and that counts what they do."""

from __future__ import annotations

import ctypes

import numpy as np
from entering import loaded

from eqsat.backends.native.runtime import shared_runtime as runtime

COUNTING = """
declare i64 @part_claim(i64, ptr, i64, i64, i64)
declare void @parts_done(i64, i64)
declare void @parts_wait(i64, i64)
declare void @turns_end(i64, i64)
; buffers[0]: i64 [rounds], i64 [parts of a thread], i64 [wrong], i64 [threads asked],
; i64 [threads that came], then one i64 for each part. In every round each part adds 1
; to its number; when all are done, each thread checks all numbers.
define void @program(ptr %buffers, i64 %thread, i64 %threads, i64 %base) {
  %whose = alloca i64
  %state = load ptr, ptr %buffers
  %p1 = getelementptr i64, ptr %state, i64 1
  %wrong = getelementptr i64, ptr %state, i64 2
  %asked = getelementptr i64, ptr %state, i64 3
  %came = getelementptr i64, ptr %state, i64 4
  %numbers = getelementptr i64, ptr %state, i64 5
  %rounds = load i64, ptr %state
  %each = load i64, ptr %p1
  store i64 %threads, ptr %asked
  %n = atomicrmw add ptr %came, i64 1 seq_cst
  %alone = icmp eq i64 %base, 0
  %product = mul i64 %threads, %each
  %parts = select i1 %alone, i64 1, i64 %product
  br label %round
round:
  %i = phi i64 [0, %0], [%i1, %after]
  %i1 = add i64 %i, 1
  %double = mul i64 %i, 2
  %later = add i64 %base, %double
  %turn = select i1 %alone, i64 0, i64 %later
  %turn1 = add i64 %turn, 1
  %next_turn = select i1 %alone, i64 0, i64 %turn1
  store i64 %thread, ptr %whose
  br label %claim
claim:
  %made = phi i64 [0, %round], [%made1, %one]
  %part = call i64 @part_claim(
    i64 %thread, ptr %whose, i64 %threads, i64 %each, i64 %turn)
  %none = icmp slt i64 %part, 0
  br i1 %none, label %wait, label %one
one:
  %mine = getelementptr i64, ptr %numbers, i64 %part
  %old = load i64, ptr %mine
  %new = add i64 %old, 1
  store i64 %new, ptr %mine
  %made1 = add i64 %made, 1
  br label %claim
wait:
  call void @parts_done(i64 %made, i64 %turn)
  call void @parts_wait(i64 %parts, i64 %turn)
  store i64 %thread, ptr %whose
  br label %check
check:
  %seen = phi i64 [0, %wait], [%seen1, %look]
  %t = call i64 @part_claim(
    i64 %thread, ptr %whose, i64 %threads, i64 %each, i64 %next_turn)
  %all = icmp slt i64 %t, 0
  br i1 %all, label %after, label %look
look:
  %p = getelementptr i64, ptr %numbers, i64 %t
  %v = load i64, ptr %p
  %bad = icmp ne i64 %v, %i1
  %count = zext i1 %bad to i64
  %was = atomicrmw add ptr %wrong, i64 %count seq_cst
  %seen1 = add i64 %seen, 1
  br label %check
after:
  call void @parts_done(i64 %seen, i64 %next_turn)
  call void @parts_wait(i64 %parts, i64 %next_turn)
  %done = icmp eq i64 %i1, %rounds
  br i1 %done, label %end, label %round
end:
  %next = add i64 %next_turn, 1
  %last = select i1 %alone, i64 0, i64 %next
  call void @turns_end(i64 %thread, i64 %last)
  ret void
}
"""


class Counting:
    """The program above, and what it found."""

    def __init__(self) -> None:
        self.library = loaded(COUNTING)
        kind = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
        )  # gives the lock of Python away, as the entry does
        self.team_run = kind(runtime.runtime().address("team_run"))

        self.came = 0
        """Threads that took part in the last call."""

    def run(self, threads: int, rounds: int = 20, each: int = 3) -> int:
        """How many threads could take part; fails when a part was left out or done
        twice, or a round began too early."""
        state = np.zeros(5 + 256 * each + 1, np.int64)
        state[:2] = rounds, each
        buffers = (ctypes.c_void_p * 1)(state.ctypes.data)
        self.team_run(self.library.address("program"), buffers, threads)
        _, _, wrong, asked, came = map(int, state[:5])
        self.came = came  # which another thread may set before the next line
        assert wrong == 0 and 1 <= came <= asked
        parts = asked * each if asked > 1 else 1
        assert (state[5 : 5 + parts] == rounds).all()
        assert (state[5 + parts :] == 0).all()
        return asked
