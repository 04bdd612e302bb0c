"""The machine code of one program while it is made, piece by piece, with an eye on the
clock.

A piece is LLVM IR that is written and compiled before the next one is begun: a program
of few groups, or the functions of some groups of a long one. What a piece costs is not
known beforehand: it differs tenfold between kernels, and twofold with what else the
machine does. So nothing is predicted: a piece is begun where there is time left, and
the seconds that earlier ones took say whether those to come can all be made in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.support import Deadline

from .function_library import address_of
from .machine import Host

Compile = Callable[[str, Host, str], bytes]


class CodePieces:
    """What has been compiled of a program. ``deadline``: when no piece is begun but the
    first one."""

    def __init__(self, host: Host, deadline: Deadline, make: Compile) -> None:
        self.host, self.deadline, self._make = host, deadline, make
        self.texts: list[str] = []
        self.quick_lines = 0
        """Of LLVM IR that was compiled the quick way."""
        self._full_s, self._full = 0.0, 0
        self._noted = deadline.spent

    def has_time(self) -> bool:
        """Whether to begin a piece."""
        return not self.texts or self.deadline.left > 0

    def passes(self, left: int) -> str:
        """How to compile the next piece, where so many functions are left, it among
        them: in full, unless by the seconds of those so far the others would take
        longer than there is time."""
        need = self._full_s / self._full * left if self._full else 0.0
        return "quick" if need > self.deadline.left else "short"

    def compiled(self, text: str, functions: Sequence[str], passes: str) -> bytes:
        """Object code of a piece, and of the ``functions`` that it calls."""
        self.texts.append(text)
        if passes == "quick":
            self.quick_lines += text.count("\n")
        code = self._make(text, self.host, passes)
        before = self.deadline.spent
        for name in functions:
            address_of(name, self.host)
        # Made once, whatever is left: the next pieces do not take as long.
        self._noted += self.deadline.spent - before
        return code

    def in_full(self, text: str, code: bytes) -> bytes:
        """``code`` of a piece that was compiled the quick way, or if there is time left
        in the end, what is made of its ``text`` in full."""
        if self.deadline.left <= 0:
            return code
        self.quick_lines -= text.count("\n")
        return self._make(text, self.host, "short")

    def note(self, passes: str, functions: int) -> None:
        """So many functions were written and compiled since the last call."""
        now = self.deadline.spent
        if passes == "short":
            self._full_s += now - self._noted
            self._full += functions
        self._noted = now
