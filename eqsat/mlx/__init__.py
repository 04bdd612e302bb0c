"""MLX: functions and modules of MLX, optimised.

Knows which function over NumPy computes which primitive of MLX, and how a graph of them
becomes programs of eqsat with primitives of MLX between. Start with ``function.py``,
then ``table.py``; each family of primitives has a file. ``mlx`` is imported when
something here is called. What programs are on MLX's devices is known in
``backends/mlx``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eqsat.support import EqsatError, lazy_room

if TYPE_CHECKING:
    from eqsat.mlx.function import MLXFunction
    from eqsat.mlx.report import MLXFallback, MLXReport

__all__ = ["MLXFallback", "MLXFunction", "MLXReport", "from_mlx"]

__getattr__ = lazy_room(__name__, __file__)


def from_mlx(
    fn: Callable[..., Any], *args: Any, backend: str | None = None, **options: Any
) -> MLXFunction:
    """A function over arrays of MLX, or an ``mlx.nn.Module``, optimised.

    It takes what ``fn`` takes, with arrays of MLX or NumPy nested in it, and gives what
    ``fn`` gives, with arrays of MLX. ``fn`` runs once for each signature (shapes,
    dtypes, and what is no array) to write down its primitives, by
    ``mx.export_function``. With ``args`` it is converted for them now, else in its
    first call. Weights of modules are constants, until other arrays stand in their
    place: then these are arguments. ``backend`` and ``options`` are those of
    :func:`eqsat.jit`: ``rules`` and ``options``.

    What eqsat does not know stays in MLX; :meth:`MLXFunction.report` lists it. Raises
    :class:`EqsatError` for what cannot be called, :class:`OptionError` for other
    options, and what ``fn`` raises. It needs the extra ``mlx``.
    """
    try:
        import mlx.core as mx
    except ImportError as error:
        raise EqsatError(
            "eq.from_mlx needs the package mlx\n  pip install 'eqsat[mlx]'"
        ) from error
    del mx
    from eqsat.mlx.function import convert

    return convert(fn, args, {"backend": backend, **options})
