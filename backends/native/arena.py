"""Scratch memory of programs: one block that is kept between calls."""

from __future__ import annotations

ARENA_IR = """
@arena_kept = internal global i64 0
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)

; At least %size bytes, aligned to 64; null when there is no memory. The 64 bytes before
; it hold its size.
define internal ptr @arena_take(i64 %size) {
  %slot = alloca ptr
  %kept = atomicrmw xchg ptr @arena_kept, i64 0 seq_cst
  %none = icmp eq i64 %kept, 0
  br i1 %none, label %fresh, label %held
held:
  %old = inttoptr i64 %kept to ptr
  %room = load i64, ptr %old
  %enough = icmp uge i64 %room, %size
  br i1 %enough, label %reuse, label %drop
drop:
  call void @free(ptr %old)
  br label %fresh
fresh:
  %whole = add i64 %size, 64
  %failed = call i32 @posix_memalign(ptr %slot, i64 64, i64 %whole)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %new, label %nothing
new:
  %block = load ptr, ptr %slot
  store i64 %size, ptr %block
  br label %reuse
nothing:
  ret ptr null
reuse:
  %at = phi ptr [%old, %held], [%block, %new]
  %start = getelementptr i8, ptr %at, i64 64
  ret ptr %start
}

; Keeps the block for the next call, which may be another program's.
define internal void @arena_give(ptr %start) {
  %block = getelementptr i8, ptr %start, i64 -64
  %new = ptrtoint ptr %block to i64
  %kept = atomicrmw xchg ptr @arena_kept, i64 %new seq_cst
  %none = icmp eq i64 %kept, 0
  br i1 %none, label %end, label %drop
drop:
  %old = inttoptr i64 %kept to ptr
  call void @free(ptr %old)
  br label %end
end:
  ret void
}

define void @arena_release() {
  %kept = atomicrmw xchg ptr @arena_kept, i64 0 seq_cst
  %old = inttoptr i64 %kept to ptr
  call void @free(ptr %old)
  ret void
}
"""
"""``arena_take``, ``arena_give``, and ``arena_release``, which frees what is kept."""
