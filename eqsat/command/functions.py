"""Functions of files, and the arguments that a command line describes."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from eqsat.support import EqsatError

if TYPE_CHECKING:
    from eqsat.trace import Spec

DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
"""Short names of dtypes on the command line."""

_SPEC = re.compile(r"(?:(?P<name>.+)=)?(?P<shape>[^:=]*):(?P<dtype>\w+)")
_SHAPE = re.compile(r"\d+(x\d+)*")


def is_function(text: str) -> bool:
    """Whether a text is like ``FILE.py:FUNC``."""
    return re.fullmatch(r".+\.py:\w+", text) is not None


def find_function(target: str) -> Callable[..., Any]:
    """The function that ``FILE.py:FUNC`` names, or ``click.BadParameter``."""
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name.isidentifier():
        raise _bad_target(
            f"{target!r}: expected FILE.py:FUNC, such as model.py:forward"
        )
    path = Path(file)
    if not path.is_file():
        raise _bad_target(f"there is no file {file!r}; expected FILE.py:FUNC")
    module = _load(path)
    function = getattr(module, name, None)
    if not callable(function):
        raise _bad_target(_not_there(module, path, name))
    found: Callable[..., Any] = function
    return found


def _bad_target(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="FILE.py:FUNC")


def _load(path: Path) -> ModuleType:
    """Run a file as a module that, like a script, imports from its own folder."""
    name = "eqsat_explained"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise _bad_target(f"{str(path)!r} is not a Python file; expected FILE.py:FUNC")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise EqsatError(
            f"{path} does not load: {type(error).__name__}: {error}"
        ) from error
    return module


def _not_there(module: ModuleType, path: Path, name: str) -> str:
    own = [
        n
        for n, value in vars(module).items()
        if callable(value) and not n.startswith("_") and not inspect.isclass(value)
    ]
    near = difflib.get_close_matches(name, own, n=3)
    some = f"it has {', '.join(sorted(own)[:8])}" if own else "it defines none"
    hint = f"did you mean {' or '.join(near)}?" if near else some
    return f"{path} has no function {name!r}; {hint}"


def parse_spec(text: str) -> tuple[str | None, Spec]:
    """The name, or None, and the argument that ``[NAME=]SHAPE:DTYPE`` describes."""
    from eqsat.trace import Spec

    match = _SPEC.fullmatch(text)
    if match is None:
        raise _bad_spec(text, "")
    name, shape, short = match["name"], match["shape"], match["dtype"]
    dtype = DTYPES.get(short, short)
    if dtype not in DTYPES.values():
        raise _bad_spec(
            text, f"{short!r} is not a dtype; known are {', '.join(DTYPES)}"
        )
    if shape != "scalar" and not _SHAPE.fullmatch(shape):
        raise _bad_spec(text, f"{shape!r} is not a shape")
    sizes = () if shape == "scalar" else tuple(map(int, shape.split("x")))
    return name, Spec(sizes, dtype)


def _bad_spec(text: str, why: str) -> click.BadParameter:
    return click.BadParameter(
        f"{text!r}: {why + '; ' if why else ''}expected [NAME=]SHAPE:DTYPE, such as "
        f"512x768:f32, scalar:f32 or x=8:i64",
        param_hint="--arg",
    )


def arguments(
    target: str,
    function: Callable[..., Any],
    given: Sequence[tuple[str | None, Any]],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``given`` as positional and named arguments of ``function``."""
    positional = [value for name, value in given if name is None]
    named: dict[str, Any] = {}
    for name, value in given:
        if name in named:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--arg")
        if name is not None:
            named[name] = value
    try:
        signature = inspect.signature(function)
    except ValueError:
        return tuple(positional), named
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        how = "" if given else "; say a shape and a dtype of each: --arg 512x768:f32"
        raise click.BadParameter(
            f"{error}; {target} takes {signature}{how}", param_hint="--arg"
        ) from error
    return bound.args, bound.kwargs
