"""What loops take: the statements that are run, and the bytes that are moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from eqsat.kernels import between

from ...loop_ir import (
    Accumulate,
    Compute,
    Const,
    DType,
    Gather,
    Keep,
    Kept,
    Load,
    LoopVar,
    Nest,
    Pass,
    Position,
    Running,
    Scatter,
    Statement,
    Store,
    Within,
    operands,
    variables,
    weight,
)
from ..loops import is_wide, overlaps, shape_of, stretch
from ..machine import Host
from .rates import ANY, ClockRates, entry

LINE, PAGE, PAGES = 64, 4096, 1024
"""Bytes of a cache line and of a page of memory, and pages whose places a processor
knows at once."""
IN_WORK = 115
"""Additions of vectors that a processor has in work at once; kernels of 34 of them in a
row and of seven ``tanh`` agree on it (AMD EPYC, Zen 4)."""
WAITS = 4.5
"""How many times as long an operation takes that waits for the one before it."""
SINGLE = 0.5
"""What an addition of two numbers takes of that of two vectors."""
EXTREME = 3
"""Operations that keep the position of an extreme."""
NUMBER = "number"
"""What follows the name of a function of an array and a number."""


@dataclass(frozen=True)
class Spent:
    """Seconds of one core."""

    computing: float = 0.0
    moving: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.computing + other.computing, self.moving + other.moving)


@dataclass(frozen=True)
class Room:
    """Where a buffer of a nest lies, and how many bytes there are."""

    place: object
    bytes: float


@dataclass(frozen=True)
class _Turns:
    """How often a pass begins its loop over the elements of a row, and how often it
    runs the body."""

    starts: float
    vectors: float
    singles: float
    """How often for a vector of elements, and for one alone."""
    lane: LoopVar | None
    """The variable that elements of a vector differ in."""


class NestClock:
    """Counts what one nest does."""

    def __init__(
        self, nest: Nest, rooms: Sequence[Room], rates: ClockRates, host: Host
    ) -> None:
        self.nest, self.rooms, self.rates, self.host = nest, rooms, rates, host
        self.narrow = rates.vector_bits / host.vector_bits
        self.shape = shape_of(nest, host)
        self.follow = variables(nest)
        named = [s for s in nest.statements() if not isinstance(s, (Keep, Store))]
        self.dtypes = {s.target: s.dtype for s in named}
        self.numbers = {s.target: s.value for s in named if isinstance(s, Const)}

    def spent(self) -> Spent:
        """About how long it takes."""
        return Spent(sum(map(self._pass, self.nest.passes)), self._moved())

    def _pass(self, p: Pass) -> float:
        turns = self._turns(p)
        once, each = self._body(p, turns, self.shape.lanes)
        spent = turns.starts * (self.rates.row_s + once) + turns.vectors * each
        if turns.singles:
            spent += turns.singles * self._body(p, turns, 1)[1]
        return spent

    def _body(self, p: Pass, turns: _Turns, lanes: int) -> tuple[float, float]:
        """Seconds of what is computed once a row, and of the body for so many
        elements."""
        beside = lanes if self.nest.vertical else 1
        once = sum(self._statement(s, turns, beside, p) for s in p.before)
        each = 0.0
        chain: dict[int, float] = {}  # from the start of the body to each value
        for s in p.body:
            spent = self._statement(s, turns, lanes, p)
            if not self._is_of_elements(s, p, turns):
                once += spent
                continue
            each += spent
            if not isinstance(s, (Keep, Store)):
                before = (chain.get(a, 0.0) for a in operands(s))
                chain[s.target] = spent + max(before, default=0.0)
        if not self.nest.vertical:
            sums = sum(isinstance(s, Accumulate) for s in p.body)
            once += sums * self.rates.reduced_s
        # The processor works on several steps at once, as far as it looks ahead.
        unroll = self.shape.unroll if lanes > 1 else 1
        together = each * unroll
        ahead = max(1.0, IN_WORK * self.rates.vectors[ANY] / max(together, 1e-15))
        waiting = WAITS * max(chain.values(), default=0.0)
        return once, max(each, waiting / (ahead * unroll))

    def _is_of_elements(self, s: Statement, p: Pass, turns: _Turns) -> bool:
        """Whether a statement of a body is run for each element: what does not follow
        the loops is computed before them."""
        if turns.lane is None or isinstance(s, (Accumulate, Keep, Store)):
            return True
        return bool(self.follow[s.target] & {*p.loops, turns.lane})

    def _turns(self, p: Pass) -> _Turns:
        nest, lanes = self.nest, self.shape.lanes
        shared = nest.chunk.size if nest.chunk is not None else 1
        total = nest.rows / shared * prod(v.size for v in p.loops)
        if nest.vertical:
            lane = nest.grid[-1]
            whole, rest = _steps(lane.size, lanes, is_wide(nest))
            each, rows = total / lane.size, nest.rows / lane.size
            return _Turns(rows * (whole + rest), each * whole, each * rest, lane)
        if (run := stretch(nest, self.host)) is not None:
            runs = total / (run.size * run.across.size)
            return _Turns(runs, total / lanes, 0.0, p.loops[-1])
        if not p.loops:
            return _Turns(nest.rows, 0.0, nest.rows if p.body else 0.0, None)
        lane = p.loops[-1]
        whole, rest = _steps(lane.size, lanes, overlaps(nest, lane.size, lanes))
        each = total / lane.size
        return _Turns(max(nest.rows, each), each * whole, each * rest, lane)

    def _statement(self, s: Statement, turns: _Turns, lanes: int, p: Pass) -> float:
        """Seconds of a statement for the elements of a vector."""
        rates, light = self.rates, self._light(s, lanes)
        match s:
            case Const():
                return 0.0
            case Compute():
                return self._function(s, lanes)
            case Gather() if turns.lane is None or turns.lane in self.follow[s.by]:
                return lanes * between(rates.gathers, self.rooms[s.buffer].bytes)
            case Scatter():
                return lanes * between(rates.scatters, self.rooms[s.buffer].bytes)
            case Gather() | Load() | Store():
                return light + self._apart(s, turns, lanes, p)
            case Running():
                return lanes * float(entry(rates.running, f"{s.op} {s.dtype}"))
            case Accumulate():
                return light * (EXTREME if s.position >= 0 else 1)
            case Keep() | Kept() | Within() | Position():
                return light
        return light

    def _light(self, s: Statement, lanes: int) -> float:
        """Seconds of an addition, of vectors or of single numbers."""
        dtype = self.dtypes[s.value] if isinstance(s, (Keep, Store)) else s.dtype
        kind = str(dtype) if dtype.kind not in "bui" or dtype == "int64" else "int32"
        found = float(entry(self.rates.vectors, kind))
        return found * (self.narrow if lanes > 1 else SINGLE)

    def _function(self, s: Compute, lanes: int) -> float:
        light, of = self._light(s, lanes), self.dtypes[s.args[-1]]
        number = self.numbers.get(s.args[-1]) if len(s.args) == 2 else None
        if number is not None and of.kind in "iu" and _is_power_of_two(number):
            return 2 * light  # shifts and masks
        keys = [f"{s.op} {of}"] if number is None else [f"{s.op} {NUMBER} {of}"]
        if weight(s.op) > weight("divide"):  # halves are computed as float32
            keys += [f"{s.op} {d}" for d in (of, s.dtype, "float32", "float64")]
        each = next(
            (self.rates.functions[k] for k in keys if k in self.rates.functions), None
        )
        if each is None:
            return light * weight(s.op)
        if lanes == 1:  # the same instructions, of which a core runs more at once
            return max(light, each * self._natural(of) * SINGLE)
        return max(light, each * self.narrow * lanes)

    def _natural(self, dtype: DType) -> float:
        """Elements of a vector of nothing else."""
        return self.rates.vector_bits / (8 * max(dtype.itemsize, 4))

    def _apart(
        self, s: Gather | Load | Store, turns: _Turns, lanes: int, p: Pass
    ) -> float:
        """Seconds to bring elements together that do not lie side by side."""
        step = 0 if turns.lane is None else s.at.coefficient(turns.lane)
        if lanes == 1 or step in (0, 1):
            return 0.0
        near = any(s.at.coefficient(v) == 1 for v in p.loops)
        apart = [v.size for v, c in s.at.terms if abs(c) * self._size(s) >= PAGE]
        if near or prod(apart) <= PAGES:
            return lanes * between(self.rates.apart, self._bytes(s))
        follow = any(s.at.coefficient(v) == 1 for v in self.nest.grid)
        return lanes * self.rates.far_s / (2 if follow else 1)

    def _moved(self) -> float:
        """Seconds to move what is read and written, each part of memory once, and of a
        row again what a pass after the first reads."""
        read: dict[object, float] = {}
        written: dict[object, float] = {}
        every = 0.0
        for p in self.nest.passes:
            seen: dict[object, float] = {}
            for s in (*p.before, *p.body):
                if isinstance(s, Scatter):
                    continue
                if isinstance(s, Gather):
                    wanted = float(self.nest.elements * self._size(s))
                    place: object = self.rooms[s.buffer].place, s.by
                    seen[place] = min(wanted, self.rooms[s.buffer].bytes or wanted)
                elif isinstance(s, (Load, Store)):
                    into = written if isinstance(s, Store) else seen
                    into[self.rooms[s.buffer].place, s.at.terms] = self._lines(s)
            every += sum(seen.values())
            read |= seen
        once, out = sum(read.values()), sum(written.values())
        total = once + out
        found = once * between(self.rates.reads, total) + out * between(
            self.rates.writes, total
        )
        row = total / max(1, self.nest.rows)
        return found + (every - once) * between(self.rates.reads, row)

    def _lines(self, s: Load | Store) -> float:
        """Bytes of the cache lines of what is read or written."""
        steps = [abs(c) for _, c in s.at.terms]
        least = min(steps, default=1) * self._size(s)
        return self._bytes(s) * min(LINE, max(least, self._size(s))) / self._size(s)

    def _bytes(self, s: Gather | Load | Store) -> float:
        return float(self._size(s) * prod(v.size for v in s.at.variables))

    def _size(self, s: Gather | Load | Store) -> int:
        dtype: DType = self.nest.buffers[s.buffer].dtype
        return dtype.itemsize


def _steps(n: int, lanes: int, is_whole: bool) -> tuple[int, int]:
    """Steps that ``n`` elements take: vectors, and single elements at the end where the
    last vector cannot be a whole one."""
    full, rest = divmod(n, lanes)
    return (full + bool(rest), 0) if is_whole else (full, rest)


def _is_power_of_two(number: float) -> bool:
    return number >= 1 and not int(number) & (int(number) - 1)
