"""LLVM IR of the pool: blocks of memory that are kept for the next call.

Only threads that hold Python's lock take and give blocks. ``get`` is
:func:`..machine.c_layouts.expand`'s.
"""

from __future__ import annotations

from ..machine import ALIGNED, C_CONTIGUOUS, COMMON, OWNDATA, WRITEABLE, expand

ALIGNMENT = 64
"""Bytes of a cache line, where blocks start."""
MOST_BLOCKS = 64
KEPT_BYTES = 1 << 28
"""Bytes that are kept at most, unless :func:`.result_pool.limit` says otherwise."""
_HUGE = 1 << 22
"""Bytes from which pages of 2 MiB are asked for, as NumPy does."""
_ADVICE = 14
"""MADV_HUGEPAGE."""
_DOMAIN = 389047
"""What tracemalloc knows NumPy's memory by."""

_BLOCKS = f"""
; Kept blocks, the latest one last. The {ALIGNMENT} bytes before a block's first one
; hold its size.
@pool_blocks = internal global [{MOST_BLOCKS} x ptr] zeroinitializer
@pool_count = internal global i64 0
@pool_bytes = internal global i64 0
@pool_most = internal global i64 {KEPT_BYTES}
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare {{i64, i1}} @llvm.umul.with.overflow.i64(i64, i64)

; Removes block number %i.
define internal ptr @pool_remove(i64 %i) {{
  %n = load i64, ptr @pool_count
  %at = getelementptr ptr, ptr @pool_blocks, i64 %i
  %block = load ptr, ptr %at
  %size = load i64, ptr %block
  %kept = load i64, ptr @pool_bytes
  %less = sub i64 %kept, %size
  store i64 %less, ptr @pool_bytes
  %last = sub i64 %n, 1
  store i64 %last, ptr @pool_count
  %after = getelementptr ptr, ptr %at, i64 1
  %rest = sub i64 %last, %i
  %nbytes = mul i64 %rest, 8
  call void @llvm.memmove.p0.p0.i64(ptr %at, ptr %after, i64 %nbytes, i1 false)
  ret ptr %block
}}

; Frees the oldest blocks until there is room for %size bytes more in a new place.
define internal void @pool_make_room(i64 %size) {{
  br label %look
look:
  %n = load i64, ptr @pool_count
  %none = icmp eq i64 %n, 0
  br i1 %none, label %end, label %some
some:
  %kept = load i64, ptr @pool_bytes
  %all = add i64 %kept, %size
  %most = load i64, ptr @pool_most
  %heavy = icmp ugt i64 %all, %most
  %full = icmp eq i64 %n, {MOST_BLOCKS}
  %over = or i1 %heavy, %full
  br i1 %over, label %drop, label %end
drop:
  %block = call ptr @pool_remove(i64 0)
  call void @free(ptr %block)
  br label %look
end:
  ret void
}}

define internal ptr @pool_new(i64 %size) {{
  %slot = alloca ptr
  %whole = add i64 %size, {ALIGNMENT}
  br label %ask
ask:
  %failed = call i32 @posix_memalign(ptr %slot, i64 {ALIGNMENT}, i64 %whole)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %new, label %short
short:                                  ; what is kept may be what is missing
  %kept = load i64, ptr @pool_count
  %none = icmp eq i64 %kept, 0
  br i1 %none, label %nothing, label %again
again:
  call void @pool_release()
  br label %ask
new:
  %block = load ptr, ptr %slot
  %large = icmp uge i64 %size, {_HUGE}
  br i1 %large, label %huge, label %end
huge:
  call void @pool_advise(ptr %block, i64 %whole)
  br label %end
end:
  store i64 %size, ptr %block
  %start = getelementptr i8, ptr %block, i64 {ALIGNMENT}
  ret ptr %start
nothing:
  ret ptr null
}}

; At least %wanted bytes on a cache line; null when there is no memory.
define internal ptr @pool_take(i64 %wanted) {{
  %size = call i64 @llvm.umax.i64(i64 %wanted, i64 1)
  %quarter = lshr i64 %size, 2
  %slack = add i64 %quarter, 4096
  %most = add i64 %size, %slack
  %n = load i64, ptr @pool_count
  br label %next
next:
  %above = phi i64 [%n, %0], [%i, %one]
  %done = icmp eq i64 %above, 0
  br i1 %done, label %fresh, label %one
one:
  %i = sub i64 %above, 1
  %at = getelementptr ptr, ptr @pool_blocks, i64 %i
  %block = load ptr, ptr %at
  %room = load i64, ptr %block
  %enough = icmp uge i64 %room, %size
  %little = icmp ule i64 %room, %most
  %fits = and i1 %enough, %little
  br i1 %fits, label %reuse, label %next
reuse:
  %found = call ptr @pool_remove(i64 %i)
  %start = getelementptr i8, ptr %found, i64 {ALIGNMENT}
  ret ptr %start
fresh:
  %made = call ptr @pool_new(i64 %size)
  ret ptr %made
}}

; Keeps the block for the next call, which may be another program's.
define internal void @pool_give(ptr %start) {{
  %block = getelementptr i8, ptr %start, i64 -{ALIGNMENT}
  %size = load i64, ptr %block
  %most = load i64, ptr @pool_most
  %large = icmp ugt i64 %size, %most
  br i1 %large, label %drop, label %keep
drop:
  call void @free(ptr %block)
  ret void
keep:
  call void @pool_make_room(i64 %size)
  %n = load i64, ptr @pool_count
  %at = getelementptr ptr, ptr @pool_blocks, i64 %n
  store ptr %block, ptr %at
  %more = add i64 %n, 1
  store i64 %more, ptr @pool_count
  %kept = load i64, ptr @pool_bytes
  %all = add i64 %kept, %size
  store i64 %all, ptr @pool_bytes
  ret void
}}

; Frees all that is kept.
define void @pool_release() {{
  br label %look
look:
  %n = load i64, ptr @pool_count
  %none = icmp eq i64 %n, 0
  br i1 %none, label %end, label %drop
drop:
  %last = sub i64 %n, 1
  %block = call ptr @pool_remove(i64 %last)
  call void @free(ptr %block)
  br label %look
end:
  ret void
}}

define i64 @pool_kept() {{
  %kept = load i64, ptr @pool_bytes
  ret i64 %kept
}}

; Keeps so many bytes at most; what was the bound before.
define i64 @pool_limit(i64 %most) {{
  %before = load i64, ptr @pool_most
  store i64 %most, ptr @pool_most
  %kept = load i64, ptr @pool_bytes
  %over = icmp ugt i64 %kept, %most
  br i1 %over, label %drop, label %end
drop:
  call void @pool_make_room(i64 0)
  br label %end
end:
  ret i64 %before
}}
"""

_HANDLER = f"""
; What NumPy calls for an array that owns a block (PyDataMemAllocator).
define ptr @handler_malloc(ptr %context, i64 %size) {{
  %start = call ptr @pool_take(i64 %size)
  ret ptr %start
}}

define ptr @handler_calloc(ptr %context, i64 %count, i64 %each) {{
  %product = call {{i64, i1}} @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %too_many = extractvalue {{i64, i1}} %product, 1
  br i1 %too_many, label %no, label %take
take:
  %size = extractvalue {{i64, i1}} %product, 0
  %start = call ptr @pool_take(i64 %size)
  %failed = icmp eq ptr %start, null
  br i1 %failed, label %no, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %start, i8 0, i64 %size, i1 false)
  ret ptr %start
no:
  ret ptr null
}}

define ptr @handler_realloc(ptr %context, ptr %old, i64 %size) {{
  %new = call ptr @pool_take(i64 %size)
  %failed = icmp eq ptr %new, null
  %none = icmp eq ptr %old, null
  %done = or i1 %failed, %none
  br i1 %done, label %end, label %move
move:
  %header = getelementptr i8, ptr %old, i64 -{ALIGNMENT}
  %had = load i64, ptr %header
  %n = call i64 @llvm.umin.i64(i64 %had, i64 %size)
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %old, i64 %n, i1 false)
  call void @pool_give(ptr %old)
  br label %end
end:
  ret ptr %new
}}

define void @handler_free(ptr %context, ptr %start, i64 %size) {{
  %none = icmp eq ptr %start, null
  br i1 %none, label %end, label %give
give:
  call void @pool_give(ptr %start)
  br label %end
end:
  ret void
}}
"""

_ARRAYS = f"""
@pool_handler = external global i8      ; the capsule of the functions above

; A new array of %nbytes, not initialised, or null and an exception.
define ptr @new_array(ptr %dtype, i64 %rank, ptr %shape, i64 %nbytes) {{
  %ndim = trunc i64 %rank to i32
  call void @Py_IncRef(ptr %dtype)
  %large = icmp uge i64 %nbytes, {COMMON.pooled_bytes}
  br i1 %large, label %pooled, label %small
small:
  %s = call ptr @PyArray_NewFromDescr(ptr @PyArray_Type, ptr %dtype, i32 %ndim,
    ptr %shape, ptr null, ptr null, i32 0, ptr null)
  ret ptr %s
pooled:
  %data = call ptr @pool_take(i64 %nbytes)
  %full = icmp eq ptr %data, null
  br i1 %full, label %no_memory, label %wrap
no_memory:
  call void @Py_DecRef(ptr %dtype)
  %raised = call ptr (ptr, ptr, ...) @PyErr_Format(ptr @MemoryError, ptr @no_memory,
    i64 %nbytes)
  ret ptr null
wrap:
  %a = call ptr @PyArray_NewFromDescr(ptr @PyArray_Type, ptr %dtype, i32 %ndim,
    ptr %shape, ptr null, ptr %data, i32 {C_CONTIGUOUS | ALIGNED | WRITEABLE}, ptr null)
  %failed = icmp eq ptr %a, null
  br i1 %failed, label %back, label %own
back:
  call void @pool_give(ptr %data)
  ret ptr null
own:                                    ; the array gives the block back when it goes
  call void @Py_IncRef(ptr @pool_handler)
  %handler = get Array.handler, %a
  store ptr @pool_handler, ptr %handler
  %flags = get Array.flags, %a
  %owned = or i32 %flags, {OWNDATA}
  store i32 %owned, ptr %flags.at
  %address = ptrtoint ptr %data to i64
  %seen = call i32 @PyTraceMalloc_Track(i32 {_DOMAIN}, i64 %address, i64 %nbytes)
  ret ptr %a
}}
"""

_ADVISE = {
    True: f"""
declare i32 @madvise(ptr, i64, i32)
define internal void @pool_advise(ptr %block, i64 %size) {{
  %address = ptrtoint ptr %block to i64
  %up = add i64 %address, 4095
  %page = and i64 %up, -4096
  %skipped = sub i64 %page, %address
  %rest = sub i64 %size, %skipped
  %start = inttoptr i64 %page to ptr
  %r = call i32 @madvise(ptr %start, i64 %rest, i32 {_ADVICE})
  ret void
}}
""",
    False: """
define internal void @pool_advise(ptr %block, i64 %size) {
  ret void
}
""",
}


def pool_ir(is_linux: bool) -> str:
    """``pool_take``, ``pool_give``, ``new_array``, and what :mod:`.result_pool`
    calls."""
    return expand("\n".join((_BLOCKS, _HANDLER, _ARRAYS, _ADVISE[is_linux])))
