"""Calls that run beside their caller, and how many of them at once.

One call that is alone may use a whole team of threads. Several have one thread each, at
most as many as the team has. A call that starts alone is waited for by later ones.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from eqsat.support import EqsatError


@dataclass(frozen=True)
class WorkerTeam:
    """Threads that run a program together."""

    threads: int
    run_alone: Callable[[int], None] | None
    """Keeps programs to one thread each, while the sum of what it is given is not 0."""


@dataclass(eq=False)
class _Call:
    team: WorkerTeam
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    future: Future[Any] = field(default_factory=Future)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    has_team: bool = False

    def finish(self, done: Callable[[], None]) -> None:
        """Run it, call ``done``, and tell the future, which may call back."""
        result, error = None, None
        try:
            result = self.context.run(self.function, *self.args, **self.kwargs)
        except BaseException as raised:  # any error is the future's
            error = raised
        done()
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class _Queue:
    """Calls of this process, in the order of their submission."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        self._at_work: set[_Call] = set()
        self.open: set[Future[Any]] = set()
        """Those that may not have their result yet."""

    def submit(self, call: _Call) -> None:
        with self._lock:
            self._waiting.append(call)
            self.open.add(call.future)
        if not self._start():
            with self._lock:
                if call not in self._waiting:  # another thread took it
                    return
                self._waiting.remove(call)
                self.open.discard(call.future)
            raise EqsatError("submit: no thread can be started")

    def _start(self) -> bool:
        """Start threads for the calls that may begin; False where the system has
        none."""
        with self._lock:
            for call in self._beginning():
                try:
                    threading.Thread(target=self._work, args=(call,)).start()
                except RuntimeError:  # of Python at its end, or too many threads
                    self._end(call)
                    self._waiting.appendleft(call)
                    return bool(self._at_work)
        return True

    def _work(self, call: _Call) -> None:
        while True:
            if call.future.set_running_or_notify_cancel():
                call.finish(lambda c=call: self._over(c))  # type: ignore[misc]
            else:
                self._over(call)
            self.open.discard(call.future)
            with self._lock:  # what no thread could be started for
                next_one = next(self._beginning(), None)
            if next_one is None:
                return
            call = next_one

    def _over(self, call: _Call) -> None:
        with self._lock:
            self._end(call)
        self._start()

    def _beginning(self) -> Iterator[_Call]:
        """The calls that may begin now, which are at work from now on."""
        while self._waiting:
            call = self._waiting[0]
            most = min(c.team.threads for c in (call, *self._at_work))
            if len(self._at_work) >= most or any(c.has_team for c in self._at_work):
                return
            self._waiting.popleft()
            call.has_team = not self._at_work and not self._waiting
            self._at_work.add(call)
            if not call.has_team and call.team.run_alone is not None:
                call.team.run_alone(1)
            yield call

    def _end(self, call: _Call) -> None:
        self._at_work.remove(call)
        if not call.has_team and call.team.run_alone is not None:
            call.team.run_alone(-1)


_queue = [_Queue()]


def submitted(
    team: WorkerTeam,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Future[Any]:
    """The future of a call, which begins as soon as a thread of its team is free.

    Raises :class:`EqsatError` where the system starts no thread.
    """
    call = _Call(team, function, args, kwargs)
    _queue[0].submit(call)
    return call.future


def _in_child() -> None:
    """No thread of the parent is there, and what it held nobody lets go."""
    lost, _queue[0] = _queue[0], _Queue()
    for future in lost.open:
        future.__init__()  # type: ignore[misc]  # with a lock that is open
        future.set_exception(
            EqsatError("this call was submitted before the fork; submit it again")
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
