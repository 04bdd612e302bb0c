"""The peers: what else computes the workloads, each in its own natural spelling.

A peer is a class that is made once in a process of its own, where it imports its
library and sets the number of threads by the library's own setting. It builds a
:class:`Candidate` for a workload, or says why it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol

from bench.workloads import Workload
from eqsat.support.errors import EqsatError


class UnsupportedWorkload(EqsatError):
    """A peer lacks what a workload needs."""


@dataclass(frozen=True)
class Candidate:
    """A workload as one peer computes it."""

    call: Callable[[], Any]
    """One call, whose result is there when it returns."""
    array: Callable[[Any], Any]
    """One array of what ``call`` returned, as NumPy's; dicts, lists and tuples of them
    are taken apart."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else the peer knows of it, as JSON holds it."""
    estimate: Callable[[], Mapping[str, Any]] = dict
    """What the peer expects a call to take, as JSON holds it; found when asked for."""


class Peer(Protocol):
    """What a module here has under the name that :data:`PEERS` gives."""

    def __init__(self, threads: int) -> None:
        """Import the library and set its threads.

        Raises :class:`ImportError` where it is missing.
        """

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of the libraries, and what must be known of how they run."""

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        """``w`` over these arrays. Raises :class:`UnsupportedWorkload`."""


PEERS: dict[str, str] = {
    "numpy": "bench.peers.numpy_peer:Plain",
    "torch": "bench.peers.torch_peer:Eager",
    "torch-compile": "bench.peers.torch_peer:TorchCompiled",
    "jax": "bench.peers.jax_peer:Jax",
    "onnxruntime": "bench.peers.onnx_peer:OnnxRuntime",
    "openvino": "bench.peers.onnx_peer:OpenVino",
    "numexpr": "bench.peers.text_peer:NumExpr",
    "numba": "bench.peers.text_peer:Numba",
    "mlx": "bench.peers.mlx_peer:Mlx",
}
"""Where each peer lives. eqsat is there once for each backend that is installed."""
SLOW_TO_COMPILE = frozenset({"torch-compile"})
"""Peers that ``--quick`` leaves out: they compile for seconds."""
ONLY_ON_GPUS = frozenset({"eqsat-mlx"})
"""Peers that run when they are named: on a CPU MLX's backend is calls of MLX; ``bench
gpu`` measures it."""


def names() -> list[str]:
    """All peers, eqsat's backends first."""
    backends = sorted(e.name for e in entry_points(group="eqsat.backends"))
    return [*(f"eqsat-{b}" for b in backends), *PEERS]


def usual(quick: bool) -> list[str]:
    """The peers that run where none are named."""
    without = ONLY_ON_GPUS | (SLOW_TO_COMPILE if quick else frozenset())
    return [p for p in names() if p not in without]


def is_eqsat(name: str) -> bool:
    """Whether a peer is one of eqsat's backends."""
    return name.startswith("eqsat-")


def check(name: str) -> str:
    """``name``, if :func:`load` knows it. Raises :class:`EqsatError` otherwise."""
    first = name.partition("#")[0]
    if ":" not in first and first not in names():
        raise EqsatError(f"no peer {name!r}; there are {', '.join(names())}")
    return name


def load(name: str, threads: int) -> Peer:
    """The peer of that name, or of ``module:class``, for so many threads.

    ``NAME#2`` is another copy of a peer, to compare it with itself. Raises
    :class:`EqsatError` for names that nobody has, and what the peer raises.
    """
    name = check(name).partition("#")[0]
    if is_eqsat(name):
        from bench.peers.eqsat_peer import Eqsat

        return Eqsat(threads, name.removeprefix("eqsat-"))
    module, _, cls = PEERS.get(name, name).partition(":")
    peer: Peer = getattr(import_module(module), cls)(threads)
    return peer
