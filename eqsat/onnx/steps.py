"""What goes step by step: If, Loop and Scan, which hold graphs, and recurrent
networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.onnx.table import is_known, known, number, operator
from eqsat.onnx.tensors import dtype_of
from eqsat.support import EqsatError

_Function = Callable[[Any], Any]
MOST_STEPS = 64
"""Steps of a loop that become one program; the host runs loops of more."""


@operator("If")
def if_(condition: Any, *, then_branch: Any, else_branch: Any, call: Any) -> Any:
    """The outputs of one graph or the other; each is a program of its own."""
    branch = then_branch if bool(number(condition)) else else_branch
    return tuple(call.graph(branch))


@operator("Loop")
def loop(count: Any, condition: Any, *states: Any, body: Any, call: Any) -> Any:
    """A graph, again and again, with what it gave the time before; what else it gives
    is stacked."""
    most = None if count is None else number(count)
    going = True if condition is None else bool(number(condition))
    rows: list[list[Any]] = [[] for _ in range(len(body.outputs) - 1 - len(states))]
    i = 0
    while going and (most is None or i < most):
        if i >= MOST_STEPS and not is_known(*states):
            raise EqsatError(f"a loop of more than {MOST_STEPS} steps")
        going_on, *found = call.graph(body, np.array(i), np.array(True), *states)
        states = tuple(found[: len(states)])
        for row, value in zip(rows, found[len(states) :], strict=True):
            row.append(value)
        going = True if going_on is None else bool(number(going_on))
        i += 1
    types = body.types[1 + len(states) :]
    return *states, *(_stacked(r, 0, t) for r, t in zip(rows, types, strict=True))


def _stacked(values: list[Any], axis: int, type_: Any) -> Any:
    """Values of each step as one array; of no step, one of the declared type."""
    if values:
        return np.stack(values, axis=axis)
    tensor = type_.tensor_type
    if not tensor.HasField("shape") or not all(
        d.HasField("dim_value") for d in tensor.shape.dim
    ):
        raise EqsatError("a loop of no steps, and the shape of what it gives is open")
    sizes = [d.dim_value for d in tensor.shape.dim]
    sizes.insert(axis, 0)
    return np.zeros(sizes, dtype_of(tensor.elem_type, "an output of the body"))


@operator("Scan", until=8)
def scan_batched(
    lengths: Any,
    *xs: Any,
    body: Any,
    num_scan_inputs: int,
    directions: Any = None,
    call: Any,
) -> Any:
    """As :func:`scan`, for each element of a batch."""
    states = len(xs) - num_scan_inputs
    batch = xs[0].shape[0]
    rows = []
    for n in range(batch):
        one = [x[n] for x in xs]
        if lengths is not None:
            m = int(known(lengths)[n])
            one[states:] = [x[:m] for x in one[states:]]
        rows.append(
            scan(
                *one,
                body=body,
                num_scan_inputs=num_scan_inputs,
                scan_input_directions=directions,
                call=call,
            )
        )
    return tuple(np.stack(column) for column in zip(*rows, strict=True))


@operator("Scan", since=9)
def scan(
    *xs: Any,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
    call: Any,
) -> Any:
    """A graph for each slice of some inputs, with states from the time before."""
    count = len(xs) - num_scan_inputs
    states, inputs = tuple(xs[:count]), xs[count:]
    axes = scan_input_axes or [0] * len(inputs)
    back = scan_input_directions or [0] * len(inputs)
    slices = [np.moveaxis(x, a, 0) for x, a in zip(inputs, axes, strict=True)]
    length = slices[0].shape[0]
    if length > MOST_STEPS and not is_known(*xs):
        raise EqsatError(f"a loop of more than {MOST_STEPS} steps")
    outputs = len(body.outputs) - count
    rows: list[list[Any]] = [[] for _ in range(outputs)]
    for i in range(length):
        now = [
            s[length - 1 - i] if b else s[i] for s, b in zip(slices, back, strict=True)
        ]
        found = call.graph(body, *states, *now)
        states = tuple(found[:count])
        for row, value in zip(rows, found[count:], strict=True):
            row.append(value)
    where = scan_output_axes or [0] * outputs
    turned = scan_output_directions or [0] * outputs
    stacked = [
        _stacked(r[::-1] if t else r, a, type_)
        for r, t, a, type_ in zip(rows, turned, where, body.types[count:], strict=True)
    ]
    return *states, *stacked


# -- recurrent networks ----------------------------------------------------------------


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _activation(name: str, alpha: float | None, beta: float | None) -> _Function:
    """A function by its name in ONNX."""
    defaults = {
        "Affine": (1.0, 0.0),
        "LeakyRelu": (0.01, 0.0),
        "ThresholdedRelu": (1.0, 0.0),
        "ScaledTanh": (1.0, 1.0),
        "HardSigmoid": (0.2, 0.5),
        "Elu": (1.0, 0.0),
    }
    first, second = defaults.get(name, (0.0, 0.0))
    a = first if alpha is None else alpha
    b = second if beta is None else beta
    found: dict[str, _Function] = {
        "Relu": lambda x: np.maximum(x, 0),
        "Tanh": np.tanh,
        "Sigmoid": _sigmoid,
        "Affine": lambda x: a * x + b,
        "LeakyRelu": lambda x: np.where(x < 0, a * x, x),
        "ThresholdedRelu": lambda x: np.where(x > a, x, 0),
        "ScaledTanh": lambda x: a * np.tanh(b * x),
        "HardSigmoid": lambda x: np.minimum(np.maximum(a * x + b, 0), 1),
        "Elu": lambda x: np.where(x < 0, a * (np.exp(x) - 1), x),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "Softplus": lambda x: np.logaddexp(x, 0),
    }
    if name not in found:
        raise ValueError(f"unknown activation {name!r}")
    return found[name]


def _activations(
    names: Any, alphas: Any, betas: Any, default: Sequence[str], directions: int
) -> list[list[_Function]]:
    """Functions for each direction."""
    each = len(default)
    names = names or [*default] * directions
    takers = {
        "Affine",
        "LeakyRelu",
        "ThresholdedRelu",
        "ScaledTanh",
        "HardSigmoid",
        "Elu",
    }
    both = {"Affine", "ScaledTanh", "HardSigmoid"}
    alphas, betas = list(alphas or ()), list(betas or ())
    made = []
    for name in names:
        a = alphas.pop(0) if name in takers and alphas else None
        b = betas.pop(0) if name in both and betas else None
        made.append(_activation(name, a, b))
    return [made[i * each : (i + 1) * each] for i in range(directions)]


def _run(
    x: Any,
    layout: int,
    lengths: Any,
    direction: str,
    starts: Sequence[Any],
    w: Any,
    b: Any,
    step_of: Callable[[int], Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]],
) -> tuple[Any, ...]:
    """Outputs of all steps and the last states, of one or two directions.

    ``step_of`` a direction gives what takes x Wᵀ + b of one step and the states, each
    n × hidden. States are kept where a sequence has ended. The inputs of all steps are
    one product, and what is made of weights is made once: a program holds each array
    that it meets.
    """
    x = np.swapaxes(x, 0, 1) if layout else x
    length = x.shape[0]
    if length > MOST_STEPS and not is_known(x):
        raise EqsatError(f"a sequence of more than {MOST_STEPS} steps")
    count = 2 if direction == "bidirectional" else 1
    outputs, lasts = [], []
    for d in range(count):
        backward = direction == "reverse" or d == 1
        state = tuple(s[d] for s in starts)
        inputs, step = x @ w[d].T + b[d], step_of(d)
        found: list[Any] = [None] * length
        order = range(length - 1, -1, -1) if backward else range(length)
        for t in order:
            new = step(inputs[t], state)
            h = new[0]
            if lengths is not None:
                going = (t < lengths)[:, None]
                new = tuple(
                    np.where(going, n, s) for n, s in zip(new, state, strict=True)
                )
                h = np.where(going, h, 0).astype(h.dtype)
            state = new
            found[t] = h
        outputs.append(np.stack(found))
        lasts.append(state)
    y = np.stack(outputs, axis=1)
    last = [np.stack(states) for states in zip(*lasts, strict=True)]
    if layout:
        y = np.transpose(y, (2, 0, 1, 3))
        last = [np.swapaxes(s, 0, 1) for s in last]
    return y, *last


def _starts(
    x: Any, layout: int, count: int, hidden: int, given: Sequence[Any]
) -> list[Any]:
    """States before the first step: those given, or zeros."""
    n = x.shape[0] if layout else x.shape[1]
    return [
        (
            np.zeros((count, n, hidden), x.dtype)
            if s is None
            else (np.swapaxes(s, 0, 1) if layout else s)
        )
        for s in given
    ]


def _clipped(clip: float | None) -> _Function:
    return (lambda v: v) if clip is None else (lambda v: np.clip(v, -clip, clip))


def _halves(b: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """Biases of inputs and of states, for each direction."""
    rows = w.shape[1]
    if b is None:
        zero = np.zeros((w.shape[0], rows), x.dtype)
        return zero, zero
    return b[:, :rows], b[:, rows:]


@operator("RNN")
def rnn(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h0: Any = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    layout: int = 0,
) -> Any:
    """h' = f(x Wᵀ + h Rᵀ + b)."""
    count, _, hidden = r.shape
    rows = _activations(activations, activation_alpha, activation_beta, ["Tanh"], count)
    bw, br = _halves(b, x, w)
    cut = _clipped(clip)

    def step_of(d: int) -> Any:
        f, rt = rows[d][0], r[d].T
        return lambda x, state: (f(cut(x + state[0] @ rt)),)

    starts = _starts(x, layout, count, hidden, [h0])
    return _run(x, layout, lengths, direction, starts, w, bw + br, step_of)


@operator("GRU")
def gru(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h0: Any = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:
    """Gated units with an update and a reset."""
    count, _, m = r.shape
    default = ["Sigmoid", "Tanh"]
    rows = _activations(activations, activation_alpha, activation_beta, default, count)
    bw, br = _halves(b, x, w)
    cut = _clipped(clip)

    def step_of(d: int) -> Any:
        f, g = rows[d]
        of_gates, of_new = r[d, : 2 * m].T, r[d, 2 * m :].T
        b_gates, b_new = br[d, : 2 * m], br[d, 2 * m :]

        def step(x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            (h,) = state
            gates = f(cut(x[:, : 2 * m] + (h @ of_gates + b_gates)))
            z, reset = gates[:, :m], gates[:, m:]
            if linear_before_reset:
                new = x[:, 2 * m :] + reset * (h @ of_new + b_new)
            else:
                new = x[:, 2 * m :] + (reset * h) @ of_new + b_new
            return ((1 - z) * g(cut(new)) + z * h,)

        return step

    starts = _starts(x, layout, count, m, [h0])
    return _run(x, layout, lengths, direction, starts, w, bw, step_of)


@operator("LSTM")
def lstm(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h0: Any = None,
    c0: Any = None,
    p: Any = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:
    """Long short-term memory with peepholes."""
    count, _, m = r.shape
    default = ["Sigmoid", "Tanh", "Tanh"]
    rows = _activations(activations, activation_alpha, activation_beta, default, count)
    bw, br = _halves(b, x, w)
    cut = _clipped(clip)

    def step_of(d: int) -> Any:
        (f, g, last), rt = rows[d], r[d].T
        peep = None if p is None else [p[d, k * m : (k + 1) * m] for k in range(3)]

        def step(x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            h, c = state
            gates = x + h @ rt
            i, o, forget, new = (gates[:, k * m : (k + 1) * m] for k in range(4))
            if peep is not None:
                i, forget = i + peep[0] * c, forget + peep[2] * c
            i = f(cut(i))
            keep = 1 - i if input_forget else f(cut(forget))
            c = keep * c + i * g(cut(new))
            o = f(cut(o if peep is None else o + peep[1] * c))
            return o * last(c), c

        return step

    starts = _starts(x, layout, count, m, [h0, c0])
    return _run(x, layout, lengths, direction, starts, w, bw + br, step_of)
