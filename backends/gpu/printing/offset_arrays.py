"""CUDA kernels over slices: arrays that begin at any element of another."""

from __future__ import annotations

import re

_LOAD = re.compile(r"\b(eq_load(?:_kept)?)<(\d+)>\((\w+)")
WHOLE = "EqWhole"


def for_slices(body: str) -> str:
    """A kernel's text with packed loads in two versions: for inputs that begin on 16
    bytes, as all do but slices, and for others.

    A test in each load makes all loads of elements part of every kernel, predicated
    off: on an H200 bfloat16 maps with GELU then take 20 % longer, logarithms of sums
    of exponentials 25 %.
    """
    inputs = sorted({m[3] for m in _LOAD.finditer(body)})
    if not inputs:
        return body
    lines = _LOAD.sub(r"\1<\2, decltype(whole)::value>(\3", body).splitlines()
    shared = [line for line in lines if line.startswith("EQ_SHARED ")]
    own = [f"  {line}" for line in lines if not line.startswith("EQ_SHARED ")]
    places = " | ".join(f"uint64_t({name})" for name in inputs)
    return "\n".join(
        [
            *shared,
            "const auto run = [&](auto whole) {",
            *own,
            "};",
            f"if (({places}) % 16) {{",
            f"  run({WHOLE}<false>());",
            "} else {",
            f"  run({WHOLE}<true>());",
            "}",
            "",
        ]
    )
