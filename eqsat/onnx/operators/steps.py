"""What goes step by step: If, Loop and Scan, which hold graphs, and recurrent
networks."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eqsat.onnx.operators.elementwise import Function, activations_of
from eqsat.onnx.operators.table import (
    axis_of,
    expect_shape,
    is_known,
    known,
    number,
    operator,
)
from eqsat.onnx.operators.tensors import dtype_of
from eqsat.operator_table import frozen
from eqsat.support import BoundsError, EqsatError, ShapeError, counted

MOST_STEPS = 64
"""Steps of a loop that become one program; the host runs loops of more."""
PART = 16
"""Steps of a program that the host runs again and again: a call takes as long as some
light steps, and code for each step takes time to compile."""
Arrays = tuple[Any, ...]
_FEW = 64
"""Integers up to which an array may be a shape, and is part of a program."""
_MOST_KEPT = 64
"""Programs that are kept."""


class Shared(NamedTuple):
    """An array that all steps read."""

    array: Any
    made_of: Any
    """The array that it is made of, always in the same way."""


Step = Callable[[Arrays, Arrays, Arrays], tuple[Arrays, Arrays]]
"""Of states, slices of a step and what all steps share: new states, and what the step
gives besides."""


class Repeated:
    """Programs of some steps, as the host runs them."""

    def __init__(
        self,
        compile: Callable[[Callable[..., Any]], Any],
        constants: Iterable[Any],
    ) -> None:
        """``constants``: arrays that nobody writes to."""
        self._compile = compile
        self._constants = {id(x): x for x in constants}
        self._programs: OrderedDict[Any, Any] = OrderedDict()
        """By what they are of; None where there is none."""

    def run(
        self,
        what: Any,
        step: Step,
        states: Sequence[Any],
        slices: Sequence[Any],
        shared: Sequence[Shared],
    ) -> tuple[Arrays, list[Any]] | None:
        """The last states, and what all steps give, stacked; None where no program
        holds the steps. ``slices`` are stacked along their first axes; ``step`` is
        that of ``what``, whatever the arrays are."""
        given = (*states, *slices, *(s.array for s in shared))
        if not all(isinstance(x, np.ndarray) and x.dtype != object for x in given):
            return None
        fixed = {i: s.array for i, s in enumerate(shared) if self._key(s) is not None}
        key = what, tuple(map(self._key, shared))
        if key not in self._programs:
            inside = {i: frozen(x) for i, x in fixed.items()}
            self._programs[key] = self._compile(_several(step, inside))
            if len(self._programs) > _MOST_KEPT:
                self._programs.popitem(last=False)
        program = self._programs[key]
        if program is None:
            return None
        rest = tuple(s.array for i, s in enumerate(shared) if i not in fixed)
        now, rows, length = tuple(states), [], len(slices[0])
        whole = length - length % PART
        ends = [*range(0, whole, PART), *range(whole, length + 1)]
        try:
            for low, high in itertools.pairwise(ends):
                part = tuple(s[low:high] for s in slices)
                now, found = program(now, part, rest)
                rows.append(found)
        except EqsatError:  # the steps ask for values, or hold what no program does
            self._programs[key] = None
            return None
        except IndexError:  # which the host says again of the node and its index
            return None
        return now, [np.concatenate(column) for column in zip(*rows, strict=True)]

    def _key(self, shared: Shared) -> Any:
        """What tells an array from others that is part of a program; None for one that
        is an argument."""
        if id(shared.made_of) in self._constants:
            return id(shared.made_of)
        x = shared.array
        is_few = x.dtype.kind in "iub" and x.size <= _FEW
        return (x.dtype.str, x.shape, x.tobytes()) if is_few else None


def _several(step: Step, fixed: Mapping[int, Any]) -> Callable[..., Any]:
    """The steps for all of some slices, one after the other; ``fixed`` are those of
    the shared arrays that are part of the program, by their places."""

    def steps(states: Arrays, slices: Arrays, rest: Arrays) -> tuple[Arrays, Arrays]:
        others = iter(rest)
        count = len(rest) + len(fixed)
        shared = tuple(fixed[i] if i in fixed else next(others) for i in range(count))
        rows = []
        for i in range(slices[0].shape[0]):
            states, row = step(states, tuple(s[i] for s in slices), shared)
            rows.append(row)
        return states, tuple(np.stack(column) for column in zip(*rows, strict=True))

    return steps


# -- If, Loop and Scan -----------------------------------------------------------------


@operator("If")
def if_(condition: Any, *, then_branch: Any, else_branch: Any, call: Any) -> Any:
    """The outputs of one graph or the other; each is a program of its own."""
    branch = then_branch if bool(number(condition)) else else_branch
    return tuple(call.graph(branch))


@operator("Loop")
def loop(count: Any, condition: Any, *states: Any, body: Any, call: Any) -> Any:
    """A graph, again and again, with what it gave the time before; what else it gives
    is stacked."""
    _expect_body(body, 2 + len(states), 1 + len(states))
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


def _expect_body(body: Any, inputs: int, states: int) -> None:
    """Raise :class:`ShapeError` for a graph that takes another number of inputs, or
    gives fewer outputs than there are states."""
    with_defaults = sum(n in body.constants for n in body.inputs)
    least = len(body.inputs) - with_defaults
    if not least <= inputs <= len(body.inputs) or len(body.outputs) < states:
        raise ShapeError(
            f"graph {body.name!r} has {counted(len(body.inputs), 'input')} and "
            f"{counted(len(body.outputs), 'output')}, expected {inputs} and {states} "
            "or more"
        )


def _stacked(values: list[Any], axis: int, type_: Any) -> Any:
    """Values of each step as one array; of no step, one of the declared type."""
    if values:
        a = axis_of(axis, values[0].ndim + 1, "one of scan_output_axes")
        return np.stack(values, axis=a)
    tensor = type_.tensor_type
    if not tensor.HasField("shape") or not all(
        d.HasField("dim_value") for d in tensor.shape.dim
    ):
        raise EqsatError("a loop of no steps, and the shape of what it gives is open")
    sizes = [d.dim_value for d in tensor.shape.dim]
    sizes.insert(axis_of(axis, len(sizes) + 1, "one of scan_output_axes"), 0)
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
    batch = _same_length(xs, [0] * len(xs))
    if lengths is not None:
        expect_shape("sequence_lens", lengths, batch)
        _expect_lengths(lengths, _same_length(xs[states:], [1] * num_scan_inputs))
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
    _expect_body(body, len(xs), count)
    states, inputs = tuple(xs[:count]), xs[count:]
    axes = _each("scan_input_axes", scan_input_axes, len(inputs))
    back = _each("scan_input_directions", scan_input_directions, len(inputs))
    axes = [
        axis_of(a, x.ndim, "one of scan_input_axes")
        for x, a in zip(inputs, axes, strict=True)
    ]
    length = _same_length(inputs, axes)
    slices = [np.moveaxis(x, a, 0) for x, a in zip(inputs, axes, strict=True)]
    if length > MOST_STEPS and not is_known(*xs):
        raise EqsatError(f"a loop of more than {MOST_STEPS} steps")
    outputs = len(body.outputs) - count
    where = _each("scan_output_axes", scan_output_axes, outputs)
    turned = _each("scan_output_directions", scan_output_directions, outputs)
    if length > MOST_STEPS and call.repeated is not None:
        around = [Shared(*[call.around[n]] * 2) for n in body.captured]
        ordered = [s[::-1] if b else s for s, b in zip(slices, back, strict=True)]
        what, step = ("Scan", call.node), _step_of(body, call)
        parts = call.repeated.run(what, step, states, ordered, around)
        if parts is not None:
            states, whole = parts
            ways = zip(whole, turned, where, strict=True)
            return *states, *(
                np.moveaxis(r[::-1] if t else r, 0, a) for r, t, a in ways
            )
    rows: list[list[Any]] = [[] for _ in range(outputs)]
    for i in range(length):
        now = [
            s[length - 1 - i] if b else s[i] for s, b in zip(slices, back, strict=True)
        ]
        found = call.graph(body, *states, *now)
        states = tuple(found[:count])
        for row, value in zip(rows, found[count:], strict=True):
            row.append(value)
    stacked = [
        _stacked(r[::-1] if t else r, a, type_)
        for r, t, a, type_ in zip(rows, turned, where, body.types[count:], strict=True)
    ]
    return *states, *stacked


def _each(name: str, values: Any, count: int) -> list[int]:
    """An attribute with a number for each of ``count``, by default 0."""
    found: list[int] = values or [0] * count
    if len(found) != count:
        raise ShapeError(f"attribute {name!r} is {found}, expected {count} numbers")
    return found


def _same_length(xs: Sequence[Any], axes: Sequence[int]) -> int:
    """The size that arrays have along these axes. Raises :class:`ShapeError` where it
    is not one."""
    sizes = [x.shape[a] for x, a in zip(xs, axes, strict=True)]
    if len({*sizes}) != 1:
        raise ShapeError(f"inputs have {sizes} slices, expected as many of each")
    return int(sizes[0])


def _expect_lengths(lengths: Any, most: int) -> None:
    """Raise :class:`BoundsError` where a sequence is known to be longer than there are
    steps."""
    if is_known(lengths) and not ((lengths >= 0) & (lengths <= most)).all():
        raise BoundsError(
            f"input 'sequence_lens' is {lengths.tolist()}, and allowed are 0 to {most}"
        )


def _step_of(body: Any, call: Any) -> Step:
    """A graph as a step, given what is around it."""

    def step(states: Arrays, now: Arrays, around: Arrays) -> tuple[Arrays, Arrays]:
        values = dict(zip(body.captured, around, strict=True))
        found = call.within_a_program(values).graph(body, *states, *now)
        return tuple(found[: len(states)]), tuple(found[len(states) :])

    return step


# -- recurrent networks ----------------------------------------------------------------

Cell = Callable[[Any, Arrays, Arrays], Arrays]
"""Of x Wᵀ + b of one step, states of n × hidden, and weights: new states."""


def _run(
    x: Any,
    layout: int,
    lengths: Any,
    direction: str,
    starts: Sequence[Any],
    w: Any,
    b: Any,
    cell_of: Callable[[int], tuple[Cell, Sequence[Shared]]],
    call: Any,
) -> tuple[Any, ...]:
    """Outputs of all steps and the last states, of one or two directions.

    ``cell_of`` a direction gives its cell, and what that makes of weights. States are
    kept where a sequence has ended. The inputs of all steps are one product, and what
    is made of weights is made once: a program holds each array that it meets.
    """
    x = np.swapaxes(x, 0, 1) if layout else x
    length = x.shape[0]
    if lengths is not None:
        _expect_lengths(lengths, length)
    if length > MOST_STEPS and not is_known(x):
        raise EqsatError(f"a sequence of more than {MOST_STEPS} steps")
    count = 2 if direction == "bidirectional" else 1
    outputs, lasts = [], []
    for d in range(count):
        backward = direction == "reverse" or d == 1
        state, (cell, shared) = tuple(s[d] for s in starts), cell_of(d)
        inputs, step = x @ w[d].T + b[d], _masked(cell)
        parts = None
        if length > MOST_STEPS and call.repeated is not None:
            slices = [inputs]
            if lengths is not None:
                slices.append(np.arange(length)[:, None] < lengths)
            ordered = [s[::-1] if backward else s for s in slices]
            what = call.node, d
            parts = call.repeated.run(what, step, state, ordered, shared)
        if parts is not None:
            state, (y,) = parts
            y = y[::-1] if backward else y
        else:
            found: list[Any] = [None] * length
            weights = tuple(s.array for s in shared)
            for t in range(length - 1, -1, -1) if backward else range(length):
                going = () if lengths is None else (t < lengths,)
                state, (found[t],) = step(state, (inputs[t], *going), weights)
            y = np.stack(found) if found else np.zeros((0, *state[0].shape), x.dtype)
        outputs.append(y)
        lasts.append(state)
    y = np.stack(outputs, axis=1)
    last = [np.stack(states) for states in zip(*lasts, strict=True)]
    if layout:
        y = np.transpose(y, (2, 0, 1, 3))
        last = [np.swapaxes(s, 0, 1) for s in last]
    return y, *last


def _masked(cell: Cell) -> Step:
    """A cell as a step that gives the first state, and keeps all where a sequence has
    ended."""

    def step(states: Arrays, now: Arrays, weights: Arrays) -> tuple[Arrays, Arrays]:
        x, *going = now
        new = cell(x, states, weights)
        h = new[0]
        for is_there in going:
            lasts = is_there[:, None]
            new = tuple(np.where(lasts, n, s) for n, s in zip(new, states, strict=True))
            h = np.where(lasts, h, 0).astype(h.dtype)
        return new, (h,)

    return step


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


def _expect_sizes(
    arrays: Mapping[str, Any],
    gates: int,
    direction: str,
    hidden_size: int | None,
    layout: int,
) -> None:
    """Raise :class:`ShapeError` for inputs by name that do not fit each other."""
    x, r = arrays["X"], arrays["R"]
    expect_shape("X", x, None, None, None)
    expect_shape("R", r, None, None, None)
    count = 2 if direction == "bidirectional" else 1
    m = r.shape[2] if hidden_size is None else hidden_size
    n = x.shape[0] if layout else x.shape[1]
    state = (n, count, m) if layout else (count, n, m)
    expected = {
        "W": (count, gates * m, x.shape[2]),
        "R": (count, gates * m, m),
        "B": (count, 2 * gates * m),
        "sequence_lens": (n,),
        "initial_h": state,
        "initial_c": state,
        "P": (count, 3 * m),
    }
    for name, shape in expected.items():
        expect_shape(name, arrays.get(name), *shape)


def _clipped(clip: float | None) -> Function:
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
    call: Any,
) -> Any:
    """h' = f(x Wᵀ + h Rᵀ + b)."""
    given = {"X": x, "W": w, "R": r, "B": b, "sequence_lens": lengths, "initial_h": h0}
    _expect_sizes(given, 1, direction, hidden_size, layout)
    count, _, hidden = r.shape
    rows = activations_of(
        activations, activation_alpha, activation_beta, ["Tanh"], count
    )
    bw, br = _halves(b, x, w)
    cut = _clipped(clip)

    def cell_of(d: int) -> tuple[Cell, Sequence[Shared]]:
        f = rows[d][0]
        return lambda x, state, weights: (f(cut(x + state[0] @ weights[0])),), [
            Shared(r[d].T, r)
        ]

    starts = _starts(x, layout, count, hidden, [h0])
    return _run(x, layout, lengths, direction, starts, w, bw + br, cell_of, call)


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
    call: Any,
) -> Any:
    """Gated units with an update and a reset."""
    given = {"X": x, "W": w, "R": r, "B": b, "sequence_lens": lengths, "initial_h": h0}
    _expect_sizes(given, 3, direction, hidden_size, layout)
    count, _, m = r.shape
    default = ["Sigmoid", "Tanh"]
    rows = activations_of(
        activations, activation_alpha, activation_beta, default, count
    )
    bw, br = _halves(b, x, w)
    cut = _clipped(clip)

    def cell_of(d: int) -> tuple[Cell, Sequence[Shared]]:
        f, g = rows[d]

        def cell(x: Any, state: Arrays, weights: Arrays) -> Arrays:
            (h,), (of_gates, of_new, b_gates, b_new) = state, weights
            gates = f(cut(x[:, : 2 * m] + (h @ of_gates + b_gates)))
            z, reset = gates[:, :m], gates[:, m:]
            if linear_before_reset:
                new = x[:, 2 * m :] + reset * (h @ of_new + b_new)
            else:
                new = x[:, 2 * m :] + (reset * h) @ of_new + b_new
            return ((1 - z) * g(cut(new)) + z * h,)

        of_gates, of_new = r[d, : 2 * m].T, r[d, 2 * m :].T
        biases = br[d, : 2 * m], br[d, 2 * m :]
        of_b = br if b is None else b
        return cell, [
            *(Shared(x, r) for x in (of_gates, of_new)),
            *(Shared(x, of_b) for x in biases),
        ]

    starts = _starts(x, layout, count, m, [h0])
    return _run(x, layout, lengths, direction, starts, w, bw, cell_of, call)


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
    call: Any,
) -> Any:
    """Long short-term memory with peepholes."""
    given = {"X": x, "W": w, "R": r, "B": b, "sequence_lens": lengths}
    given |= {"initial_h": h0, "initial_c": c0, "P": p}
    _expect_sizes(given, 4, direction, hidden_size, layout)
    count, _, m = r.shape
    default = ["Sigmoid", "Tanh", "Tanh"]
    rows = activations_of(
        activations, activation_alpha, activation_beta, default, count
    )
    bw, br = _halves(b, x, w)
    cut = _clipped(clip)

    def cell_of(d: int) -> tuple[Cell, Sequence[Shared]]:
        f, g, last = rows[d]

        def cell(x: Any, state: Arrays, weights: Arrays) -> Arrays:
            (h, c), (rt, *peep) = state, weights
            gates = x + h @ rt
            i, o, forget, new = (gates[:, k * m : (k + 1) * m] for k in range(4))
            if peep:
                i, forget = i + peep[0] * c, forget + peep[2] * c
            i = f(cut(i))
            keep = 1 - i if input_forget else f(cut(forget))
            c = keep * c + i * g(cut(new))
            o = f(cut(o + peep[1] * c if peep else o))
            return o * last(c), c

        peeps = () if p is None else (p[d, k * m : (k + 1) * m] for k in range(3))
        return cell, [Shared(r[d].T, r), *(Shared(x, p) for x in peeps)]

    starts = _starts(x, layout, count, m, [h0, c0])
    return _run(x, layout, lengths, direction, starts, w, bw + br, cell_of, call)
