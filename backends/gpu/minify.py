"""Kernels as short text: what a compiler needs of the text that people read.

MLX copies the text of a kernel whenever a call is recorded, and on CUDA hashes it again
whenever one is run: 1.7 µs of a core for 4,600 bytes, 0.6 for 2,000.
"""

from __future__ import annotations

import re
from itertools import count

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*')
_SPACE = re.compile(r'"(?:[^"\\]|\\.)*"|\s+')
_DIRECTIVE = re.compile(r"^[ \t]*(#.*\n?)", re.MULTILINE)
_MACRO = re.compile(r"#define (\w+)")
_OWN = re.compile(r"\b(?:eq_|Eq(?=[A-Z])|EQ_)\w+")
"""Names of functions, types and macros of ours."""
_WORD = re.compile(r'[\w."]')
_MARKS = frozenset("+-*/%&|^<>=!:")
"""What may mean something else side by side."""


def compact(header: str, body: str) -> tuple[str, str]:
    """What precedes the function of a kernel, and its body, without comments, macros
    that neither uses, and blank space that separates nothing, our names shortened: as
    many tokens, in the same order."""
    lines, inside = _lines(header), _lines(body)
    text = "\n".join([*lines, *inside])
    while True:
        used = [line for line in lines if _is_used(line, text)]
        if used == lines:
            break
        lines, text = used, "\n".join([*used, *inside])
    own = dict.fromkeys(_OWN.findall(text))
    taken = set(re.findall(r"\w+", text))
    free = (name for i in count() if (name := f"e{i}") not in taken)
    short = dict(zip(own, free, strict=False))
    head, rest = ("".join(f"{line}\n" for line in part) for part in (lines, inside))
    return _OWN.sub(lambda m: short[m[0]], head), _OWN.sub(lambda m: short[m[0]], rest)


def _lines(source: str) -> list[str]:
    """Directives, and what stands between them on one line each."""
    parts = _DIRECTIVE.split(_COMMENT.sub(lambda m: m[1] or "", source))
    return [line for part in parts if (line := _SPACE.sub(_spaced, part.strip()))]


def _spaced(match: re.Match[str]) -> str:
    if match[0].startswith('"'):
        return match[0]
    if match.string.startswith("#"):
        return " "
    left, right = match.string[match.start() - 1], match.string[match.end()]
    words = _WORD.match(left) and _WORD.match(right)
    return " " if words or (left in _MARKS and right in _MARKS) else ""


def _is_used(line: str, text: str) -> bool:
    """Whether a line defines no macro, or one that is used."""
    name = _MACRO.match(line)
    return name is None or len(re.findall(rf"\b{name[1]}\b", text)) > 1
