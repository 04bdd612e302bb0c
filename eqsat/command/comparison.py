"""What a model gives, beside its reference in float64 and beside ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from eqsat.command.peers import PEERS
from eqsat.command.targets import GivenArguments, Runnable, find_target, flat, type_of
from eqsat.support import Array

_PEER = "ONNX Runtime"


def compare(
    text: str,
    arrays: Callable[[Runnable], GivenArguments],
    backend: str | None,
    shows: bool,
) -> dict[str, Any]:
    """A record of each output: the errors of eqsat, of NumPy and of ONNX Runtime
    against the reference, the bound, and what is wrong. ``arrays`` gives the arguments
    of a target.

    The reference reads the model as eqsat does; ONNX Runtime has read it by itself.
    """
    import eqsat as eq
    from eqsat.checking import Evaluated, bound

    target = find_target(text, shows, backend=backend)
    arguments = arrays(target)
    with eq.options(progress=shows):
        got = flat(target.given(arguments) | target.call(arguments))
    made: list[Evaluated] = []

    def evaluated(is_exact: bool) -> dict[str, Array]:
        def make(fn: Callable[..., Any]) -> Evaluated:
            made.append(Evaluated(fn, is_exact))
            return made[-1]

        return flat(target.replaced(make)(arguments))

    exact, plain = evaluated(True), evaluated(False)
    terms = max((e.longest_sum for e in made), default=1)
    peer, missing = _peer(target, arguments)
    outputs = []
    for name, written in plain.items():
        reference = exact[name]
        plain_error = _error(written, written, reference)
        most = bound(plain_error or 0.0, written.dtype, terms)
        row: dict[str, Any] = {
            "name": name,
            "type": type_of(written),
            "error": _error(got[name], written, reference),
            "bound": most,
            "plain_error": plain_error,
        }
        judged = {"its reference": row["error"]}
        if peer is not None:
            judged[_PEER] = row["peer_error"] = _error(peer[name], written, reference)
        wrong = [n for n, e in judged.items() if e is None or e > most]
        outputs.append({**row, "wrong": [f"differs from {n}" for n in wrong]})
    return {
        "outputs": outputs,
        "agree": not any(o["wrong"] for o in outputs),
        "peer": _PEER if peer is not None else None,
        "missing": missing,
        "on_host": target.on_host(),
    }


def _error(got: Array, like: Array, exact: Array) -> float | None:
    """The error of a result that has to be of the type of ``like``; None for another
    type, and where one alone is NaN or infinite."""
    from eqsat.checking import relative

    if (got.dtype, got.shape) != (like.dtype, like.shape) and like.dtype.kind != "U":
        return None
    found = relative(got, exact)
    return found if math.isfinite(found) else None


def _peer(
    target: Runnable, arguments: GivenArguments
) -> tuple[dict[str, Array] | None, str]:
    """What ONNX Runtime gives; or None, and why."""
    if target.path is None:
        return None, ""
    try:
        run = PEERS[_PEER](target.path, 1)
        return flat(run(arguments.named)), ""
    except ImportError:
        return None, f"{_PEER} is not installed"
    except Exception as error:  # a class of its own for each kind of error
        return None, f"{_PEER} does not run it: {str(error).splitlines()[0][:200]}"
