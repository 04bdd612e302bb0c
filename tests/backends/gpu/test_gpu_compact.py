"""Kernels shortened for their compiler."""

from __future__ import annotations

import re

import numpy as np
import pytest
from bodies import fused_op
from programs import program_of

from eqsat import ops
from eqsat.backends.gpu.c_code.dialect import DIALECTS
from eqsat.backends.gpu.gpu_program import Generated, parts_of
from eqsat.backends.gpu.minify import compact

CASES = {
    "comments go": ("// x\nint a; // y\n", "int a;\n"),
    "text stays": ('asm("a  //b \\" ;" : "+f"(x));', 'asm("a  //b \\" ;":"+f"(x));\n'),
    "words stay apart": ("return  x ;\nint y", "return x;int y\n"),
    "signs stay apart": ("a - -b + +c < ::d & &e", "a- -b+ +c< ::d& &e\n"),
    "lines join": ("for (;;)\n  x += 1;\n", "for(;;)x+=1;\n"),
    "directives keep their lines": (
        "a;\n  #pragma  unroll 4\nb;\n#endif\n",
        "a;\n#pragma unroll 4\nb;\n#endif\n",
    ),
    "our names shrink": ("eq_x(EqY, e0, seq_z, eq_x)", "e1(e2,e0,seq_z,e1)\n"),
}


@pytest.mark.parametrize("name", CASES)
def test_bodies(name: str) -> None:
    text, wanted = CASES[name]
    assert compact("", text) == ("", wanted)


def test_macros_that_nothing_uses_go() -> None:
    header = "#define EQ_A EQ_B\n#define EQ_B 1\n#define EQ_C EQ_D\n#define EQ_D (2)\n"
    assert compact(header, "x = EQ_C;") == (
        "#define e0 e1\n#define e1 (2)\n",
        "x=e0;\n",
    )


PROGRAMS = {
    "map": lambda x: np.exp(x) * x + 1,
    "softmax": ops.softmax,
    "sum": lambda x: np.sum(np.maximum(x * x, 2), 0),
    "argmax": lambda x: np.argmax(x * x, 0),
}


def tokens(text: str) -> list[str]:
    """What a compiler reads, our names told apart by where they came first."""
    text = re.sub(r"//[^\n]*", "", text)
    found = re.findall(r'"[^"]*"|\w+|[^\s\w]', text)
    own: dict[str, str] = {}
    return [
        (
            own.setdefault(t, f"own {len(own)}")
            if re.match(r"eq_|Eq[A-Z]|EQ_|e\d+$", t)
            else t
        )
        for t in found
    ]


@pytest.mark.parametrize("language", DIALECTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_keep_their_tokens(name: str, language: str) -> None:
    program = program_of(
        fused_op(f"short_{name}", PROGRAMS[name], 1), np.ones((64, 256), "f4")
    )
    (kernel,) = program.kernels
    for part in parts_of(kernel, DIALECTS[language], {}):
        assert isinstance(part, Generated)
        header, body = part.source.header, part.source.body
        short, inside = compact(header, body)
        assert 0.75 * len(header + body) > len(short + inside)
        used = "\n".join(
            line
            for line in header.splitlines()
            if not (m := re.match(r"#define (\w+)", line))
            or len(re.findall(rf"\b{m[1]}\b", header + body)) > 1
        )
        assert tokens(f"{short}\n{inside}") == tokens(f"{used}\n{body}")
        assert compact(short, inside) == (short, inside)
