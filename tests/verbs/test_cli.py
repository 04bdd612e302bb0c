"""The command: arguments, messages for what is missing or wrong, status, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from eqsat.command.cli import main
from eqsat.command.functions import parse_spec
from eqsat.support.errors import EqsatError

MODEL = """
import numpy as np
import sizes_of_this_model
import eqsat as eq

def forward(x, w, scale):
    return np.tanh(x @ w * scale)

def shifted(x, by=0.5):
    return x + by

def branches(x):
    return x if x > 0 else -x

@eq.jit
def compiled(x):
    return np.exp(x)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A file of functions, beside a module that it imports."""
    (tmp_path / "sizes_of_this_model.py").write_text("")
    (tmp_path / "model.py").write_text(MODEL)
    return str(tmp_path / "model.py")


def explain(*words: str) -> Result:
    return CliRunner().invoke(main, ["explain", *words])


def refused(*words: str, status: int = 2) -> str:
    """What `eqsat explain` says on standard error when it refuses, cleanly."""
    result = explain(*words)
    assert result.exit_code == status, result.output
    assert isinstance(result.exception, SystemExit) and not result.stdout
    return result.stderr


@pytest.mark.parametrize(
    "text, name, shape, dtype",
    [
        ("512x768:f32", None, (512, 768), "float32"),
        ("8:i64", None, (8,), "int64"),
        ("0x3:u8", None, (0, 3), "uint8"),
        ("scalar:f64", None, (), "float64"),
        ("mask=2x1:bool", "mask", (2, 1), "bool"),
        ("4:bf16", None, (4,), "bfloat16"),
        ("4:float16", None, (4,), "float16"),
    ],
)
def test_a_spec_gives_a_name_a_shape_and_a_dtype(
    text: str, name: str | None, shape: tuple[int, ...], dtype: str
) -> None:
    got, spec = parse_spec(text)
    assert (got, spec.shape, spec.dtype.name) == (name, shape, dtype)


@pytest.mark.parametrize(
    "words",
    [
        ["--arg", "20x30:f32", "--arg", "30x40:f32", "--arg", "scalar:f32"],
        ["--arg", "20x30:f32", "--arg", "scale=scalar:f32", "--arg", "w=30x40:f32"],
    ],
)
def test_explain_prints_text_or_json_alone(model: str, words: list[str]) -> None:
    result = explain(f"{model}:forward", *words)
    assert result.exit_code == 0, result.output
    assert "tanh" in result.stdout
    result = explain(f"{model}:forward", *words, "--json", "--backend", "numpy")
    assert json.loads(result.stdout)["kernels"]


RULES = """
from eqsat import rule
from eqsat.ops import exp

@rule("...")
def twice(x):
    '''e^x + e^x = 2 e^x.'''
    return exp(x) + exp(x), exp(x) * 2.0
"""


def test_questions_are_answered_below_the_table(model: str, tmp_path: Path) -> None:
    rules = tmp_path / "my_rules.py"
    rules.write_text(RULES)
    words = [f"{model}:compiled", "--arg", "7:f32", "--rules", str(rules)]
    asked = [*words, "--why", "exp_0", "--why-not", "twice"]
    table, why, why_not = explain(*asked).stdout.split("\n\n")
    assert table.startswith("kernel") and why.startswith("exp_0: exp\n  exp(x)")
    assert why_not.startswith("twice: it never matched: expected add of exp_0")
    assert f"rule {rules}:5" in why_not
    record = json.loads(explain(*asked, "--json").stdout)
    assert record["kernels"] and record["why"]["exp_0"][0]["text"] == "exp(x)"
    assert record["why_not"]["twice"]["kind"] == "op"


def test_names_that_are_not_there_are_wrong_use(model: str) -> None:
    words = [f"{model}:compiled", "--arg", "7:f32"]
    for wrong, said in (
        (["--why", "sin_0"], "no kernel 'sin_0'; there are exp_0"),
        (["--why", "exp_1"], "no kernel 'exp_1'; did you mean 'exp_0'?"),
        (["--why-not", "factor_merge"], "did you mean 'factors_merge'?"),
        (["--rules", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["--backend", "nativ"], "numpy; did you mean 'native'?"),
    ):
        assert said in flat(refused(*words, *wrong))
    done = CliRunner().invoke(main, ["check", "nowhere.py"])
    assert done.exit_code == 2 and "there is no file 'nowhere.py'" in done.stderr


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield " ".join([*path, name]), command


@pytest.mark.parametrize("name, command", list(commands(main)))
def test_every_command_describes_its_options_and_has_json(
    name: str, command: click.Command
) -> None:
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert command.help and not [o.name for o in options if not o.help]
    assert "as_json" in [o.name for o in options]


def test_json_alone_is_on_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "model.py"
    file.write_text("print('hello')\n\n\ndef f(x):\n    return x / 0 * [1, -1, 0]\n")
    target = [f"{file}:f", "--arg", "3:f64", "--json"]
    done = CliRunner().invoke(main, ["run", *target])
    (output,) = json.loads(done.stdout, parse_constant=pytest.fail)["outputs"]
    assert "hello" in done.stderr and set(output["elements"]) <= {"inf", "-inf", "nan"}
    done = CliRunner().invoke(main, ["cache", "clear", "--json"])
    assert json.loads(done.stdout)["removed"] >= 0


def test_a_function_that_is_compiled_already_and_defaults(model: str) -> None:
    assert explain(f"{model}:compiled", "--arg", "7:f32").exit_code == 0
    assert explain(f"{model}:shifted", "--arg", "7:f32").exit_code == 0


@pytest.mark.parametrize(
    "target, said",
    [
        ("model.py", "'model.py': expected FILE.py:FUNC, such as model.py:forward"),
        ("nowhere.py:f", "there is no file 'nowhere.py'; expected FILE.py:FUNC"),
    ],
)
def test_a_target_that_is_none(target: str, said: str) -> None:
    assert said in flat(refused(target))


def test_a_missing_function_is_answered_with_near_names(model: str) -> None:
    said = flat(refused(f"{model}:foward"))
    assert "has no function 'foward'; did you mean forward?" in said
    said = flat(refused(f"{model}:zzz"))
    assert "it has branches, compiled, forward, shifted" in said


@pytest.mark.parametrize(
    "spec, said",
    [
        ("512x768", "'512x768': expected [NAME=]SHAPE:DTYPE, such as 512x768:f32"),
        ("12by3:f32", "'12by3' is not a shape; expected [NAME=]SHAPE:DTYPE"),
        (":f32", "'' is not a shape"),
        ("3:f99", "'f99' is not a dtype; known are f16, bf16, f32, f64"),
        ("3:complex256", "'complex256' is not a dtype"),
    ],
)
def test_a_bad_spec_is_shown_with_what_was_expected(
    model: str, spec: str, said: str
) -> None:
    assert said in flat(refused(f"{model}:shifted", "--arg", spec))


def test_arguments_that_do_not_fit_the_function(model: str) -> None:
    said = flat(refused(f"{model}:forward", "--arg", "3:f32"))
    assert "missing a required argument: 'w'" in said and "(x, w, scale)" in said
    assert "a shape" not in said
    said = flat(refused(f"{model}:forward"))
    assert "a shape and a dtype of each: --arg 512x768:f32" in said
    twice = ["--arg", "x=3:f32", "--arg", "x=4:f32"]
    assert "'x' is given twice" in flat(refused(f"{model}:shifted", *twice))


def test_an_error_of_the_library_is_one_message(model: str) -> None:
    words = [f"{model}:branches", "--arg", "3:f32"]
    said = refused(*words, status=1)
    assert said.startswith("Error: ") and "Traceback" not in said
    debugged = explain(*words, "--debug")
    assert isinstance(debugged.exception, EqsatError)


def test_a_file_that_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import numpy\n1 / 0\n")
    said = flat(refused(f"{tmp_path / 'broken.py'}:f", status=1))
    assert "broken.py does not load: ZeroDivisionError: division by zero" in said


def flat(text: str) -> str:
    """``text`` without line breaks, which click puts where the terminal ends."""
    return " ".join(text.split())
