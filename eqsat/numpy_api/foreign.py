"""Arrays of other libraries: how NumPy shows their memory, how results become theirs,
and which are refused.

:func:`kind_of` tells the kind of an object by its type; :data:`KINDS` has one row for
each. No library is imported here: an object of one comes with its module.
"""

from __future__ import annotations

import array
import ctypes
import dataclasses
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from eqsat.support import (
    DTypeError,
    EqsatError,
    TraceError,
    an,
    at,
    caller_line,
    may_overlap,
    untraceable,
)
from eqsat.terms import BF16, Traced

Array = np.ndarray[Any, Any]
_MARKS = (
    *("__array__", "__array_interface__", "__array_struct__"),
    *("__dlpack__", "__cuda_array_interface__"),
)
_OWN = frozenset({np.ndarray, int, float, bool, str, type(None), list, tuple, dict})
_HOST = (1, 3, 11, 13)
"""DLPack's numbers of memory that the CPU reads: its own, pinned and managed."""


@dataclasses.dataclass(frozen=True, eq=False)
class ForeignKind:
    """Arrays of one library, or of one protocol."""

    name: str
    show: Callable[[str, Any], Array]
    """The array of NumPy, or of a subclass, that shows one, with its name in errors. It
    is read-only where a write to it would not reach the object, or must not."""
    give: Callable[[Array], Any] | None = None
    """An array of this kind over a result, whose memory nobody else uses. None where
    results are arrays of NumPy."""
    check: Callable[[Any], None] = lambda dtype: None
    """Raises :class:`DTypeError` for a dtype of results that the kind has not."""
    wrote: Callable[[Any], None] = lambda x: None
    """Tells the library that an array of it was written to."""

    def view(self, what: str, x: Any) -> Array:
        """The array of NumPy that shows ``x``, which is ``what`` in errors. Raises
        :class:`TraceError` and :class:`DTypeError` where there is none."""
        try:
            return self.show(what, x)
        except EqsatError:
            raise
        except Exception as error:
            said = str(error).partition("\n")[0]
            raise TraceError(
                f"{what} is {an(type_name(x))}, of which NumPy can show no array: "
                f"{type(error).__name__}: {said}{at(caller_line())}"
            ) from error

    def given(self, x: Any) -> Any:
        """A result of a program as an array of this kind, if it is one of NumPy."""
        if self.give is None or not isinstance(x, (np.ndarray, np.generic)):
            return x
        return self.give(np.asarray(x))


def type_name(x: Any) -> str:
    """The full name of the type of ``x``."""
    return f"{type(x).__module__}.{type(x).__qualname__}"


def kind_of(x: Any) -> ForeignKind | None:
    """The kind of an array of another library; None for what is no array, and for
    arrays of NumPy, of MLX and traced ones."""
    type_: type = type(x)
    if type_ in _OWN:
        return None
    try:
        return _of_type[type_]
    except KeyError:
        found = _of_type[type_] = _recognised(type_)
        return found


_of_type: weakref.WeakKeyDictionary[type, ForeignKind | None]
_of_type = weakref.WeakKeyDictionary()


def refuse_outside(x: Any, what: str) -> None:
    """Raise :class:`TraceError` where ``x`` is an array of another library, MLX too,
    that is no argument: nobody would see whether it changes."""
    if kind_of(x) is None and not _is_of(type(x), "mlx"):
        return
    raise untraceable(
        f"{what} is {an(type_name(x))}; arrays of other libraries are taken as "
        "arguments only\n  pass it as one, or make it an array of NumPy before"
        f"{at(caller_line())}"
    )


def memory_of(x: Any) -> Array | None:
    """The array of NumPy that shows a tensor or a series, which its owner can change;
    None for others, and where there is none."""
    kind = kind_of(x)
    if kind is not TORCH and not (kind is PANDAS and x.ndim == 1):
        return None
    try:
        return kind.view("it", x.detach() if kind is TORCH else x)
    except EqsatError:
        return None


def check_together(given: Iterable[tuple[str, Any, ForeignKind | None]]) -> None:
    """Raise :class:`TraceError` for arrays of one call, with their paths and kinds, of
    which results cannot be of one kind, and for those of pandas with other labels."""
    first: tuple[str, Any, str] | None = None
    labelled: list[tuple[str, Any]] = []
    for path, x, kind in given:
        if kind is PANDAS:
            labelled.append((path, x))
        name = kind.name if kind is not None and kind.give is not None else ""
        if kind is None and _is_of(type(x), "mlx"):
            name = "MLX"
        if not name:
            continue
        if first is not None and name != first[2]:
            raise TraceError(
                f"argument {first[0]} is an array of {first[2]}, {path} is one of "
                f"{name}\n  make both of one library, or arrays of NumPy: "
                f"np.asarray(x){at(caller_line())}"
            )
        first = first or (path, x, name)
    _check_labels(labelled)


def _recognised(type_: type) -> ForeignKind | None:
    if issubclass(type_, (np.ndarray, np.generic, Traced)):
        return None
    if _is_of(type_, "mlx") or _is_of(type_, "eqsat"):
        return None
    if _is_of(type_, "scipy.sparse") and hasattr(type_, "toarray"):
        return SPARSE
    if issubclass(type_, (memoryview, array.array, ctypes.Array)):
        return BUFFER
    if not any(hasattr(type_, name) for name in _MARKS):
        return None
    for module, kind in KINDS.items():
        if _is_of(type_, module):
            return kind
    is_container = dataclasses.is_dataclass(type_) or issubclass(
        type_, (tuple, list, dict)
    )
    return None if is_container else PROTOCOL


def _is_of(type_: type, module: str) -> bool:
    """Whether a class or one that it inherits is of a module or one below."""
    return any(f"{b.__module__}.".startswith(f"{module}.") for b in type_.__mro__)


def _refuse(what: str, x: Any, why: str) -> NoReturn:
    raise TraceError(f"{what} is {an(type_name(x))}{why}{at(caller_line())}")


def _read_only(x: Array) -> Array:
    view = x.view()
    view.flags.writeable = False
    return view


# -- PyTorch ---------------------------------------------------------------------------


def _show_torch(what: str, x: Any) -> Array:
    torch = sys.modules["torch"]
    if type(x) not in (torch.Tensor, torch.nn.Parameter):
        _refuse(what, x, "; x.as_subclass(torch.Tensor) drops what it adds to a tensor")
    if x.layout is not torch.strided:
        _refuse(what, x, f" of layout {x.layout}; x.to_dense() makes it an array")
    if x.device.type != "cpu":
        _refuse(what, x, f" on the device {x.device}; copy it to the host: x.cpu()")
    if x.requires_grad:
        why = " that requires a gradient, and torch sees nothing of what eqsat computes"
        _refuse(what, x, f"{why}\n  pass x.detach(); eq.grad has gradients")
    shown = tensor_memory(x)
    return _read_only(shown) if may_overlap(shown) else shown


def tensor_memory(x: Any) -> Array:
    """The array of NumPy over the memory of a strided tensor on the CPU."""
    torch = sys.modules["torch"]
    if x.dtype is torch.bfloat16:
        return x.view(torch.uint16).numpy().view(BF16)  # type: ignore[no-any-return]
    return x.numpy()  # type: ignore[no-any-return]


def tensor_of(x: Array) -> Any:
    """The tensor over the memory of an array; a copy where nobody may write to it."""
    torch = sys.modules["torch"]
    if not x.flags.writeable:
        x = x.copy()
    if x.dtype == BF16:
        return torch.from_numpy(x.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def _wrote_torch(x: Any) -> None:
    """Tell autograd, which refuses to use what it saved before a write."""
    sys.modules["torch"].autograd.graph.increment_version(x)


# -- JAX -------------------------------------------------------------------------------


def _show_jax(what: str, x: Any) -> Array:
    jax = sys.modules["jax"]
    if isinstance(x, jax.core.Tracer):
        why = ", which JAX traces; call the function outside of jax.jit, jax.grad and "
        _refuse(what, x, f"{why}jax.vmap, or through jax.pure_callback")
    others = {d.platform for d in x.devices()} - {"cpu"}
    if others:
        why = f" on the device {others.pop()}; copy it to the host: jax.device_get(x)"
        _refuse(what, x, why)
    return _read_only(np.asarray(x))


def _give_jax(x: Array) -> Any:
    jax = sys.modules["jax"]
    _check_jax(x.dtype)
    with jax.default_device(jax.devices("cpu")[0]):
        return jax.numpy.asarray(x)


def _check_jax(dtype: Any) -> None:
    if sys.modules["jax"].dtypes.canonicalize_dtype(dtype) != dtype:
        raise DTypeError(
            f"the function returns {dtype}, which JAX would cut to 32 bits\n"
            "  cast it in the function, x.astype(...), or set jax_enable_x64"
            f"{at(caller_line())}"
        )


# -- pandas ----------------------------------------------------------------------------


def _show_pandas(what: str, x: Any) -> Array:
    pandas = sys.modules["pandas"]
    if not isinstance(x, (pandas.Series, pandas.DataFrame, pandas.Index)):
        _refuse(what, x, "; np.asarray(x) makes it an array")
    for dtype in x.dtypes if x.ndim == 2 else [x.dtype]:
        if not isinstance(dtype, np.dtype):
            raise DTypeError(
                f"{what} is {an(type_name(x))} of dtype {dtype}, expected one of NumPy"
                "\n  x.to_numpy(dtype), with na_value= for what is missing, makes an "
                f"array of it{at(caller_line())}"
            )
    return _read_only(x.to_numpy())


def _check_labels(given: Sequence[tuple[str, Any]]) -> None:
    """Refuse arrays of pandas whose axes of equal length have other labels: pandas
    would pair elements by them, NumPy pairs them by position."""
    for i, (path, x) in enumerate(given):
        for other, y in given[:i]:
            if not all(_same_labels(a, b) for a, b in _paired_axes(x, y)):
                raise TraceError(
                    f"arguments {other} and {path} have different labels, by which "
                    "pandas would pair their elements; eqsat pairs them by position\n"
                    "  align them before, x.align(y), or pass x.to_numpy()"
                    f"{at(caller_line())}"
                )


def _paired_axes(x: Any, y: Any) -> list[tuple[Any, Any]]:
    """Labels of two arrays of pandas that an operation on both may pair."""
    axes_x, axes_y = ([] if not hasattr(z, "axes") else z.axes for z in (x, y))
    if len(axes_x) == len(axes_y):
        return [*zip(axes_x, axes_y, strict=True)]
    short, long = sorted((axes_x, axes_y), key=len)
    if not short:
        return []
    (own,) = short
    alike = [b for b in long if len(b) == len(own)]
    return [] if any(_same_labels(own, b) for b in alike) else [(own, b) for b in alike]


def _same_labels(a: Any, b: Any) -> bool:
    return len(a) != len(b) or a is b or bool(a.equals(b))


# -- protocols -------------------------------------------------------------------------


def _show_by_protocol(what: str, x: Any) -> Array:
    type_ = type(x)
    if hasattr(type_, "__cuda_array_interface__"):
        _refuse(what, x, " in the memory of a GPU; copy it to the host first")
    if not any(hasattr(type_, name) for name in _MARKS[:3]):
        device, _ = x.__dlpack_device__()
        if device not in _HOST:
            why = f" on device {int(device)} of DLPack; copy it to the host first"
            _refuse(what, x, why)
        return np.from_dlpack(x)
    shown = np.asanyarray(x)  # a masked array stays one, and is refused
    is_interface = any(hasattr(type_, name) for name in _MARKS[1:3])
    return shown.view() if is_interface else _read_only(shown)


def _show_sparse(what: str, x: Any) -> Array:
    _refuse(what, x, ", which is sparse; x.toarray() makes it an array")


def _show_buffer(what: str, x: Any) -> Array:
    _refuse(what, x, "; np.asarray(x) shows its memory as an array")


TORCH = ForeignKind("PyTorch", _show_torch, tensor_of, wrote=_wrote_torch)
JAX = ForeignKind("JAX", _show_jax, _give_jax, _check_jax)
PANDAS = ForeignKind("pandas", _show_pandas)
PROTOCOL = ForeignKind("a protocol", _show_by_protocol)
SPARSE = ForeignKind("scipy.sparse", _show_sparse)
BUFFER = ForeignKind("a buffer", _show_buffer)

KINDS = {"torch": TORCH, "jax": JAX, "jaxlib": JAX, "pandas": PANDAS}
"""Arrays of libraries, by the module that their types or a base of these are of."""
