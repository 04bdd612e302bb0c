"""LLVM IR of the entry: one function for the calls of every jit.

It goes through the variants of its table until the guards of one hold, runs that
program on fresh outputs, and calls Python for everything else. No guard runs Python
code, so what it has looked at stays as it was. ``get`` is
:func:`..machine.c_layouts.expand`'s."""

from __future__ import annotations

from ..machine import each, every, expand
from .guard_code import GUARDS
from .write_code import WRITES_IR

ENTERING_PYTHON = (
    *("PyObject_RichCompareBool", "PyObject_Vectorcall", "PyObject_CallOneArg"),
    *("PyDict_Size", "PyDict_Next", "PyDict_GetItem", "PyCapsule_GetPointer"),
    *("PyObject_GenericGetDict", "PyErr_Clear"),
    *("Py_IncRef", "Py_DecRef"),
)
"""Functions of Python that every entry calls."""
PYTHON = (
    *ENTERING_PYTHON,
    *("PyTuple_New", "PyErr_Format", "PyTraceMalloc_Track", "PyType_IsSubtype"),
    *("PyEval_SaveThread", "PyEval_RestoreThread"),
)
"""Functions of Python that the code calls."""
TYPES = {
    "PyList_Type": list,
    "PyFloat_Type": float,
}
"""Types of Python that every entry compares with."""

ENTERING_DECLARED = """
@clock = external global i64
@PyList_Type = external global i8
@PyFloat_Type = external global i8
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare i64 @PyDict_Size(ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyDict_GetItem(ptr, ptr)
declare ptr @PyObject_GenericGetDict(ptr)
declare void @PyErr_Clear()
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare ptr @llvm.ptrmask.p0.i64(ptr, i64)
declare <16 x i32> @llvm.fshl.v16i32(<16 x i32>, <16 x i32>, <16 x i32>)
"""
"""What every entry refers to, beside its own."""

_DECLARED = """
@nothing = internal constant [96 x i8] zeroinitializer, align 8
@PyArray_Type = external global i8
@MemoryMap_Type = external global i8
@MemoryError = external global i8
@no_memory = internal constant [31 x i8] c"eqsat: no memory for %zd bytes\\00"
declare i32 @PyType_IsSubtype(ptr, ptr)
declare ptr @PyTuple_New(i64)
declare ptr @PyErr_Format(ptr, ptr, ...)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyTraceMalloc_Track(i32, i64, i64)
declare ptr @PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare ptr @PyArray_Return(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @team_run(ptr, ptr, i64)
"""

_CHECKSUM = """
define internal <16 x i32> @turned(<16 x i32> %x, <16 x i32> %bits) alwaysinline {
  %y = call <16 x i32> @llvm.fshl.v16i32(<16 x i32> %x, <16 x i32> %x, <16 x i32> %bits)
  ret <16 x i32> %y
}
; A checksum of bytes: another one for each change of one word, and with a chance of
; 2^-64 the same for others.
define i64 @checksum(ptr %at, i64 %nbytes) {
  %whole = and i64 %nbytes, -128
  br label %next
next:
  %i = phi i64 [0, %0], [%i1, %one]
  %a = phi <16 x i32> [zeroinitializer, %0], [%a2, %one]
  %b = phi <16 x i32> [zeroinitializer, %0], [%b2, %one]
  %done = icmp eq i64 %i, %whole
  br i1 %done, label %lanes, label %one
one:
  %p = getelementptr i8, ptr %at, i64 %i
  %q = getelementptr i8, ptr %p, i64 64
  %x = load <16 x i32>, ptr %p, align 1
  %y = load <16 x i32>, ptr %q, align 1
  %ax = xor <16 x i32> %a, %x
  %by = xor <16 x i32> %b, %y
  %a1 = mul <16 x i32> %ax, splat (i32 -1640531535)
  %b1 = mul <16 x i32> %by, splat (i32 -2048144777)
  %a2 = call <16 x i32> @turned(<16 x i32> %a1, <16 x i32> splat (i32 13))
  %b2 = call <16 x i32> @turned(<16 x i32> %b1, <16 x i32> splat (i32 15))
  %i1 = add i64 %i, 128
  br label %next
lanes:
  %room = alloca [32 x i32], align 64
  %second = getelementptr i8, ptr %room, i64 64
  store <16 x i32> %a, ptr %room
  store <16 x i32> %b, ptr %second
  %start = call i64 @checksum_words(ptr %room, i64 128, i64 %nbytes)
  %rest = getelementptr i8, ptr %at, i64 %whole
  %left = sub i64 %nbytes, %whole
  %r = call i64 @checksum_words(ptr %rest, i64 %left, i64 %start)
  ret i64 %r
}

; Byte by byte, from a start.
define internal i64 @checksum_words(ptr %at, i64 %nbytes, i64 %start) {
  br label %next
next:
  %i = phi i64 [0, %0], [%i1, %one]
  %h = phi i64 [%start, %0], [%h2, %one]
  %done = icmp eq i64 %i, %nbytes
  br i1 %done, label %end, label %one
one:
  %p = getelementptr i8, ptr %at, i64 %i
  %byte = load i8, ptr %p
  %wide = zext i8 %byte to i64
  %x = xor i64 %h, %wide
  %h1 = mul i64 %x, -7046029254386353131
  %high = lshr i64 %h1, 29
  %h2 = xor i64 %h1, %high
  %i1 = add i64 %i, 1
  br label %next
end:
  ret i64 %h
}
"""

_PROBES = """
; Whether bytes are what they were.
define internal i1 @probe_holds(ptr %probe) {
  %now = get Probe.at, %probe
  %nbytes = get Probe.nbytes, %probe
  %held = get Probe.held, %probe
  %large = icmp eq ptr %held, null
  br i1 %large, label %sum, label %compare
sum:
  %c = call i64 @checksum(ptr %now, i64 %nbytes)
  %wanted = get Probe.checksum, %probe
  %alike = icmp eq i64 %c, %wanted
  ret i1 %alike
compare:
  %r = call i32 @memcmp(ptr %now, ptr %held, i64 %nbytes)
  %same = icmp eq i32 %r, 0
  ret i1 %same
}
""" + every(
    "@probes_hold(ptr %v) alwaysinline",
    """
  %offset = mul i64 %i, 32
  %probe = getelementptr i8, ptr %all, i64 %offset
  %ok = call i1 @probe_holds(ptr %probe)""",
    """
  %n = get Variant.probes, %v
  %all = get Variant.probe, %v""",
)

_PINS = every(
    "@pins_hold(ptr %v) alwaysinline",
    """
  %offset = mul i64 %i, 16
  %pin = getelementptr i8, ptr %all, i64 %offset
  %at = get Pin.at, %pin
  %word = get Pin.word, %pin
  %now = load i64, ptr %at
  %ok = icmp eq i64 %now, %word""",
    """
  %n = get Variant.pins, %v
  %all = get Variant.pin, %v""",
)

_KEYWORDS = every(
    "@keywords_equal(ptr %found, ptr %wanted, i64 %n)",
    """
  %p = getelementptr ptr, ptr %names, i64 %i
  %q = getelementptr ptr, ptr %wanted, i64 %i
  %a = load ptr, ptr %p
  %b = load ptr, ptr %q
  %ok = call i1 @equal(ptr %a, ptr %b)""",
    """
  %names = get Tuple.items, %found""",
)

_FITS = """
; Whether the call is one for this variant; its arrays go to %leaves.
define internal i1 @fits(ptr %v, ptr %args, i64 %n, i64 %nk, ptr %names, ptr %leaves)
  alwaysinline {
  %at = alloca ptr
  %found = alloca ptr
  %vn = get Variant.nargs, %v
  %vk = get Variant.nkw, %v
  %same_n = icmp eq i64 %vn, %n
  %same_k = icmp eq i64 %vk, %nk
  %counted = and i1 %same_n, %same_k
  br i1 %counted, label %keywords, label %no
keywords:
  %none = icmp eq i64 %nk, 0
  br i1 %none, label %values, label %named
named:
  %wanted = get Variant.kwnames, %v
  %same = call i1 @keywords_equal(ptr %names, ptr %wanted, i64 %nk)
  br i1 %same, label %values, label %no
values:
  %nodes = get Variant.nodes, %v
  store ptr %nodes, ptr %at
  store ptr %leaves, ptr %found
  %all = add i64 %n, %nk
  %ok = call i1 @match_items(ptr %at, ptr %found, ptr %args, i64 %all)
  br i1 %ok, label %pins, label %no
pins:
  %pinned = call i1 @pins_hold(ptr %v)
  br i1 %pinned, label %around, label %no
around:
  %held = get Variant.held, %v
  %objects = get Variant.objects, %v
  %inside = get Variant.inside, %v
  store ptr %inside, ptr %at
  %kept = call i1 @match_items(ptr %at, ptr %found, ptr %objects, i64 %held)
  br i1 %kept, label %probes, label %no
probes:
  %current = call i1 @probes_hold(ptr %v)
  ret i1 %current
no:
  ret i1 false
}
"""

_COUNTS = each(
    "@count_all(ptr %objects, i64 %n, ptr %change)",
    """
  %p = getelementptr ptr, ptr %objects, i64 %i
  %leaf = load ptr, ptr %p
  %x = call ptr @llvm.ptrmask.p0.i64(ptr %leaf, i64 -2)
  call void %change(ptr %x)""",
)

_DATA = each(  # where the elements of arrays lie
    "@data_of(ptr %arrays, i64 %n, ptr %buffers) alwaysinline",
    """
  %p = getelementptr ptr, ptr %arrays, i64 %i
  %a = load ptr, ptr %p
  %word = ptrtoint ptr %a to i64
  %odd = trunc i64 %word to i1
  %value = getelementptr i8, ptr %a, i64 15  ; behind the head of 16 bytes
  %fixed = select i1 %odd, ptr @nothing, ptr %a
  %held = get Array.data, %fixed
  %data = select i1 %odd, ptr %value, ptr %held
  %q = getelementptr ptr, ptr %buffers, i64 %i
  store ptr %data, ptr %q""",
)

_RUN = """
; New arrays and numbers for the results, which have a word that is odd; false, and none
; of them, when there is no memory.
define internal i1 @new_outputs(ptr %v, ptr %outs) alwaysinline {
  %n = get Variant.outputs, %v
  %all = get Variant.output, %v
  br label %next
next:
  %i = phi i64 [0, %0], [%i1, %kept]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %yes, label %one
one:
  %offset = mul i64 %i, 48
  %o = getelementptr i8, ptr %all, i64 %offset
  %q = getelementptr ptr, ptr %outs, i64 %i
  %make = get Output.make, %o
  %whole = icmp eq ptr %make, null
  br i1 %whole, label %array, label %value
value:
  %kind = get Output.kind, %o
  %x = call ptr %make(ptr %kind, i64 0)
  %odd = getelementptr i8, ptr %x, i64 1
  %lost = icmp eq ptr %x, null
  br i1 %lost, label %no, label %kept
array:
  %dtype = get Output.dtype, %o
  %ndim = get Output.ndim, %o
  %shape = get Output.shape, %o
  %nbytes = get Output.nbytes, %o
  %a = call ptr @new_array(ptr %dtype, i64 %ndim, ptr %shape, i64 %nbytes)
  %failed = icmp eq ptr %a, null
  br i1 %failed, label %no, label %kept
kept:
  %made = phi ptr [%odd, %value], [%a, %array]
  store ptr %made, ptr %q
  %i1 = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  call void @count_all(ptr %outs, i64 %i, ptr @Py_DecRef)
  ret i1 false
}

define internal void @execute(ptr %v, ptr %buffers) alwaysinline {
  %program = get Variant.program, %v
  %threads = get Variant.threads, %v
  %alone = icmp sle i64 %threads, 1
  br i1 %alone, label %one, label %many
one:
  call void %program(ptr %buffers, i64 0, i64 1, i64 0)
  ret void
many:
  call void @team_run(ptr %program, ptr %buffers, i64 %threads)
  ret void
}

; The outputs as objects of Python: numbers in the place of arrays that stand for one,
; words that are even. False, and none of them, when there is no memory.
define internal i1 @numbers(ptr %v, ptr %outs, i64 %n) alwaysinline {
  %all = get Variant.output, %v
  br label %next
next:
  %i = phi i64 [0, %0], [%i1, %one], [%i1, %even], [%i1, %turn]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %yes, label %one
one:
  %offset = mul i64 %i, 48
  %o = getelementptr i8, ptr %all, i64 %offset
  %kind = get Output.kind, %o
  %i1 = add i64 %i, 1
  %array = icmp eq ptr %kind, null
  br i1 %array, label %next, label %look
look:
  %p = getelementptr ptr, ptr %outs, i64 %i
  %a = load ptr, ptr %p
  %make = get Output.make, %o
  %whole = icmp eq ptr %make, null
  br i1 %whole, label %turn, label %even
even:
  %y = call ptr @llvm.ptrmask.p0.i64(ptr %a, i64 -2)
  store ptr %y, ptr %p
  br label %next
turn:
  %x = call ptr @PyArray_Return(ptr %a)  ; takes the array over
  store ptr %x, ptr %p
  %failed = icmp eq ptr %x, null
  br i1 %failed, label %no, label %next
yes:
  ret i1 true
no:
  call void @count_all(ptr %outs, i64 %i, ptr @Py_DecRef)
  %later = getelementptr ptr, ptr %outs, i64 %i1
  %rest = sub i64 %n, %i1
  call void @count_all(ptr %later, i64 %rest, ptr @Py_DecRef)
  ret i1 false
}

; What the function returns; takes the outputs over.
define internal ptr @packed(ptr %v, ptr %outs) alwaysinline {
  %pack = get Variant.pack, %v
  %n = get Variant.results, %v
  %made = call i1 @numbers(ptr %v, ptr %outs, i64 %n)
  br i1 %made, label %start, label %nothing
nothing:
  ret ptr null
start:
  %single = icmp eq i64 %pack, 0
  br i1 %single, label %first, label %many
first:
  %only = load ptr, ptr %outs
  ret ptr %only
many:
  %tuple = call ptr @PyTuple_New(i64 %n)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %drop, label %fill
drop:
  call void @count_all(ptr %outs, i64 %n, ptr @Py_DecRef)
  ret ptr null
fill:
  %items = get Tuple.items, %tuple
  %nbytes = mul i64 %n, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %items, ptr %outs, i64 %nbytes, i1 false)
  %as_is = icmp eq i64 %pack, 1
  br i1 %as_is, label %give, label %build
give:
  ret ptr %tuple
build:
  %packer = get Variant.packer, %v
  %result = call ptr @PyObject_CallOneArg(ptr %packer, ptr %tuple)
  call void @Py_DecRef(ptr %tuple)
  ret ptr %result
}

; Runs a variant on the arrays in %leaves; outputs and buffers go behind them. Returns
; @refused where the call is one for Python.
define internal ptr @run(ptr %v, ptr %leaves) alwaysinline {
  %n = get Variant.leaves, %v
  %m = get Variant.outputs, %v
  %outs = getelementptr ptr, ptr %leaves, i64 %n
  %buffers = getelementptr ptr, ptr %outs, i64 %m
  %may_write = call i1 @may_write(ptr %v, ptr %leaves, i64 %n, ptr %buffers)
  br i1 %may_write, label %new, label %shared
shared:
  ret ptr @refused
new:
  %made = call i1 @new_outputs(ptr %v, ptr %outs)
  br i1 %made, label %scratch, label %nothing
nothing:
  ret ptr null
scratch:
  %size = get Variant.arena, %v
  %small = icmp eq i64 %size, 0
  br i1 %small, label %fill, label %take
take:
  %block = call ptr @pool_take(i64 %size)
  %full = icmp eq ptr %block, null
  br i1 %full, label %no_memory, label %fill
no_memory:
  call void @count_all(ptr %outs, i64 %m, ptr @Py_DecRef)
  %raised = call ptr (ptr, ptr, ...) @PyErr_Format(ptr @MemoryError, ptr @no_memory,
    i64 %size)
  ret ptr null
fill:
  %arena = phi ptr [null, %scratch], [%block, %take]
  %nm = add i64 %n, %m
  call void @data_of(ptr %leaves, i64 %nm, ptr %buffers)
  %fixed = getelementptr ptr, ptr %buffers, i64 %nm
  %constants = get Variant.constants, %v
  %constant = get Variant.constant, %v
  %nbytes = mul i64 %constants, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %fixed, ptr %constant, i64 %nbytes, i1 false)
  %last = getelementptr ptr, ptr %fixed, i64 %constants
  store ptr %arena, ptr %last
  %release = get Variant.release, %v
  %held = icmp eq i64 %release, 0
  br i1 %held, label %with_lock, label %without
with_lock:
  call void @execute(ptr %v, ptr %buffers)
  br label %after
without:
  call void @count_all(ptr %leaves, i64 %n, ptr @Py_IncRef)
  %state = call ptr @PyEval_SaveThread()
  call void @execute(ptr %v, ptr %buffers)
  call void @PyEval_RestoreThread(ptr %state)
  call void @count_all(ptr %leaves, i64 %n, ptr @Py_DecRef)
  br label %after
after:
  br i1 %small, label %pack, label %check
check:
  %fault = get Variant.fault, %v
  %may = icmp sge i64 %fault, 0
  br i1 %may, label %look, label %back
look:
  %mark = getelementptr i8, ptr %arena, i64 %fault
  %byte = load i8, ptr %mark
  %failed = icmp ne i8 %byte, 0
  br i1 %failed, label %refuse, label %back
refuse:
  call void @pool_give(ptr %arena)
  call void @count_all(ptr %outs, i64 %m, ptr @Py_DecRef)
  ret ptr @refused
back:
  call void @pool_give(ptr %arena)
  br label %pack
pack:
  call void @write_arguments(ptr %v, ptr %leaves, ptr %outs, ptr %buffers)
  %result = call ptr @packed(ptr %v, ptr %outs)
  ret ptr %result
}
"""

_ENTRY = """
@refused = internal constant i8 0

; A call of a jit: %self is the tuple of a capsule with the State and what keeps it.
define ptr @entry(ptr %self, ptr %args, i64 %n, ptr %names) {
  %items = get Tuple.items, %self
  %capsule = load ptr, ptr %items
  %state = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  %contexts = get State.contexts, %state
  %open = load i64, ptr %contexts
  %inside = icmp ne i64 %open, 0
  br i1 %inside, label %ask, label %look
look:
  %table = get State.table, %state
  %count = get Table.count, %table
  %words = get Table.words, %table
  %variants = getelementptr i8, ptr %table, i64 16
  %leaves = alloca ptr, i64 %words, align 16
  %plain = icmp eq ptr %names, null
  br i1 %plain, label %next, label %named
named:
  %given = get Tuple.size, %names
  br label %next
next:
  %nk = phi i64 [0, %look], [%given, %named], [%nk, %later]
  %i = phi i64 [0, %look], [0, %named], [%i1, %later]
  %done = icmp eq i64 %i, %count
  br i1 %done, label %python, label %try
try:
  %p = getelementptr ptr, ptr %variants, i64 %i
  %v = load ptr, ptr %p
  %ok = call i1 @fits(ptr %v, ptr %args, i64 %n, i64 %nk, ptr %names, ptr %leaves)
  br i1 %ok, label %hit, label %later
later:
  %i1 = add i64 %i, 1
  br label %next
hit:
  %first = icmp eq i64 %i, 0
  br i1 %first, label %go, label %forward
forward:                                ; what is called often moves to the front
  %i0 = sub i64 %i, 1
  %q = getelementptr ptr, ptr %variants, i64 %i0
  %before = load ptr, ptr %q
  store ptr %v, ptr %q
  store ptr %before, ptr %p
  br label %go
go:
  %used = get Variant.used, %v
  %now = load i64, ptr @clock
  store i64 %now, ptr %used
  %owner = get Variant.owner, %v
  call void @Py_IncRef(ptr %owner)
  %result = call ptr @run(ptr %v, ptr %leaves)
  call void @Py_DecRef(ptr %owner)
  %again = icmp eq ptr %result, @refused
  br i1 %again, label %python, label %give
give:
  ret ptr %result
python:
  %fallback = get State.fallback, %state
  %slow = call ptr @PyObject_Vectorcall(ptr %fallback, ptr %args, i64 %n, ptr %names)
  ret ptr %slow
ask:
  %asking = get State.asking, %state
  %said = call ptr @PyObject_Vectorcall(ptr %asking, ptr %args, i64 %n, ptr %names)
  ret ptr %said
}
"""


ENTERING = "\n".join((_CHECKSUM, _PROBES, _PINS, _KEYWORDS, _FITS, _COUNTS, _ENTRY))
"""``entry``, for the variants that ``@run(ptr variant, ptr leaves)`` runs; it returns
``@refused`` where Python has to."""
ENTRY_IR = expand(
    "\n".join((ENTERING_DECLARED, _DECLARED, GUARDS, ENTERING, _DATA, WRITES_IR, _RUN))
)
"""The entry of machine code; calls ``new_array``, ``pool_take``, ``pool_give`` and
``team_run``."""
