"""What is no array of numbers: sequences, as lists; optional values, as None or what
they hold; text, as arrays of objects, and counts of its n-grams."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np

from eqsat.onnx.operators.table import axis_of, ints, known, number, operator, sized
from eqsat.support import ShapeError


@operator("SequenceConstruct")
def sequence_construct(*xs: Any) -> Any:
    """A sequence of arrays."""
    return [*xs]


@operator("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> Any:
    """A sequence of nothing."""
    return []


def _place(s: Any, place: Any, most: int) -> int:
    i = int(number(place))
    at = i + len(s) if i < 0 else i
    if not 0 <= at <= most:
        raise IndexError(f"position {i} of a sequence of {len(s)}")
    return at


@operator("SequenceAt")
def sequence_at(s: Any, place: Any) -> Any:
    """One array of a sequence."""
    return s[_place(s, place, len(s) - 1)]


@operator("SequenceInsert")
def sequence_insert(s: Any, x: Any, place: Any = None) -> Any:
    """A sequence with one array more, by default at its end."""
    at = len(s) if place is None else _place(s, place, len(s))
    return [*s[:at], x, *s[at:]]


@operator("SequenceErase")
def sequence_erase(s: Any, place: Any = None) -> Any:
    """A sequence without one array, by default its last."""
    at = len(s) - 1 if place is None else _place(s, place, len(s) - 1)
    return [*s[:at], *s[at + 1 :]]


@operator("SequenceLength")
def sequence_length(s: Any) -> Any:
    """How many arrays there are."""
    return np.array(len(s), np.int64)


@operator("SequenceMap")
def sequence_map(s: Any, *others: Any, body: Any, call: Any) -> Any:
    """The outputs of a graph for each array, as sequences."""
    sizes = [len(o) for o in (s, *others) if isinstance(o, list)]
    if len({*sizes}) > 1:
        raise ShapeError(f"sequences of {sizes} arrays, expected as many in each")
    rows = [
        call.graph(body, x, *(o[i] if isinstance(o, list) else o for o in others))
        for i, x in enumerate(s)
    ]
    count = len(body.outputs)
    return tuple([row[i] for row in rows] for i in range(count))


@operator("SplitToSequence")
def split_to_sequence(x: Any, sizes: Any = None, *, axis: int, keepdims: int) -> Any:
    """Parts of x along an axis."""
    a = axis_of(axis, x.ndim)
    n = x.shape[a]
    before = (slice(None),) * a
    if sizes is None:
        if keepdims:
            return [x[(*before, slice(i, i + 1))] for i in range(n)]
        return [x[(*before, i)] for i in range(n)]
    each = ints(sizes) or []
    if np.ndim(sizes) == 0:
        if each[0] < 1:
            raise ValueError(f"input 'split' is {each[0]}, expected 1 or more")
        each = [min(each[0], n - i) for i in range(0, n, each[0])]
    if sum(each) != n or min(each, default=0) < 0:
        raise ValueError(f"sizes {each} do not add to {n}, those of axis {axis}")
    ends = np.cumsum([0, *each]).tolist()
    return [x[(*before, slice(a, b))] for a, b in itertools.pairwise(ends)]


@operator("ConcatFromSequence")
def concat_from_sequence(s: Any, *, axis: int, new_axis: int) -> Any:
    """The arrays of a sequence as one."""
    if not s:
        raise ValueError("the sequence is empty")
    a = axis_of(axis, s[0].ndim + bool(new_axis))
    return np.stack(s, axis=a) if new_axis else np.concatenate(s, axis=a)


@operator("Optional")
def optional(x: Any = None, *, type: Any = None) -> Any:
    """What may be missing."""
    return x


@operator("OptionalGetElement")
def optional_get_element(x: Any) -> Any:
    """What is there. Raises ``ValueError`` where nothing is."""
    if x is None:
        raise ValueError("the optional value is missing")
    return x


@operator("OptionalHasElement")
def optional_has_element(x: Any = None) -> Any:
    """Whether anything is there."""
    return np.array(x is not None)


# -- text ------------------------------------------------------------------------------


@operator("StringConcat", on_host=True)
def string_concat(x: Any, y: Any) -> Any:
    """Texts behind each other."""
    return np.asarray(known(x) + known(y), object)


@operator("StringSplit", on_host=True)
def string_split(
    x: Any, *, delimiter: str | None = None, maxsplit: int | None = None
) -> Any:
    """Parts of texts, filled up with empty ones, and how many there are of each."""
    most = -1 if maxsplit is None else maxsplit
    rows = [str(t).split(delimiter or None, most) for t in known(x).reshape(-1)]
    counts = np.array([len(r) for r in rows], np.int64).reshape(x.shape)
    width = max(map(len, rows), default=0)
    made = np.full((len(rows), width), "", object)
    for i, row in enumerate(rows):
        made[i, : len(row)] = row
    return made.reshape(*x.shape, width), counts


@operator("RegexFullMatch", on_host=True)
def regex_full_match(x: Any, *, pattern: str) -> Any:
    """Whether a pattern describes a whole text."""
    rule = re.compile(pattern)
    found = [rule.fullmatch(str(t)) is not None for t in known(x).reshape(-1)]
    return np.array(found, bool).reshape(x.shape)


@operator("StringNormalizer", on_host=True)
def string_normalizer(
    x: Any,
    *,
    case_change_action: str,
    is_case_sensitive: int,
    locale: str = "",
    stopwords: Any = None,
) -> Any:
    """Texts without stop words, in one case."""
    words = [*(stopwords or ())]
    known_words = set(words if is_case_sensitive else map(str.lower, words))
    rows = known(x).reshape(-1, x.shape[-1])
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case_change_action, str)
    made = []
    for row in rows:
        kept = [
            t for t in row if (t if is_case_sensitive else t.lower()) not in known_words
        ]
        made.append([change(t) for t in kept] or [""])
    width = max(map(len, made), default=0)
    found = np.full((len(made), width), "", object)
    for i, texts in enumerate(made):
        found[i, : len(texts)] = texts
    return found if x.ndim > 1 else found[0]


@operator("TfIdfVectorizer", on_host=True)
def tf_idf(
    x: Any,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Any,
    ngram_indexes: Any,
    pool_int64s: Any = None,
    pool_strings: Any = None,
    weights: Any = None,
) -> Any:
    """How often n-grams of a pool occur."""
    pool = pool_int64s if pool_strings is None else pool_strings
    places: dict[tuple[Any, ...], int] = {}
    starts = [*ngram_counts, len(pool)]
    gram = 0
    for n, (a, b) in enumerate(itertools.pairwise(starts), 1):
        for i in range(a, b, n):
            places[tuple(pool[i : i + n])] = gram
            gram += 1
    rows = known(x).reshape(1, -1) if x.ndim < 2 else known(x)
    shape = sized((len(rows), max(ngram_indexes) + 1), np.float32)
    made = np.zeros(shape, np.float32)
    for counts, row in zip(made, rows, strict=True):
        items = row.tolist()
        for n in range(min_gram_length, max_gram_length + 1):
            for skip in range(1, (max_skip_count + 1 if n > 1 else 1) + 1):
                for i in range(len(items) - (n - 1) * skip):
                    found = places.get(tuple(items[i : i + n * skip : skip][:n]))
                    if found is not None:
                        counts[ngram_indexes[found]] += 1
    scale = np.ones(made.shape[1], np.float32)
    if weights is not None:
        for i, w in zip(ngram_indexes, weights, strict=True):
            scale[i] = w
    if mode == "TF":
        y = made
    else:
        y = (made > 0).astype(np.float32) * scale if mode == "IDF" else made * scale
    return y if x.ndim > 1 else y[0]
