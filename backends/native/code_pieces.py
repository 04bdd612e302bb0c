"""The machine code of one program while it is made, piece by piece, with an eye on the
clock.

A piece is LLVM IR that is written and compiled before the next one is begun: a program
of few groups, or the functions of some groups of a long one. What a piece costs is not
known beforehand: it differs tenfold between kernels, and twofold with what else the
machine does. So nothing is predicted: a piece is begun where there is time left, and
the seconds that earlier ones took say whether those to come can all be made in full.

Where that is far from doubtful, LLVM compiles a piece in a second thread while the next
ones are written: half a second of a model's 3.7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

from eqsat.support import Deadline

from .function_library import address_of
from .machine import Host, holds_llvm, let_go_of_llvm

Compile = Callable[[str, Host, str], bytes]
Code = Callable[[], bytes]
"""Object code of a piece, when it has been made."""
SURE = 2.0
"""How many times the seconds that the others need in full must be left, so that nobody
has to wait for what a piece takes."""


class CodePieces:
    """What has been compiled of a program; nothing is, any more, after a ``with`` of
    it. ``deadline``: when no piece is begun but the first one."""

    def __init__(self, host: Host, deadline: Deadline, make: Compile) -> None:
        self.host, self.deadline, self._make = host, deadline, make
        self.texts: list[str] = []
        self.quick_lines = 0
        """Of LLVM IR that was compiled the quick way."""
        self._full_s, self._full = 0.0, 0
        self._pieces = 0
        self._noted = self._spent
        self._worker: ThreadPoolExecutor | None = None
        self._late: list[Code] = []
        """Pieces that the second thread has."""
        self._beside_s = 0.0
        """What it took for pieces."""
        self._held = True
        """Whether this thread held LLVM's lock when pieces were begun."""

    def __enter__(self) -> CodePieces:
        self._held = holds_llvm()
        return self

    def __exit__(self, *error: object) -> None:
        self._let_go()
        if self._worker is not None:
            self._worker.shutdown(cancel_futures=True)
            self._worker = None

    def _let_go(self) -> None:
        """Before this thread waits for the second one: of LLVM's lock, which it keeps
        where an interrupt came just after it was taken."""
        if not self._held:
            let_go_of_llvm()

    def has_time(self) -> bool:
        """Whether to begin a piece."""
        return not self._pieces or self.deadline.left > 0

    def passes(self, left: int) -> str:
        """How to compile the next piece, where so many functions are left, it among
        them: in full, unless by the seconds of those so far the others would take
        longer than there is time."""
        if not self._is_sure(left):
            self._wait()
        return "quick" if self._need(left) > self.deadline.left else "short"

    def _need(self, left: int) -> float:
        """Seconds of so many functions in full."""
        spent = self._full_s + self._beside_s
        return spent / self._full * left if self._full else 0.0

    def _is_sure(self, left: int) -> bool:
        return self._full > 0 and SURE * self._need(left) < self.deadline.left

    def _wait(self) -> None:
        self._let_go()
        for code in self._late:
            code()
        self._late.clear()

    def begin(
        self, text: str, functions: Sequence[str], passes: str, left: int = 0
    ) -> Code:
        """Begin a piece as :meth:`compiled` makes it. So many functions are ``left``,
        it among them; 0 where nothing is written meanwhile."""
        self.texts.append(text)
        if passes == "quick":
            self.quick_lines += text.count("\n")
        if left and self._is_sure(left) and not holds_llvm():
            try:
                if self._worker is None:
                    self._worker = ThreadPoolExecutor(1, "eqsat code")
                piece = partial(self._beside, text, functions, passes)
                made_beside = self._worker.submit(copy_context().run, piece)
            except RuntimeError:  # no thread is begun any more where Python ends
                pass
            else:
                self._late.append(made_beside.result)
                return partial(self._waited, made_beside)
        made = self.compiled(text, functions, passes)
        return lambda: made

    def _waited(self, made: Future[bytes]) -> bytes:
        self._let_go()
        return made.result()

    def _beside(self, text: str, functions: Sequence[str], passes: str) -> bytes:
        """The same in the second thread, the only one that adds to these sums."""
        clock = Deadline(math.inf)
        code = self._make(text, self.host, passes)
        self._beside_s += clock.spent
        self._addresses(functions)
        self.deadline.beside_s += clock.spent
        return code

    def compiled(self, text: str, functions: Sequence[str], passes: str) -> bytes:
        """Object code of a piece, and of the ``functions`` that it calls."""
        code = self._make(text, self.host, passes)
        before = self._spent
        self._addresses(functions)
        # Made once, whatever is left: the next pieces do not take as long.
        self._noted += self._spent - before
        return code

    def _addresses(self, functions: Sequence[str]) -> None:
        for name in functions:
            address_of(name, self.host)

    @property
    def _spent(self) -> float:
        """Seconds of this thread."""
        return self.deadline.spent - self.deadline.beside_s

    def in_full(self, text: str, code: Code) -> Code:
        """``code`` of a piece that was compiled the quick way, or if there is time left
        in the end, what is made of its ``text`` in full."""
        if self.deadline.left <= 0:
            return code
        self.quick_lines -= text.count("\n")
        made = self._make(text, self.host, "short")
        return lambda: made

    def note(self, passes: str, functions: int) -> None:
        """A piece of so many functions was written and compiled since the last call."""
        self._pieces += 1
        now = self._spent
        if passes == "short":
            self._full_s += now - self._noted
            self._full += functions
        self._noted = now
