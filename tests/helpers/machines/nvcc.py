"""Generated CUDA kernels compiled by NVIDIA's compiler, which takes no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from metal.model import TYPES, Unit

COMPILER = shutil.which("nvcc")
ARCHITECTURE = "sm_90"


def text_of(units: Sequence[Unit]) -> str:
    """The functions as MLX writes them, each in a namespace of its own."""
    lines = [f"#include <{n}>" for n in ("cuda_fp16.h", "cuda_bf16.h", "cstdint")]
    for i, u in enumerate(units):
        args = [f"const {kind(d)}* {n}" for n, d, _ in u.inputs]
        args += [f"{kind(d)}* {n}" for n, d, _ in u.outputs]
        lines += [
            f"namespace k{i} {{",
            u.header,
            f"__global__ void kernel({', '.join(args)}) {{",
            u.body,
            "}",
            "}",
            *(f"#undef {m}" for m in re.findall(r"^#define (\w+)", u.header, re.M)),
        ]
    return "\n".join(lines)


def kind(dtype: str) -> str:
    """The type of elements in memory."""
    return TYPES["cuda"].get(dtype) or ("bool" if dtype == "bool" else f"{dtype}_t")


def assert_compiles(units: Sequence[Unit], to: str = "-ptx") -> None:
    """Raises :class:`AssertionError` with what the compiler says."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernels.cu"
        source.write_text(text_of(units), encoding="utf-8")
        flags = [to, f"-arch={ARCHITECTURE}", "-w", "-std=c++17"]
        done = subprocess.run(
            [str(COMPILER), *flags, str(source), "-o", str(Path(folder) / "out")],
            capture_output=True,
            text=True,
        )
        assert not done.returncode, done.stderr[:4000]
