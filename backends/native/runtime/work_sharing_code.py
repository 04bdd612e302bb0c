"""LLVM IR of how threads share the steps of a program: by parts, not by threads.

Each thread has parts of its own in every step, the same ones in each call, so that they
stay in its caches; one that has none left takes those of others. A step is over when
all its parts are done, whoever did them: nobody waits for a thread that has not come,
or that was stopped between two parts.

Steps are numbered by *turns*, through all programs; turn 0 is a program that runs
alone. The words that count parts hold their turn beside the count, and are used again
after some turns: a thread that lags behind sees a later turn, and that nothing is left.
"""

from __future__ import annotations

from ..machine import COMMON

MOST_THREADS = 256
"""Threads of one program, the caller's included."""
MOST_PARTS = 8
"""Parts of one thread in a step."""
_BITS = 12
"""Of the count, which is below :data:`MOST_THREADS` times :data:`MOST_PARTS` + 1."""
_RING = 16
"""Turns after which a word is used again."""
_FORGOTTEN = 1 << 30
"""Turns that are left out after a fork: more than a program has."""

SHARING = f"""
@claimed = internal global [{MOST_THREADS * _RING} x i64] zeroinitializer, align 128
@completed = internal global [{_RING} x i64] zeroinitializer, align 128
@next_turn = internal global i64 1, align 64
@direction = internal global i64 0, align 64

; Turn %i of waiting: a pause at first, later the processor is given away.
define internal void @wait_a_turn(i64 %i) alwaysinline {{
  %long = icmp ugt i64 %i, {COMMON.spins}
  br i1 %long, label %yield, label %spin
spin:
  call void @pause()
  ret void
yield:
  %r = call i32 @sched_yield()
  ret void
}}

; Until the word at %p is at least %wanted.
define internal void @wait_until(ptr %p, i64 %wanted) {{
  br label %look
look:
  %i = phi i64 [0, %0], [%i1, %wait]
  %now = load atomic i64, ptr %p seq_cst, align 8
  %there = icmp uge i64 %now, %wanted
  br i1 %there, label %end, label %wait
wait:
  %i1 = add i64 %i, 1
  call void @wait_a_turn(i64 %i)
  br label %look
end:
  ret void
}}

; The next part of a step for %thread, -1 when none is left. %sharing threads have %each
; parts; %whose, at first %thread, is where the last one was found.
define i64 @part_claim(i64 %thread, ptr %whose, i64 %sharing, i64 %each, i64 %turn) {{
  %place = and i64 %turn, {_RING - 1}
  %fresh = shl i64 %turn, {_BITS}
  %alone = icmp eq i64 %turn, 0
  br i1 %alone, label %once, label %many
once:
  %only = load i64, ptr %whose
  store i64 -1, ptr %whose
  ret i64 %only
many:
  %shares = icmp ult i64 %thread, %sharing
  br i1 %shares, label %look, label %none
look:
  %owner = load i64, ptr %whose
  %row = mul i64 %owner, {_RING}
  %at = add i64 %row, %place
  %p = getelementptr i64, ptr @claimed, i64 %at
  %first = load atomic i64, ptr %p seq_cst, align 8
  br label %try
try:
  %old = phi i64 [%first, %look], [%now, %take]
  %then = lshr i64 %old, {_BITS}
  %same = icmp eq i64 %then, %turn
  %taken = and i64 %old, {(1 << _BITS) - 1}
  %left = icmp ult i64 %taken, %each
  %later = icmp ugt i64 %then, %turn
  br i1 %later, label %none, label %compare
compare:
  %stale = xor i1 %same, true
  %any = or i1 %stale, %left
  br i1 %any, label %take, label %next
take:
  %from = select i1 %same, i64 %old, i64 %fresh
  %new = add i64 %from, 1
  %pair = cmpxchg ptr %p, i64 %old, i64 %new seq_cst seq_cst
  %now = extractvalue {{ i64, i1 }} %pair, 0
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %found, label %try
found:
  %start = mul i64 %owner, %each
  %number = sub i64 %from, %fresh
  %part = add i64 %start, %number
  ret i64 %part
next:
  %after = add i64 %owner, 1
  %last = icmp eq i64 %after, %sharing
  %other = select i1 %last, i64 0, i64 %after
  store i64 %other, ptr %whose
  %round = icmp eq i64 %other, %thread
  br i1 %round, label %none, label %look
none:
  ret i64 -1
}}

; Says that %count parts of a step are done.
define void @parts_done(i64 %count, i64 %turn) {{
  %place = and i64 %turn, {_RING - 1}
  %p = getelementptr i64, ptr @completed, i64 %place
  %fresh = shl i64 %turn, {_BITS}
  %alone = icmp eq i64 %turn, 0
  %nothing = icmp eq i64 %count, 0
  %idle = or i1 %alone, %nothing
  br i1 %idle, label %end, label %look
look:
  %first = load atomic i64, ptr %p seq_cst, align 8
  br label %try
try:
  %old = phi i64 [%first, %look], [%now, %try]
  %from = call i64 @llvm.umax.i64(i64 %old, i64 %fresh)
  %new = add i64 %from, %count
  %pair = cmpxchg ptr %p, i64 %old, i64 %new seq_cst seq_cst
  %now = extractvalue {{ i64, i1 }} %pair, 0
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %end, label %try
end:
  ret void
}}

; Until all %parts of a step are done.
define void @parts_wait(i64 %parts, i64 %turn) {{
  %alone = icmp eq i64 %turn, 0
  br i1 %alone, label %end, label %wait
wait:
  %place = and i64 %turn, {_RING - 1}
  %p = getelementptr i64, ptr @completed, i64 %place
  %fresh = shl i64 %turn, {_BITS}
  %wanted = add i64 %fresh, %parts
  call void @wait_until(ptr %p, i64 %wanted)
  ret void
end:
  ret void
}}

; Ends a program: the next one starts with this turn.
define void @turns_end(i64 %thread, i64 %turn) {{
  %zero = icmp eq i64 %thread, 0
  %many = icmp ne i64 %turn, 0
  %says = and i1 %zero, %many
  br i1 %says, label %say, label %end
say:
  store i64 %turn, ptr @next_turn
  br label %end
end:
  ret void
}}

; The direction in which a program begins that starts at %turn: the same for all of its
; threads. Programs that run alone keep it in a word, whose value is of no consequence.
define i64 @sweep_now(i64 %turn) {{
  %alone = icmp eq i64 %turn, 0
  %held = load atomic i64, ptr @direction monotonic, align 8
  %shared = and i64 %turn, 1
  %now = select i1 %alone, i64 %held, i64 %shared
  ret i64 %now
}}

; The direction for the next program, after one that ran alone.
define void @sweep_next(i64 %turn, i64 %wanted) {{
  %alone = icmp eq i64 %turn, 0
  br i1 %alone, label %keep, label %end
keep:
  store atomic i64 %wanted, ptr @direction monotonic, align 8
  br label %end
end:
  ret void
}}

; In the child of a fork: a program of another thread may have begun turns.
define internal void @turns_forget() {{
  %now = load i64, ptr @next_turn
  %later = add i64 %now, {_FORGOTTEN}
  store i64 %later, ptr @next_turn
  ret void
}}
declare i64 @llvm.umax.i64(i64, i64)
"""
SHARING_FUNCTIONS = (
    "part_claim",
    "parts_done",
    "parts_wait",
    "turns_end",
    "sweep_now",
    "sweep_next",
)
"""What programs call."""
