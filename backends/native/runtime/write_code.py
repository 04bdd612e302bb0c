"""LLVM IR of calls that write to their arguments.

A program computes what arguments become in memory of its own. When it has run to its
end, that is copied into the caller's arrays, so that an error leaves them as they were.
"""

from __future__ import annotations

from ..machine import each, every

WRITES_IR = (
    every(
        "@are_apart(ptr %v, ptr %buffers)",
        """
  %offset = mul i64 %i, 40
  %a = getelementptr i8, ptr %all, i64 %offset
  %leaf = get Apart.leaf, %a
  %at = getelementptr ptr, ptr %buffers, i64 %leaf
  %start = load i64, ptr %at
  %nbytes = get Apart.nbytes, %a
  %end = add i64 %start, %nbytes
  %other = get Apart.other, %a
  %is_fixed = icmp slt i64 %other, 0
  %q = getelementptr ptr, ptr %buffers, i64 %other
  %from = select i1 %is_fixed, ptr @nothing, ptr %q
  %base = load i64, ptr %from
  %start0 = get Apart.start, %a
  %start1 = add i64 %base, %start0
  %end0 = get Apart.end, %a
  %end1 = add i64 %base, %end0
  %before = icmp ule i64 %end, %start1
  %behind = icmp ule i64 %end1, %start
  %ok = or i1 %before, %behind""",
        before="""
  %n = get Variant.aparts, %v
  %all = get Variant.apart, %v""",
    )
    + each(
        "@write_all(ptr %all, i64 %n, ptr %outs, ptr %to, ptr %from)",
        """
  %offset = mul i64 %i, 24
  %w = getelementptr i8, ptr %all, i64 %offset
  %leaf = get Write.leaf, %w
  %p = getelementptr ptr, ptr %to, i64 %leaf
  %target = load ptr, ptr %p
  %output = get Write.output, %w
  %q = getelementptr ptr, ptr %from, i64 %output
  %source = load ptr, ptr %q
  %nbytes = get Write.nbytes, %w
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %nbytes, i1 false)
  %o = getelementptr ptr, ptr %outs, i64 %output
  %x = load ptr, ptr %o
  call void @Py_DecRef(ptr %x)""",
    )
    + each(
        "@hand_all(ptr %all, i64 %n, ptr %outs, ptr %leaves)",
        """
  %offset = mul i64 %i, 16
  %h = getelementptr i8, ptr %all, i64 %offset
  %output = get Handed.output, %h
  %leaf = get Handed.leaf, %h
  %p = getelementptr ptr, ptr %leaves, i64 %leaf
  %own = load ptr, ptr %p
  call void @Py_IncRef(ptr %own)
  %o = getelementptr ptr, ptr %outs, i64 %output
  %x = load ptr, ptr %o
  store ptr %own, ptr %o
  call void @Py_DecRef(ptr %x)""",
    )
    + """
; Whether the arguments that a variant writes to share no memory with others; %spare has
; room for where they lie.
define internal i1 @may_write(ptr %v, ptr %leaves, i64 %n, ptr %spare) alwaysinline {
  %writes = get Variant.writes, %v
  %none = icmp eq i64 %writes, 0
  br i1 %none, label %yes, label %look
look:
  call void @data_of(ptr %leaves, i64 %n, ptr %spare)
  %apart = call i1 @are_apart(ptr %v, ptr %spare)
  ret i1 %apart
yes:
  ret i1 true
}

; What arguments become, into the caller's arrays; %outs then has the results alone.
define internal void @write_arguments(ptr %v, ptr %leaves, ptr %outs, ptr %buffers)
  alwaysinline {
  %n = get Variant.writes, %v
  %none = icmp eq i64 %n, 0
  br i1 %none, label %done, label %write
write:
  %leaf_count = get Variant.leaves, %v
  %from = getelementptr ptr, ptr %buffers, i64 %leaf_count
  %all = get Variant.write, %v
  call void @write_all(ptr %all, i64 %n, ptr %outs, ptr %buffers, ptr %from)
  %handed = get Variant.handed, %v
  %hand = get Variant.hand, %v
  call void @hand_all(ptr %hand, i64 %handed, ptr %outs, ptr %leaves)
  ret void
done:
  ret void
}
"""
)
"""``may_write`` and ``write_arguments``."""
