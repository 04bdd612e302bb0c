"""PyTorch: a backend of ``torch.compile``, and exported programs as functions.

Knows which function over NumPy computes which operator of ATen, and how a graph of them
becomes programs of eqsat with operators of PyTorch between. Start with ``table.py``,
then ``plan.py``; each family of operators has a file. ``torch`` is imported when
something here is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqsat.support import EqsatError, lazy_room

if TYPE_CHECKING:
    from eqsat.pytorch.exported import ExportedFunction
    from eqsat.pytorch.plan import TorchFallback
    from eqsat.pytorch.report import TorchReport

__all__ = [
    "ExportedFunction",
    "TorchFallback",
    "TorchReport",
    "backend",
    "fallbacks",
    "from_torch",
]

__getattr__ = lazy_room(__name__, __file__)


def _needed(who: str) -> None:
    try:
        import torch
    except ImportError as error:
        raise EqsatError(
            f"{who} needs the package torch\n  pip install 'eqsat[torch]'"
        ) from error
    del torch


def backend(module: Any, inputs: Any, **how: Any) -> Any:
    """The backend of ``torch.compile(model, backend="eqsat")``, for models on the CPU.

    PyTorch calls it with a graph, ``module``, and its arguments, ``inputs``.

    ``options={...}`` of ``torch.compile`` are parameters of :func:`eqsat.jit`, such as
    ``rules``. What eqsat does not know stays in PyTorch; :func:`fallbacks` lists it.
    Raises :class:`EqsatError` for tensors on other devices, :class:`OptionError` for
    other options.
    """
    _needed("torch.compile with eqsat")
    from eqsat.pytorch.dynamo import compile_graph

    return compile_graph(module, inputs, **how)


def from_torch(program: Any, **options: Any) -> ExportedFunction:
    """A ``torch.export.ExportedProgram`` as a function of arrays.

    It takes what the exported model takes, with tensors or arrays of NumPy in it, and
    gives arrays of NumPy where all arrays that it is given are NumPy's, else tensors.
    Parameters and buffers are constants, copied now; buffers that the program writes to
    are the state of the function. ``options`` are those of :func:`eqsat.jit`. It needs
    the extra ``torch``.

    Raises :class:`EqsatError` for what is no exported program, and for tensors on other
    devices than the CPU.
    """
    _needed("eq.from_torch")
    from eqsat.pytorch.exported import read

    return read(program, options)


def fallbacks(clear: bool = False) -> list[TorchFallback]:
    """What stayed in PyTorch in this process, by operator and reason, and how often it
    stands in graphs. ``clear``: forget it then."""
    _needed("eqsat.pytorch.fallbacks")
    from eqsat.pytorch import report

    found = report.noted()
    if clear:
        report.forget()
    return found
