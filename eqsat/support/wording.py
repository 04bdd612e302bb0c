"""English of messages: articles and plurals."""

from __future__ import annotations

from html import escape

_IRREGULAR = {"axis": "axes", "index": "indices"}
_LIKE_YOU = ("uint", "ufunc", "union", "unit")


def an(noun: str) -> str:
    """``noun`` with its article.

    >>> an("int"), an("'float'"), an("uint8 array"), an("ndarray")
    ('an int', "a 'float'", 'a uint8 array', 'an ndarray')
    """
    sound = noun.lstrip("'\"`").lower()
    is_vowel = sound.startswith((*"aeiou", "ndarray"))
    return f"{'an' if is_vowel and not sound.startswith(_LIKE_YOU) else 'a'} {noun}"


def counted(n: int, noun: str) -> str:
    """``n`` and the noun, in the plural unless ``n`` is 1.

    >>> counted(1, "kernel"), counted(0, "kernel"), counted(2, "axis")
    ('1 kernel', '0 kernels', '2 axes')
    >>> counted(2, "entry"), counted(2, "array"), counted(2, "e-class")
    ('2 entries', '2 arrays', '2 e-classes')
    """
    return f"{n} {noun if n == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def as_html(text: str) -> str:
    """A text as a notebook shows it: every character as it is, in columns.

    >>> as_html("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escape(text)}</pre>"
