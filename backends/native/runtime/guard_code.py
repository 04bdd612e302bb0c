"""LLVM IR of the guards: whether an argument is what a program was made for.

They look at objects and run no Python code.
"""

from __future__ import annotations

from ..machine import WRITEABLE, every

KINDS = (
    *("array", "same", "float", "equal", "tuple", "list", "dict", "constant"),
    *("record", "instance", "scalar", "ordered", "fields", "slots", "both"),
    *("names", "attributes", "absent"),
)
"""Kinds of nodes, by their number."""

_VALUES = """
; Two strings, or two integers, that are equal.
define internal i1 @equal(ptr %a, ptr %b) {
  %is = icmp eq ptr %a, %b
  br i1 %is, label %yes, label %types
types:
  %ta = get Object.type, %a
  %tb = get Object.type, %b
  %one_type = icmp eq ptr %ta, %tb
  br i1 %one_type, label %compare, label %no
compare:
  %r = call i32 @PyObject_RichCompareBool(ptr %a, ptr %b, i32 2)
  %same = icmp eq i32 %r, 1
  ret i1 %same
yes:
  ret i1 true
no:
  ret i1 false
}
"""

_WORDS = every(
    "@equal_words(ptr %a, ptr %b, i64 %n) alwaysinline",
    """
  %pa = getelementptr i64, ptr %a, i64 %i
  %pb = getelementptr i64, ptr %b, i64 %i
  %va = load i64, ptr %pa
  %vb = load i64, ptr %pb
  %ok = icmp eq i64 %va, %vb""",
)

_ARRAYS = f"""
; One element type: the same object, or builtin types of one number, in native order.
define internal i1 @is_dtype(ptr %d, ptr %wanted) alwaysinline {{
  %is = icmp eq ptr %d, %wanted
  br i1 %is, label %yes, label %numbers
numbers:
  %n = get Dtype.number, %d
  %w = get Dtype.number, %wanted
  %same = icmp eq i32 %n, %w
  br i1 %same, label %order, label %no
order:
  %o = get Dtype.byteorder, %d
  %p = get Dtype.byteorder, %wanted
  %native = icmp eq i8 %o, %p
  ret i1 %native
yes:
  ret i1 true
no:
  ret i1 false
}}

; Whether somebody may write to what the array or an array that it is a view of shows.
define internal i1 @is_written(ptr %array) {{
  br label %look
look:
  %a = phi ptr [%array, %0], [%base, %up]
  %flags = get Array.flags, %a
  %bit = and i32 %flags, {WRITEABLE}
  %writeable = icmp ne i32 %bit, 0
  br i1 %writeable, label %yes, label %behind
behind:
  %base = get Array.base, %a
  %last = icmp eq ptr %base, null
  br i1 %last, label %no, label %typed
typed:
  %t = get Object.type, %base
  %kind = call i32 @PyType_IsSubtype(ptr %t, ptr @PyArray_Type)
  %is_array = icmp ne i32 %kind, 0
  br i1 %is_array, label %up, label %no
up:
  br label %look
yes:
  ret i1 true
no:
  ret i1 false
}}

define internal i1 @match_array(ptr %node, ptr %a) alwaysinline {{
  %type = get Object.type, %a
  %is_array = icmp eq ptr %type, @PyArray_Type
  br i1 %is_array, label %dtype, label %other
other:
  %is_map = icmp eq ptr %type, @MemoryMap_Type
  br i1 %is_map, label %dtype, label %no
dtype:
  %d = get Array.dtype, %a
  %wanted = get Node.object, %node
  %typed = call i1 @is_dtype(ptr %d, ptr %wanted)
  br i1 %typed, label %rank, label %no
rank:
  %ndim32 = get Array.ndim, %a
  %ndim = zext i32 %ndim32 to i64
  %count = get Node.count, %node
  %ranked = icmp eq i64 %ndim, %count
  br i1 %ranked, label %layout, label %no
layout:
  %flags32 = get Array.flags, %a
  %flags = zext i32 %flags32 to i64
  %need = get Node.need, %node
  %has = and i64 %flags, %need
  %laid = icmp eq i64 %has, %need
  br i1 %laid, label %shape, label %no
shape:
  %dims = get Array.shape, %a
  %sizes = get Node.data, %node
  %shaped = call i1 @equal_words(ptr %dims, ptr %sizes, i64 %ndim)
  br i1 %shaped, label %place, label %no
place:
  %data = get Array.data, %a
  %address = ptrtoint ptr %data to i64
  %mask = get Node.mask, %node
  %off = and i64 %address, %mask
  %aligned = icmp eq i64 %off, 0
  br i1 %aligned, label %strides, label %no
strides:
  %steps = get Node.strides, %node
  %any = icmp eq ptr %steps, null
  br i1 %any, label %thawed, label %compare
compare:
  %strided = get Array.strides, %a
  %stepped = call i1 @equal_words(ptr %strided, ptr %steps, i64 %ndim)
  br i1 %stepped, label %thawed, label %no
thawed:
  %must = get Node.thawed, %node
  %free = icmp eq i64 %must, 0
  br i1 %free, label %yes, label %written
written:
  %w = call i1 @is_written(ptr %a)
  ret i1 %w
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

_CONSTANT = (
    every(
        "@are_frozen(ptr %chain, i64 %n)",
        f"""
  %p = getelementptr ptr, ptr %chain, i64 %i
  %x = load ptr, ptr %p
  %flags = get Array.flags, %x
  %bit = and i32 %flags, {WRITEABLE}
  %ok = icmp eq i32 %bit, 0""",
    )
    + """
; The very array, and it and all that it is a view of are still read-only.
define internal i1 @match_constant(ptr %node, ptr %a) alwaysinline {
  %wanted = get Node.object, %node
  %count = get Node.count, %node
  %chain = get Node.data, %node
  %is = icmp eq ptr %a, %wanted
  br i1 %is, label %frozen, label %no
frozen:
  %ok = call i1 @are_frozen(ptr %chain, i64 %count)
  ret i1 %ok
no:
  ret i1 false
}
"""
)

_ITEMS = every(
    "@match_items(ptr %at, ptr %found, ptr %items, i64 %n)",
    """
  %p = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %p
  %ok = call i1 @match(ptr %at, ptr %found, ptr %item)""",
)

_MEMBERS = every(
    "@match_members(ptr %at, ptr %found, ptr %x, ptr %offsets, i64 %n) alwaysinline",
    """
  %p = getelementptr i64, ptr %offsets, i64 %i
  %offset = load i64, ptr %p
  %q = getelementptr i8, ptr %x, i64 %offset
  %member = load ptr, ptr %q
  %ok = call i1 @match_set(ptr %at, ptr %found, ptr %member)""",
)

_NAMES = (
    every(
        "@match_each(ptr %at, ptr %found, ptr %dict, ptr %keys, i64 %n)",
        """
  %p = getelementptr ptr, ptr %keys, i64 %i
  %key = load ptr, ptr %p
  %value = call ptr @PyDict_GetItem(ptr %dict, ptr %key)
  %ok = call i1 @match_named(ptr %at, ptr %found, ptr %value)""",
    )
    + """
; Whether the keys of a dictionary stand for what they did: one node for each follows.
; They do for as long as the dictionary has the version that it had then.
define internal i1 @match_names(ptr %node, ptr %at, ptr %found, ptr %dict)
  alwaysinline {
  %keys = get Node.data, %node
  %n = get Node.count, %node
  %known = get Node.mask, %node
  %versions = get Node.need, %node
  %version = get Dict.version, %dict
  %same = icmp eq i64 %version, %known
  br i1 %same, label %skip, label %look
skip:
  %nodes = load ptr, ptr %at
  %nbytes = mul i64 %n, 64
  %after = getelementptr i8, ptr %nodes, i64 %nbytes
  store ptr %after, ptr %at
  ret i1 true
look:
  %ok = call i1 @match_each(ptr %at, ptr %found, ptr %dict, ptr %keys, i64 %n)
  br i1 %ok, label %note, label %no
note:
  %kept = and i64 %version, %versions
  %place = getelementptr i8, ptr %node, i64 40  ; Node.mask
  store i64 %kept, ptr %place
  ret i1 true
no:
  ret i1 false
}
"""
)

_CONTAINERS = """
; As match_set, of a name that may have to be absent.
define internal i1 @match_named(ptr %at, ptr %found, ptr %x) alwaysinline {
  %missing = icmp eq ptr %x, null
  br i1 %missing, label %absent, label %there
there:
  %ok = call i1 @match(ptr %at, ptr %found, ptr %x)
  ret i1 %ok
absent:
  %node = load ptr, ptr %at
  %after = getelementptr i8, ptr %node, i64 64
  store ptr %after, ptr %at
  %kind = get Node.kind, %node
  %wanted = icmp eq i64 %kind, 17
  ret i1 %wanted
}

; As match, of what may be missing.
define internal i1 @match_set(ptr %at, ptr %found, ptr %x) alwaysinline {
  %missing = icmp eq ptr %x, null
  br i1 %missing, label %no, label %there
there:
  %ok = call i1 @match(ptr %at, ptr %found, ptr %x)
  ret i1 %ok
no:
  ret i1 false
}

; The same keys in the order of an OrderedDict, whose links tell it.
define internal i1 @match_ordered(ptr %at, ptr %found, ptr %dict, ptr %keys, i64 %n) {
  %size = call i64 @PyDict_Size(ptr %dict)
  %sized = icmp eq i64 %size, %n
  br i1 %sized, label %start, label %no
start:
  %first = get Ordered.first, %dict
  br label %next
next:
  %i = phi i64 [0, %start], [%i1, %entry]
  %link = phi ptr [%first, %start], [%after, %entry]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %yes, label %one
one:
  %last = icmp eq ptr %link, null
  br i1 %last, label %no, label %named
named:
  %p = getelementptr ptr, ptr %keys, i64 %i
  %wanted = load ptr, ptr %p
  %k = get Link.key, %link
  %same = call i1 @equal(ptr %k, ptr %wanted)
  br i1 %same, label %value, label %no
value:
  %v = call ptr @PyDict_GetItem(ptr %dict, ptr %wanted)
  %after = get Link.next, %link
  %i1 = add i64 %i, 1
  br label %entry
entry:
  %ok = call i1 @match_set(ptr %at, ptr %found, ptr %v)
  br i1 %ok, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; The same keys in the same order.
define internal i1 @match_dict(ptr %at, ptr %found, ptr %dict, ptr %keys, i64 %n) {
  %where = alloca i64
  %key = alloca ptr
  %value = alloca ptr
  store i64 0, ptr %where
  %size = call i64 @PyDict_Size(ptr %dict)
  %sized = icmp eq i64 %size, %n
  br i1 %sized, label %next, label %no
next:
  %i = phi i64 [0, %0], [%i1, %entry]
  %done = icmp eq i64 %i, %n
  br i1 %done, label %yes, label %one
one:
  %more = call i32 @PyDict_Next(ptr %dict, ptr %where, ptr %key, ptr %value)
  %is_there = icmp ne i32 %more, 0
  br i1 %is_there, label %named, label %no
named:
  %p = getelementptr ptr, ptr %keys, i64 %i
  %wanted = load ptr, ptr %p
  %k = load ptr, ptr %key
  %same = call i1 @equal(ptr %k, ptr %wanted)
  br i1 %same, label %entry, label %no
entry:
  %v = load ptr, ptr %value
  %i1 = add i64 %i, 1
  %ok = call i1 @match(ptr %at, ptr %found, ptr %v)
  br i1 %ok, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; One value against the node at %at and those that follow it. Moves %at behind them, and
; %found behind the arrays that it stores there; a scalar as the odd address behind its.
define internal i1 @match(ptr %at, ptr %found, ptr %x) {
  %node = load ptr, ptr %at
  %after = getelementptr i8, ptr %node, i64 64
  store ptr %after, ptr %at
  %kind = get Node.kind, %node
  %object = get Node.object, %node
  %data = get Node.data, %node
  %count = get Node.count, %node
  %type = get Object.type, %x
  switch i64 %kind, label %no [
    i64 0, label %array i64 1, label %same i64 2, label %float i64 3, label %equal
    i64 4, label %tuple i64 5, label %list i64 6, label %dict i64 7, label %constant
    i64 8, label %record i64 9, label %instance i64 10, label %scalar
    i64 11, label %ordered i64 12, label %fields i64 13, label %slots
    i64 14, label %both i64 15, label %names i64 16, label %object_names ]
array:
  %fits = call i1 @match_array(ptr %node, ptr %x)
  br i1 %fits, label %keep, label %no
scalar:
  %is_scalar = icmp eq ptr %type, %object
  %marked = getelementptr i8, ptr %x, i64 1
  br i1 %is_scalar, label %keep, label %no
keep:
  %leaf = phi ptr [%x, %array], [%marked, %scalar]
  %slot = load ptr, ptr %found
  store ptr %leaf, ptr %slot
  %next = getelementptr ptr, ptr %slot, i64 1
  store ptr %next, ptr %found
  ret i1 true
same:
  %is = icmp eq ptr %x, %object
  ret i1 %is
float:
  %is_float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is_float, label %bits, label %no
bits:
  %xb = get Float.bits, %x
  %ob = get Float.bits, %object
  %same_bits = icmp eq i64 %xb, %ob
  ret i1 %same_bits
equal:
  %e = call i1 @equal(ptr %x, ptr %object)
  ret i1 %e
tuple:
  %is_tuple = icmp eq ptr %type, %object
  %tsize = get Tuple.size, %x
  %tfits = icmp eq i64 %tsize, %count
  %tok = select i1 %is_tuple, i1 %tfits, i1 false
  br i1 %tok, label %titems, label %no
titems:
  %tdata = get Tuple.items, %x
  %t = call i1 @match_items(ptr %at, ptr %found, ptr %tdata, i64 %count)
  ret i1 %t
list:
  %is_list = icmp eq ptr %type, @PyList_Type
  br i1 %is_list, label %lsized, label %no
lsized:
  %lsize = get List.size, %x
  %lfits = icmp eq i64 %lsize, %count
  br i1 %lfits, label %litems, label %no
litems:
  %ldata = get List.items, %x
  %l = call i1 @match_items(ptr %at, ptr %found, ptr %ldata, i64 %count)
  ret i1 %l
dict:
  %is_dict = icmp eq ptr %type, %object
  br i1 %is_dict, label %entries, label %no
entries:
  %d = call i1 @match_dict(ptr %at, ptr %found, ptr %x, ptr %data, i64 %count)
  ret i1 %d
ordered:
  %is_ordered = icmp eq ptr %type, %object
  br i1 %is_ordered, label %linked, label %no
linked:
  %o = call i1 @match_ordered(ptr %at, ptr %found, ptr %x, ptr %data, i64 %count)
  ret i1 %o
fields:
  %is_of = icmp eq ptr %type, %object
  br i1 %is_of, label %members, label %no
slots:
  %is_this = icmp eq ptr %x, %object
  br i1 %is_this, label %members, label %no
members:
  %m = call i1 @match_members(ptr %at, ptr %found, ptr %x, ptr %data, i64 %count)
  ret i1 %m
both:
  %b1 = call i1 @match(ptr %at, ptr %found, ptr %x)
  br i1 %b1, label %second, label %no
second:
  %b2 = call i1 @match(ptr %at, ptr %found, ptr %x)
  ret i1 %b2
names:
  %is_space = icmp eq ptr %x, %object
  br i1 %is_space, label %named, label %no
named:
  %nm = call i1 @match_names(ptr %node, ptr %at, ptr %found, ptr %x)
  ret i1 %nm
object_names:
  %own = call ptr @PyObject_GenericGetDict(ptr %x)
  %without = icmp eq ptr %own, null
  br i1 %without, label %forget, label %named_in
named_in:
  %on = call i1 @match_names(ptr %node, ptr %at, ptr %found, ptr %own)
  call void @Py_DecRef(ptr %own)
  ret i1 %on
constant:
  %c = call i1 @match_constant(ptr %node, ptr %x)
  ret i1 %c
record:
  %is_record = icmp eq ptr %type, %object
  br i1 %is_record, label %attributes, label %no
instance:
  %is_it = icmp eq ptr %x, %object
  br i1 %is_it, label %attributes, label %no
attributes:
  %held = call ptr @PyObject_GenericGetDict(ptr %x)
  %failed = icmp eq ptr %held, null
  br i1 %failed, label %forget, label %look
forget:
  call void @PyErr_Clear()
  ret i1 false
look:
  %a = call i1 @match_dict(ptr %at, ptr %found, ptr %held, ptr %data, i64 %count)
  call void @Py_DecRef(ptr %held)
  ret i1 %a
no:
  ret i1 false
}
"""


def guards(arrays: str) -> str:
    """``match``, ``match_items`` and ``equal``, with the ``match_array`` of the text
    ``arrays``: ``i1 (ptr node, ptr object)``."""
    return (
        _VALUES + _WORDS + arrays + _CONSTANT + _ITEMS + _MEMBERS + _NAMES + _CONTAINERS
    )


GUARDS = guards(_ARRAYS)
"""The same for arrays of NumPy."""
