"""LLVM IR of the entry of MLX's arrays: guards over what arrays are made of, and the
call of the function that records a program.

The rest is the native backend's entry. ``get`` is its ``expand``'s.
"""

from __future__ import annotations

import ctypes
import functools

from ..native.machine import LoadedObject, compiled, expand, host, load
from ..native.runtime import (
    ENTERING,
    ENTERING_DECLARED,
    ENTERING_PYTHON,
    TYPES,
    guards,
    python_imports,
)
from .array_struct import HELD, LAYOUT, watched

_DECLARED = """
@watched = external global i8
declare i8 @is_tracer(ptr)
"""

_ARRAYS = f"""
define internal i1 @match_array(ptr %node, ptr %x) {{
  %type = get Object.type, %x
  %wanted = get Node.object, %node
  %is_array = icmp eq ptr %type, %wanted
  br i1 %is_array, label %instance, label %no
instance:
  %held = get Instance.held, %x
  %known = icmp eq i64 %held, {HELD}
  br i1 %known, label %described, label %no
described:
  %d = get Instance.description, %x
  %none = icmp eq ptr %d, null
  br i1 %none, label %no, label %typed
typed:
  %number = get Description.dtype, %d
  %need = get Node.need, %node
  %wide = sext i32 %number to i64
  %same = icmp eq i64 %wide, %need
  br i1 %same, label %ranked, label %no
ranked:
  %start = get Description.shape, %d
  %end = get Description.shape_end, %d
  %from = ptrtoint ptr %start to i64
  %to = ptrtoint ptr %end to i64
  %nbytes = sub i64 %to, %from
  %count = get Node.count, %node
  %wants = mul i64 %count, 4
  %sized = icmp eq i64 %nbytes, %wants
  br i1 %sized, label %shaped, label %no
shaped:
  %sizes = get Node.data, %node
  %r = call i32 @memcmp(ptr %start, ptr %sizes, i64 %nbytes)
  %ok = icmp eq i32 %r, 0
  ret i1 %ok
no:
  ret i1 false
}}
"""

_RUN = """
; Records a variant over the arrays in %leaves: inside a transformation by the function
; that MLX can transform.
define internal ptr @run(ptr %v, ptr %leaves) {
  %n = get Recorder.leaves, %v
  call void @count_all(ptr %leaves, i64 %n, ptr @Py_IncRef)
  %followed = call i8 @is_tracer(ptr @watched)
  %bit = and i8 %followed, 1
  %is_plain = icmp eq i8 %bit, 0
  %plain = get Recorder.plain, %v
  %traced = get Recorder.traced, %v
  %f = select i1 %is_plain, ptr %plain, ptr %traced
  %made = call ptr @PyObject_Vectorcall(ptr %f, ptr %leaves, i64 %n, ptr null)
  call void @count_all(ptr %leaves, i64 %n, ptr @Py_DecRef)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %nothing, label %pack
nothing:
  ret ptr null
pack:
  %how = get Recorder.pack, %v
  switch i64 %how, label %build [ i64 0, label %first i64 1, label %give ]
first:
  %items = get Tuple.items, %made
  %only = load ptr, ptr %items
  call void @Py_IncRef(ptr %only)
  call void @Py_DecRef(ptr %made)
  ret ptr %only
give:
  ret ptr %made
build:
  %packer = get Recorder.packer, %v
  %result = call ptr @PyObject_CallOneArg(ptr %packer, ptr %made)
  call void @Py_DecRef(ptr %made)
  ret ptr %result
}
"""

_PARTS = (ENTERING_DECLARED, _DECLARED, guards(_ARRAYS), ENTERING, _RUN)
IR = expand("\n".join(_PARTS), LAYOUT)
"""``entry``."""


@functools.cache
def library() -> LoadedObject:
    """The function ``entry``, compiled once, where :func:`.array_struct.is_known`."""
    seen = watched()
    assert seen is not None
    function = ctypes.cast(seen.function, ctypes.c_void_p).value
    assert function is not None
    imports = python_imports(ENTERING_PYTHON, TYPES)
    imports |= {"is_tracer": function, "watched": seen.place}
    made = load(compiled(IR, host()), ("entry",), imports)
    # Entries may be called while the interpreter goes down.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object((made, seen)))
    return made
