"""`eqsat run`, `check`, `bench` and `explain` of models and functions: inputs, results,
statuses, and what they say to wrong ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from eqsat.command import comparison, targets
from eqsat.command.cli import main

onnx = pytest.importorskip("onnx")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper
W = np.random.default_rng(0).standard_normal((3, 4), np.float32)
FUNCTIONS = """
import numpy as np

def forward(x, w):
    return np.tanh(x @ w)
"""


@pytest.fixture
def images(tmp_path: Path) -> str:
    """A model of batches of images: the mean colour times a matrix, and its largest."""
    axes = {"axes": numpy_helper.from_array(np.array([2, 3]), "axes")}
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["best"], axis=1, keepdims=0),
    ]
    return made(
        tmp_path / "images.onnx",
        nodes,
        [("x", TensorProto.FLOAT, ["batch", 3, 8, None])],
        [("y", TensorProto.FLOAT, None), ("best", TensorProto.INT64, None)],
        [*axes.values(), numpy_helper.from_array(W, "w")],
    )


def made(path: Path, nodes: Any, inputs: Any, outputs: Any, initial: Any = ()) -> str:
    """A model in a file."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info(*i) for i in inputs], [info(*o) for o in outputs], initial
    )
    opsets = [helper.make_opsetid("", 18)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    path.write_bytes(proto.SerializeToString())
    return str(path)


@pytest.fixture
def functions(tmp_path: Path) -> str:
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    return f"{path}:forward"


def eqsat(*words: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == status, result.output
    return result


def refused(*words: str, status: int = 2) -> str:
    """What a command says when it refuses, on one line."""
    result = eqsat(*words, status=status)
    assert not result.stdout
    return " ".join(result.stderr.partition("Error: ")[2].split())


def elements(*words: str) -> list[Any]:
    """The outputs of `eqsat run`."""
    record = json.loads(eqsat("run", *words, "--json").stdout)
    return [np.array(o["elements"]) for o in record["outputs"]]


# -- run -------------------------------------------------------------------------------


def test_run_shows_outputs_and_keeps_them(images: str, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    sizes = ["--dim", "batch=2", "--dim", "x.3=5"]
    lines = eqsat("run", images, *sizes, "--out", str(out)).stdout.splitlines()
    assert lines[0].split() == "output type least most first elements".split()
    assert lines[1].startswith("y       2×4 float32  ") and lines[1].endswith(" …")
    assert lines[2].startswith("best    2 int64      ")
    with np.load(out) as kept:
        assert kept["y"].shape == (2, 4) and kept["best"].dtype == np.int64
        again, best = elements(images, *sizes)
        np.testing.assert_allclose(again, kept["y"], rtol=1e-6)
        np.testing.assert_array_equal(best, kept["best"])
    other, _ = elements(images, *sizes, "--seed", "1")
    assert (other != again).any()


def test_inputs_of_files(images: str, functions: str, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 6), np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "all.npz", x=x)
    want = x.mean((2, 3)) @ W
    for words in ("x.npy", "all.npz"):
        y, best = elements(images, "--input", str(tmp_path / words))
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(best, want.argmax(1))
    np.save(tmp_path / "m.npy", W)
    named = f"w={tmp_path / 'm.npy'}"
    (y,) = elements(functions, "--arg", "2x3:f32", "--input", named)
    drawn = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(y, np.tanh(drawn @ W), rtol=1e-5)


def test_images_are_resized_and_scaled(images: str, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((16, 10, 3), np.uint8)
    pixels[..., 1] = 51
    file = tmp_path / "green.png"
    image.fromarray(pixels).save(file)
    y, _ = elements(images, "--input", str(file))
    np.testing.assert_allclose(y, 0.2 * W[1:2], rtol=1e-6)
    words = ["--scale", "1", "--mean", "1,2,3", "--std", "2"]
    y, _ = elements(images, "--input", f"x={file}", *words)
    want = (np.float32([0, 51, 0]) - [1, 2, 3]) / 2
    np.testing.assert_allclose(y[0], want @ W, rtol=1e-5)
    said = refused("run", images, "--input", str(file), "--mean", "1,2", status=1)
    assert said == "--mean has 2 numbers; expected 1, or 3: one for each channel"
    said = refused("run", images, "--input", str(file), "--std", "1,0,1", status=1)
    assert said == "--std is 0, and numbers are divided by it"
    layout = ["--layout", "nhwc"]
    said = refused("run", images, "--input", str(file), *layout, status=1)
    assert said == (
        "input 'x' (float32, batch×3×8×x.3) takes no image in nhwc; an image has axes "
        "nchw, nhwc, chw, hwc, hw with 1, 3 or 4 channels"
    )


def test_grey_images_and_layouts(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    file = tmp_path / "grey.png"
    image.fromarray(np.full((4, 6), 255, np.uint8)).save(file)
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    for element, sizes, layout, one in (
        (TensorProto.UINT8, [1, 4, 6, 1], "nhwc", 255),
        (TensorProto.FLOAT, [4, 6], None, 1),
        (TensorProto.FLOAT, None, "chw", 1),
    ):
        name = made(
            tmp_path / "m.onnx", nodes, [("x", element, sizes)], [("y", element, None)]
        )
        words = ["--layout", layout] if layout else []
        (y,) = elements(name, "--input", str(file), *words)
        assert y.shape == tuple(sizes or (1, 4, 6)) and (y == one).all()
        if element == TensorProto.UINT8:
            words = [*words, "--mean", "256"]
            said = refused("run", name, "--input", str(file), *words, status=1)
            assert "holds 0 to 255, and the numbers are -1 to 0" in said
    said = refused("run", name, "--input", str(file), status=1)
    assert said.startswith("input 'x' (float32, any shape): the layout of an image")


def test_images_of_functions_have_their_own_channels(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    path, file = tmp_path / "own.py", tmp_path / "own.png"
    path.write_text("def f(x): return x * 1\n")
    for mode, shape in (("L", (4, 6)), ("RGB", (4, 6, 3)), ("RGBA", (4, 6, 4))):
        image.fromarray(np.full(shape, 51, np.uint8), mode).save(file)
        (y,) = elements(f"{path}:f", "--input", str(file), "--layout", "hwc")
        assert y.shape == (*shape, 1)[:3] and np.allclose(y, 0.2)
    image.fromarray(np.full((4, 6), 40000, np.uint16)).save(file)
    words = ["run", f"{path}:f", "--input", str(file), "--layout", "hw"]
    assert "its pixels have more than 8 bits" in refused(*words, status=1)


def test_results_that_cannot_be_written(images: str) -> None:
    sizes = ["--dim", "batch=2", "--dim", "x.3=5"]
    said = eqsat("run", images, *sizes, "--out", "/nowhere/o.npz", status=1).output
    assert "/nowhere/o.npz cannot be written" in said


# -- what is wrong ---------------------------------------------------------------------

MESSAGES: dict[str, Callable[[str], list[str]]] = {
    "input 'x' (float32, batch×3×8×x.3): axes batch, x.3 have no size; give "
    "--dim batch=1 --dim x.3=1, or --arg x=1x3x8x1:float32, or a file by --input": (
        lambda model: ["run", model]
    ),
    "Invalid value for --dim: there is no axis 'bath' without a size; did you mean "
    "'batch'?": lambda model: ["run", model, "--dim", "bath=1"],
    "Invalid value for --dim: 'batch': expected NAME=SIZE, such as batch=1": (
        lambda model: ["run", model, "--dim", "batch"]
    ),
    "there is no input 'y'; there are x": (
        lambda model: ["run", model, "--arg", "y=1x3x8x2:f32"]
    ),
    "input 'x' is given twice": (
        lambda model: ["run", model, "--arg", "x=1:f32", "--arg", "x=2:f32"]
    ),
    "2 inputs without a name, and the model has 1 more: x": (
        lambda model: ["run", model, "--arg", "1:f32", "--arg", "2:f32"]
    ),
    "Invalid value for --input: there is no file 'nowhere.npy'; expected [NAME=]FILE": (
        lambda model: ["run", model, "--input", "x=nowhere.npy"]
    ),
    "Invalid value for MODEL: there is no file 'nowhere.onnx'": (
        lambda model: ["run", "nowhere.onnx"]
    ),
    "Invalid value for --out: out.npy: expected a file .npz": (
        lambda model: ["run", model, "--out", "out.npy"]
    ),
    "--jobs is for rules, and this is a model": (
        lambda model: ["check", model, "--jobs", "2"]
    ),
    "--dim is for models": lambda model: ["check", "rules.py", "--dim", "batch=1"],
    "Invalid value for --scale: no --input is an image": (
        lambda model: ["run", model, *SIZES, "--scale", "2"]
    ),
    "Invalid value for --std: no --input is an image": (
        lambda model: ["run", model, *SIZES, "--std", "0"]
    ),
    "Invalid value for --dim: batch=3, but what is given has 2 there": (
        lambda model: ["run", model, "--arg", "2x3x8x2:f32", "--dim", "batch=3"]
    ),
    "Invalid value for '--mean': 'red': expected numbers with commas between, such as "
    "0.5,0.5,0.5": lambda model: ["run", model, "--mean", "red"],
}


@pytest.mark.parametrize("said", MESSAGES)
def test_wrong_usage(said: str, images: str) -> None:
    assert refused(*MESSAGES[said](images)) == said


def test_errors_name_the_file(images: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    text = tmp_path / "text.txt"
    text.write_text("no image")
    said = refused("run", images, "--input", str(text), status=1)
    assert f"{text} is no .npy, no .npz and no image" in said
    broken = tmp_path / "broken.npy"
    broken.write_bytes(b"no array")
    said = refused("run", images, "--input", str(broken), status=1)
    assert f"{broken} does not load as an array" in said
    said = refused("run", images, "--arg", "1x4x8x2:f32", status=1)
    assert "'x' has shape (any, 3, 8, any), got (1, 4, 8, 2)" in said


# -- explain, check, bench -------------------------------------------------------------


def test_explain_of_a_model(images: str) -> None:
    words = ["explain", images, "--arg", "1x3x8x4:f32"]
    assert "kernel" in eqsat(*words).stdout.splitlines()[0]
    record = json.loads(eqsat(*words, "--json").stdout)
    assert record["programs"][0]["kernels"] and record["on_host"] == {}


SIZES = ["--dim", "batch=2", "--dim", "x.3=5"]


def test_check_compares_with_the_reference_and_onnx_runtime(images: str) -> None:
    pytest.importorskip("onnxruntime")
    lines = eqsat("check", images, *SIZES).stdout.splitlines()
    assert len(lines) == 3 and all(line.endswith("agrees") for line in lines[1:])
    record = json.loads(eqsat("check", images, *SIZES, "--json").stdout)
    first, best = record["outputs"]
    assert record["agree"] and 0 < first["error"] <= first["bound"] < 1e-5
    assert best["bound"] == best["error"] == best["peer_error"] == 0


def test_check_finds_differences(
    images: str, functions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["check", functions, "--arg", "3x4:f32", "--arg", "4x5:f32"]
    assert "agrees" in eqsat(*words).stdout
    call = targets.FunctionTarget.call

    def other(self: Any, given: Any) -> Any:
        return {n: a * np.float32(1.001) for n, a in call(self, given).items()}

    monkeypatch.setattr(targets.FunctionTarget, "call", other)
    said = eqsat(*words, status=1).stdout
    assert said.rstrip().endswith("differs from its reference")

    def peer(path: Path, threads: int) -> Any:
        return lambda values: {"y": np.zeros((2, 4)), "best": np.ones(2, np.int64)}

    monkeypatch.setattr(comparison, "PEERS", {"ONNX Runtime": peer})
    lines = eqsat("check", images, *SIZES, status=1).stdout.splitlines()
    assert "other type" in lines[1] and lines[1].endswith("from ONNX Runtime")


def test_arguments_that_a_function_writes_to_are_outputs(tmp_path: Path) -> None:
    path = tmp_path / "writes.py"
    path.write_text(
        "def scale(x, y):\n    x *= 3\n    y[...] = x + 1\n"
        "def same(x, y):\n    x[x > 99] = 0\n    return x + y\n"
    )
    sizes = "--arg", "5:f32", "--arg", "y=5:f32"
    record = json.loads(eqsat("run", f"{path}:scale", *sizes, "--json").stdout)
    x, y = record["outputs"]
    assert (x["name"], y["name"]) == ("argument x", "argument y")
    np.testing.assert_allclose(np.array(x["elements"]) + 1, y["elements"], 1e-6)
    for name in ("scale", "same"):
        lines = eqsat("check", f"{path}:{name}", *sizes).stdout.splitlines()
        assert len(lines) == 3 and all(line.endswith("agrees") for line in lines[1:])
    lines = eqsat("bench", f"{path}:scale", *sizes).stdout
    assert lines.splitlines()[1].startswith("eqsat")


def test_bench_times_all_sides(images: str, functions: str) -> None:
    words = [*SIZES, "--budget", "0s", "--threads", "1"]
    record = json.loads(eqsat("bench", images, *words, "--json").stdout)
    sides = record["sides"]
    assert set(sides) == {"eqsat", "ONNX Runtime", "OpenVINO"}
    assert record["threads"] == 1 and record["rounds"] >= 5
    for side in sides.values():
        if "failed" not in side:
            low, high = side["quartiles_s"]
            assert 0 < side["min_s"] <= low <= side["median_s"] <= high
            assert side["difference"] < 1e-5
    words = ["--arg", "3x4:f32", "--arg", "4x5:f32", "--budget", "0s"]
    table = eqsat("bench", functions, *words).stdout.splitlines()
    assert [line.split()[0] for line in table[1:3]] == ["eqsat", "NumPy"]
