"""What operators of PyTorch refuse: dtypes and numbers that their kernels do not take.

Only the kernel knows, and neither tensors without data nor decompositions ask it. It is
asked with tensors of one element, where these are right for an operator: where it works
element by element, and a few more.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as torch_pytree
from torch.utils._python_dispatch import _disable_current_modes

_ASKED = frozenset(
    "_log_softmax _softmax addmm bmm dot hardswish huber_loss log_sigmoid_forward mm "
    "mse_loss mv smooth_l1_loss std var".split()
)
"""Operators, other than those by elements, that take tensors of one element."""
_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype)
_found: dict[Any, str | None] = {}


def refusal(op: Any, args: Any, named: Any) -> str | None:
    """What the kernel of ``op`` says where it does not take tensors of these dtypes and
    these numbers. None where it does, or where nobody can ask."""
    if not _is_asked(op):
        return None
    leaves, spec = torch_pytree.tree_flatten((args, named))
    like = [_Like.of(x) if isinstance(x, torch.Tensor) else x for x in leaves]
    if not all(isinstance(x, (*_PLAIN, _Like)) for x in like):
        return None
    shown = [(type(x), repr(x)) for x in like]  # 0.0 is not -0.0, nor 1 True
    key = op, str(spec), tuple(shown), torch.get_default_dtype()
    if key not in _found:
        _found[key] = _asked(op, spec, like)
    return _found[key]


@functools.cache
def _is_asked(op: Any) -> bool:
    tags = getattr(op, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags:
        return False
    name = str(op).removeprefix("aten.").rpartition(".")[0]
    return torch.Tag.pointwise in tags or name in _ASKED


class _Like(tuple[torch.dtype, int]):
    """The dtype and the number of axes of a tensor."""

    __slots__ = ()

    @classmethod
    def of(cls, x: torch.Tensor) -> Any:
        """That of a tensor of the CPU."""
        is_strided = x.layout is torch.strided and x.device.type == "cpu"
        return cls((x.dtype, x.ndim)) if is_strided else x

    def made(self) -> torch.Tensor:
        """A tensor like it, of one element."""
        dtype, ndim = self
        return torch.ones((1,) * ndim, dtype=dtype, device="cpu")


def _asked(op: Any, spec: Any, like: list[Any]) -> str | None:
    with _disable_current_modes(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaves = [x.made() if isinstance(x, _Like) else x for x in like]
        args, named = torch_pytree.tree_unflatten(leaves, spec)
        try:
            op(*args, **named)
        except (RuntimeError, TypeError) as error:  # NotImplementedError, too
            return str(error).partition("\n")[0]
    return None


def unless_refused(op: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that leaves ``op`` as it is where its kernel refuses the call, so
    that PyTorch says so, and where itself refuses what the kernel takes."""

    @functools.wraps(decomposition)
    def decomposed(*args: Any, **named: Any) -> Any:
        if refusal(op, args, named) is not None:
            return NotImplemented
        try:
            return decomposition(*args, **named)
        except ValueError:
            return NotImplemented

    return decomposed
