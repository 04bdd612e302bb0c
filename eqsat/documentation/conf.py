"""How Sphinx builds the documentation: ``sphinx-build -W -n -b html eqsat/documentation
build/documentation``.

A fenced block ``{made} NAME WORDS`` of a page is replaced by what
``programs/page_parts.py`` says under that name: a table from ``bench/results``, the ops
of a module, a file of another folder.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE / "programs"), str(ROOT)]

import page_parts  # noqa: E402

import eqsat  # noqa: E402

project = "eqsat"
copyright = "the eqsat authors"
release = version = eqsat.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"eqsat {release}"
html_show_copyright = False
exclude_patterns = ["programs/**"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!eqsat\.\w+$).*")]
"""Names of the inside, which docstrings name for those who read the code."""
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
ABSENT = ("functorch", "mlx", "onnx", "torch")
autodoc_mock_imports = [n for n in ABSENT if find_spec(n) is None]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
suppress_warnings = ["misc.highlighting_failure"]

MODULES = "define condition testing onnx pytorch mlx random".split()
PUBLIC = ["eqsat", *(f"eqsat.{name}" for name in MODULES)]

INSIDE = (
    "__init__ call drop is_array lift made_at_end namespace place term within".split()
)
"""Members that are public for other parts of eqsat, not for users."""

MADE = re.compile(r"^```\{made\} (\w+) ?(.*)\n```$", re.MULTILINE)


def replace(app: Any, page: str, source: list[str]) -> None:
    """Puts what is made into the text of a page."""
    source[0] = MADE.sub(lambda m: page_parts.MAKERS[m[1]](*m[2].split()), source[0])


def resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """A reference to a public name as the module that defines it says it."""
    python, target = env.domains["py"], node.get("reftarget", "")
    names = (target, target.rpartition(".")[2])
    for full in (f"{start}.{name}" for name in names for start in PUBLIC):
        if full in python.objects:
            there = (env, node["refdoc"], app.builder, "obj", full, node, content)
            return python.resolve_xref(*there)
    return None


def is_inside(
    app: Any, kind: str, name: str, value: Any, skip: bool, options: Any
) -> bool | None:
    """Whether a member is for eqsat itself."""
    return True if name in INSIDE else None


def setup(app: Any) -> None:
    for language in ("printed", "measured"):
        app.add_lexer(language, TextLexer)
    app.connect("source-read", replace)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-skip-member", is_inside)
