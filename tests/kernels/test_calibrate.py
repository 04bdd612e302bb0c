"""Measured devices: kept, used, shown and forgotten."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import eqsat as eq
from eqsat.backends.native import NativeBackend
from eqsat.backends.native import backend as native
from eqsat.backends.numpy import NumpyBackend
from eqsat.command.cli import main
from eqsat.kernels import measure_numpy
from eqsat.kernels.calibrate import (
    forget,
    keep,
    machine,
    measure_cpu,
    measured,
    numpy_calls,
    record,
)
from eqsat.kernels.cost_model import CPU, Device
from eqsat.kernels.numpy_call_times import shipped
from eqsat.support import device_file
from eqsat.support.errors import CacheWarning


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CONFIG_DIR", str(tmp_path))


def test_what_is_kept_is_used_until_it_is_forgotten() -> None:
    assert NumpyBackend().model.device == CPU
    slow = Device("slow", 1.0, 1e3, 1e2, ((1e3, 4.0), (math.inf, 2.0)))
    keep("numpy", slow)
    assert measured("numpy", CPU) == slow and measured("other", CPU) == CPU
    assert NumpyBackend().model.device == slow
    assert forget() and not forget()
    assert measured("numpy", CPU) == CPU


def test_a_file_that_is_not_ours_is_named() -> None:
    plain = record(CPU)
    wrong = [{"name": 1}, [], 3, plain | {"bandwidths": []}, plain | {"launch_s": "x"}]
    wrong += [plain | {"flops_per_s": bad} for bad in (0, -1.0, math.inf, math.nan)]
    here = [json.dumps({machine(): {"numpy": w}}) for w in wrong]
    deep = ["[" * n + "]" * n for n in (900, 100_000)]
    deep += ['{"a":' * 100_000 + "1" + "}" * 100_000, '{"a": ' + deep[1] + "}"]
    for text in ("{", "", "[]", "3", "\ud800", *deep, *here):
        device_file().write_bytes(text.encode(errors="surrogatepass"))
        with pytest.raises(eq.OptionError) as caught:
            measured("numpy", CPU)
        assert str(device_file()) in str(caught.value)
        keep("numpy", CPU)
        assert measured("numpy", CPU) == CPU


def test_a_file_that_others_can_change_is_not_used(tmp_path: Path) -> None:
    slow = replace(CPU, name="slow")
    keep("numpy", slow)
    assert device_file().stat().st_mode & 0o777 == 0o600
    device_file().chmod(0o666)
    with pytest.warns(CacheWarning, match="devices.json is not used: others can"):
        assert measured("numpy", CPU) == CPU
    assert measured("numpy", CPU) == CPU
    device_file().chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.warns(CacheWarning, match=f"{tmp_path}: it has mode 0777"):
        assert measured("numpy", CPU) == CPU
    with pytest.raises(eq.OptionError, match=f"cannot write {device_file()}: "):
        keep("numpy", slow)
    tmp_path.chmod(0o700)
    assert measured("numpy", CPU) == slow


@pytest.mark.slow
def test_measuring_gives_a_device_that_kernels_can_be_priced_on() -> None:
    told: list[str] = []
    found = measure_cpu("numpy", CPU, told.append)
    assert told[0] == "calls" and len(told) > 5
    assert found.launch_s > 0 and found.flops_per_s > 0
    rooms, rates = zip(*found.bandwidths, strict=True)
    assert list(rooms) == sorted(rooms) and rooms[-1] == math.inf
    assert list(rates) == sorted(rates, reverse=True) and rates[-1] > 0


def test_a_core_is_measured_with_machine_code() -> None:
    told: list[str] = []
    shipped = native.model.device
    found = native.measure(told.append)
    assert told[0] == "kernels" and told[-1].startswith("memory")
    assert found.name == "native" and found.step_s == 0
    assert 0 < found.launch_s < 1e-3
    for rate in ("flops_per_s", "map_flops_per_s"):  # of any core of these years
        assert 1e8 < getattr(found, rate) < 1e13
    rooms, rates = zip(*found.bandwidths, strict=True)
    assert list(rooms) == sorted(rooms) and rooms[-1] == math.inf
    assert list(rates) == sorted(rates, reverse=True) and rates[-1] > 1e7
    keep("native", found)
    assert NativeBackend().model.device == found != shipped


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "variable", "name"),
    [
        ([], "", "native"),
        ([], "numpy", "numpy"),
        (["--backend", "numpy"], "native", "numpy"),
    ],
)
def test_the_command_measures_the_default_backend(
    words: list[str], variable: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_BACKEND", variable)
    for backend in (NativeBackend, NumpyBackend):
        made = replace(CPU, name=f"measured {backend().name}")
        monkeypatch.setattr(backend, "measure", lambda self, progress, made=made: made)
    calls = replace(shipped(), name="NumPy of a test")
    monkeypatch.setattr(measure_numpy, "measure_numpy", lambda name, progress: calls)
    run = CliRunner().invoke(main, ["calibrate", *words])
    assert run.exit_code == 0 and f"\nmeasured {name}\n" in run.output
    assert measured(name, CPU).name == f"measured {name}"
    assert numpy_calls() == calls
    other = {"native": "numpy", "numpy": "native"}[name]
    assert measured(other, CPU) == CPU


def test_the_command_shows_and_forgets() -> None:
    run = CliRunner()
    shown = run.invoke(main, ["calibrate", "--show"])
    assert shown.exit_code == 0 and "start of a kernel" in shown.output
    record = json.loads(run.invoke(main, ["calibrate", "--show", "--json"]).output)
    assert record["bandwidths"][-1][0] is None
    assert "nothing was kept" in run.invoke(main, ["calibrate", "--reset"]).output
    again = run.invoke(main, ["calibrate", "--reset", "--json"])
    assert json.loads(again.stdout) == {"forgotten": False}
    assert run.invoke(main, ["calibrate", "--backend", "no"]).exit_code == 2
