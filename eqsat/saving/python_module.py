"""A program as a Python module that imports NumPy alone, and its constants beside it.

The text is that of the NumPy backend. Around it stands a function with the calling
convention of the one that was traced.
"""

from __future__ import annotations

import ast
import keyword
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.kernels import Program, backend_named
from eqsat.saved import ARRAY, VALUE, SavedArgument, SavedCalls, Tree
from eqsat.saving.calls import calls_of, made_by
from eqsat.saving.function_text import FunctionTexts, literal
from eqsat.support import SavedProgramError, may_overlap
from eqsat.terms import BF16, HALF
from eqsat.trace import Trace

_SPECIAL = ("erf", "erfc")
"""Functions of SciPy's that Python's own ``math`` has too."""
_START = '''\
"""{name}: a program that {maker} wrote; it needs NumPy alone.

Call ``run``.{kept}"""

import hashlib
import math
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import numpy as np

'''
_SPECIAL_TEXT = '''\
try:
    from scipy import special
except ImportError:

    class special:
        """What Python's own library has of SciPy's functions, one by one."""

'''
_ONE_TEXT = """\
        @staticmethod
        def {name}(x, out):
            out[...] = np.vectorize(math.{name}, otypes=[float])(x)

"""
_KEPT_TEXT = """\
_eqsat_file = Path(__file__).with_name({file!r})
try:
    with open(_eqsat_file, "rb") as _eqsat_opened:
        _eqsat_kept = np.load(_eqsat_opened, allow_pickle=False)
{lines}
except (FileNotFoundError, PermissionError):
    raise
except Exception as _eqsat_error:
    raise ValueError(
        f"{{_eqsat_file}} is damaged, or is not of this module; save both again "
        f"({{type(_eqsat_error).__name__}}: {{_eqsat_error}})"
    ) from _eqsat_error
"""
_HELPERS = '''\
def _eqsat_array(where, value, shape, dtype, digest=""):
    """``value``, which must be an array of that shape and dtype; with a digest, one
    with those elements, or ``...``."""
    if digest and value is ...:
        return None
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"argument {where} is {value!r:.60}, expected an array")
    if value.dtype != dtype or value.shape != shape:
        actual = f"{value.shape} of {value.dtype}"
        raise TypeError(f"argument {where} is {actual}, expected {shape} of {dtype}")
    if digest:
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        if hashlib.sha256(flat.data).hexdigest() != digest:
            raise ValueError(
                f"argument {where} has other elements than when the program was made, "
                "which made it a constant; give ... to use those"
            )
    return np.asarray(value)


def _eqsat_keys(where, value, keys):
    """``value``, a container with just these keys."""
    found = list(value) if isinstance(value, dict) else list(range(len(value)))
    if set(found) != set(keys):
        raise TypeError(f"argument {where} has {found}, expected {keys}")
    return value


def _eqsat_apart(where, written, others):
    """Refuse an array that is written to where its elements share memory with each
    other, or with one of ``others``."""
    if _eqsat_overlaps(written):
        raise ValueError(
            f"elements of argument {where} share memory, and it is written to; "
            "pass a copy"
        )
    if any(np.may_share_memory(written, other) for other in others):
        raise ValueError("arguments share memory, and one of them is written to")


def _eqsat_value(where, value, expected):
    """Refuse a number or a text other than that of the program."""
    if type(value) is not type(expected) or repr(value) != repr(expected):
        raise TypeError(f"argument {where} is {value!r:.60}, expected {expected!r}")
'''
_OWN = set(
    "np hashlib math OrderedDict Path SimpleNamespace special program run _eqsat_array "
    "_eqsat_keys _eqsat_value _eqsat_apart _eqsat_overlaps _eqsat_kept "
    "_eqsat_file _eqsat_opened _eqsat_error".split()
)
"""Names that the module has in any case."""


def save_module(
    path: str | os.PathLike[str], trace: Trace, program: Program, name: str
) -> None:
    """Write the module and its constants, as :meth:`eqsat.Lowered.save_module` says."""
    calls = calls_of(trace, name)
    module = Path(path)
    is_name = module.stem.isidentifier() and not keyword.iskeyword(module.stem)
    if module.suffix != ".py" or not is_name:
        raise SavedProgramError(
            f"{path}: a module cannot be imported from a file of this name; expected "
            "an identifier and .py"
        )
    text, arrays = module_of(calls, program, module.with_suffix(".npz").name)
    if arrays:
        np.savez(module.with_suffix(".npz"), allow_pickle=False, **arrays)
    module.write_text(text, encoding="utf-8")


def module_of(
    calls: SavedCalls, program: Program, kept: str
) -> tuple[str, dict[str, np.ndarray[Any, Any]]]:
    """The text of the module, and the arrays of the file ``kept``."""
    made: Any = backend_named("numpy").lower(program, None)  # type: ignore[arg-type]
    scope = made.run.__globals__
    tree = ast.parse(made.source)
    own = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    named = {n: v for n, v in scope.items() if n not in own | {"np", "__builtins__"}}
    arrays = {n: v for n, v in named.items() if isinstance(v, np.ndarray)}
    terms = [t for k in program.kernels for t in (*k.term.args, *k.results)]
    types = {*(t.dtype for t in (*program.inputs, *terms))}
    if BF16 in types or any(a.dtype == BF16 for a in arrays.values()):
        raise SavedProgramError(
            "the program cannot be a module of NumPy alone: it computes with bfloat16"
        )
    functions = FunctionTexts({*_OWN, *named, *own}, halves=bool(types & set(HALF)))
    special = ""
    for n, value in named.items():
        if n == "special":
            special = _special(tree)
        elif n not in arrays:
            functions.taken.discard(n)
            functions.define(n, value)
    if calls.writes:
        functions.taken.discard("_eqsat_overlaps")
        functions.define("_eqsat_overlaps", may_overlap)
    said = f" Its constants lie in ``{kept}``." if arrays else ""
    name = calls.name if calls.name.isidentifier() else "a function"
    start = _START.format(name=name, maker=made_by(), kept=said)
    lines = "\n".join(f"        {n} = _eqsat_kept[{n!r}]" for n in arrays)
    load = _KEPT_TEXT.format(file=kept, lines=lines) if arrays else ""
    body = made.source.removeprefix("import numpy as np\n").strip("\n")
    parts = [start + special + load, *functions.texts, body, _HELPERS]
    parts.append(_function(calls))
    return "\n\n\n".join(p.strip("\n") for p in parts) + "\n", arrays


def _special(tree: ast.Module) -> str:
    """What stands for SciPy's functions. Raises :class:`SavedProgramError` for those
    that SciPy alone has."""
    names = {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute)
        and isinstance(n.value, ast.Name)
        and n.value.id == "special"
    }
    if lacking := sorted(names.difference(_SPECIAL)):
        raise SavedProgramError(
            "the program cannot be a module of NumPy alone: it calls "
            f"scipy.special.{', '.join(lacking)}; Lowered.save writes machine code"
        )
    texts = (_ONE_TEXT.format(name=n) for n in sorted(names))
    return _SPECIAL_TEXT + "".join(texts) + "\n"


# -- the function ----------------------------------------------------------------------


def _function(calls: SavedCalls) -> str:
    """The function that is called."""
    positional = [a.name for a in calls.positional]
    named = [a.name for a in calls.named]
    params = [*positional, *(["*", *named] if named else [])]
    for p in (*positional, *named):
        if not p.isidentifier():
            raise SavedProgramError(
                f"{calls.name!r} cannot be a module: its argument {p} has no name"
            )
        if p in _OWN:
            raise SavedProgramError(
                f"{calls.name!r} cannot be a module: its argument {p} is called as "
                "what the module uses; rename it"
            )
    lines = [repr(_title(calls))]
    arguments = iter(calls.arguments)
    given: list[str] = []
    for a in (*calls.positional, *calls.named):
        own = [next(arguments) for _ in range(a.tree.arrays)]
        reads = [*_read(a.tree, a.name, iter(own), given)]
        if own and a.tree.kind != ARRAY and all(x.digest for x in own):
            reads = [f"if {a.name} is not ...:", *(f"    {line}" for line in reads)]
        lines += reads
    for i in calls.writes:
        others = [n for n in given if n != given[i]]
        where = repr(calls.inputs[i].path)
        lines.append(f"_eqsat_apart({where}, {given[i]}, [{', '.join(others)}])")
    count = len(calls.results)
    results = [f"_eqsat_r{i}" for i in range(count)]
    lines.append('with np.errstate(all="ignore"):')
    into = f"{', '.join(results)}{',' if count == 1 else ''} = " if count else ""
    lines.append(f"    {into}program({', '.join(given)})")
    first = count - len(calls.writes)
    for i, n in zip(calls.writes, results[first:], strict=True):
        lines.append(f"{given[i]}[...] = {n}")
    values = [
        f"{n}[()]" if r.is_number else n
        for n, r in zip(results[:first], calls.results, strict=False)
    ]
    for k, i in calls.returned:
        values[k] = given[i]
    lines.append(f"return {_built(calls.returns, iter(values))}")
    body = "\n".join(f"    {line}" for line in lines)
    return f"def run({', '.join(params)}):\n{body}"


def _title(calls: SavedCalls) -> str:
    inputs = ", ".join(f"{a.path}: {a.type}" for a in calls.arguments)
    results = ", ".join(str(r.type) for r in calls.results)
    return f"{inputs or 'nothing'} to {results or 'nothing'}."


def _read(
    tree: Tree, value: str, arguments: Iterator[SavedArgument], given: list[str]
) -> Iterator[str]:
    """Lines that check an argument, the expression ``value``. The names of the inputs
    in it go to ``given``."""
    if tree.kind == ARRAY:
        a = next(arguments)
        of = f"{a.type.shape}, {a.type.dtype!r}"
        if a.digest:
            yield f"_eqsat_array({a.path!r}, {value}, {of}, {a.digest!r})"
        else:
            given.append(f"_eqsat_a{len(given)}")
            yield f"{given[-1]} = _eqsat_array({a.path!r}, {value}, {of})"
        return
    if tree.kind == VALUE:
        fixed = literal(tree.keys[0].value, value)
        yield f"_eqsat_value({value!r}, {value}, {fixed})"
        return
    keys = [k.value for k in tree.keys]
    if not tree.has_fields:
        yield f"_eqsat_keys({value!r}, {value}, {literal(keys, value)})"
    for key, child in zip(keys, tree.children, strict=True):
        yield from _read(child, f"{value}{tree.step(key)}", arguments, given)


def _built(tree: Tree, values: Iterator[str]) -> str:
    """The expression of what is returned."""
    if tree.kind == ARRAY:
        return next(values)
    if tree.kind == VALUE:
        return literal(tree.keys[0].value, "the result")
    parts = [_built(c, values) for c in tree.children]
    keys = [k.value for k in tree.keys]
    if tree.kind == "list":
        return f"[{', '.join(parts)}]"
    if tree.kind == "tuple":
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if tree.kind == "SimpleNamespace":
        fields = (f"{k}={p}" for k, p in zip(keys, parts, strict=True))
        return f"SimpleNamespace({', '.join(fields)})"
    if tree.kind not in ("dict", "OrderedDict"):
        raise SavedProgramError(
            f"the result is of {tree.name}, which a module of NumPy alone does not "
            "have; return a dict or a tuple"
        )
    pairs = (f"{literal(k, 'a key')}: {p}" for k, p in zip(keys, parts, strict=True))
    text = f"{{{', '.join(pairs)}}}"
    return f"OrderedDict({text})" if tree.kind == "OrderedDict" else text
