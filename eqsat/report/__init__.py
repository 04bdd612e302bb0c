"""What an explanation looks like: a page of HTML, drawings of graphs as text.

Knows plain values alone, the documents that :mod:`eqsat.explain.document` describes;
nothing of programs or searches. Start with ``page.py``.
"""

from eqsat.report.drawings import dot, mermaid
from eqsat.report.layout import placed
from eqsat.report.page import page
