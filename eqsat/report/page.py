"""One page of HTML that holds all it needs: no network, no other file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

SCRIPTS = ("program.js", "tables.js", "plots.js", "page.js")


def page(document: Mapping[str, Any]) -> str:
    """The page that shows a document.

    What a user wrote reaches it as JSON alone, in which ``<`` is an escape, and its
    script puts it on the page as text: no name can become markup.
    """
    data = json.dumps(document, ensure_ascii=False, allow_nan=False)
    for mark in "<>&\u2028\u2029":
        data = data.replace(mark, f"\\u{ord(mark):04x}")
    parts = {
        "title": escape(str(document["title"])),
        "style": _file("page.css"),
        "script": "\n".join(map(_file, SCRIPTS)),
        "data": data,
    }
    text = _file("page.html")
    for name, part in parts.items():  # the data last: it may hold any text
        text = text.replace(f"{{{{{name}}}}}", part)
    return text


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
