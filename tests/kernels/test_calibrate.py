"""Measured devices: kept, used, shown and forgotten."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

import eqsat as eq
from eqsat.backends.numpy import NumpyBackend
from eqsat.command.cli import main
from eqsat.kernels.calibrate import device_file, forget, keep, measure_cpu, measured
from eqsat.kernels.cost_model import CPU, Device


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
    for text in ("{", "[]", '{"%s": {"numpy": {"name": 1}}}'):
        from eqsat.kernels.calibrate import machine

        device_file().write_text(text.replace("%s", machine()), encoding="utf-8")
        with pytest.raises(eq.OptionError) as caught:
            measured("numpy", CPU)
        assert str(device_file()) in str(caught.value)


@pytest.mark.slow
def test_measuring_gives_a_device_that_kernels_can_be_priced_on() -> None:
    told: list[str] = []
    found = measure_cpu("numpy", CPU, told.append)
    assert told[0] == "calls" and len(told) > 5
    assert found.launch_s > 0 and found.flops_per_s > 0
    rooms, rates = zip(*found.bandwidths, strict=True)
    assert list(rooms) == sorted(rooms) and rooms[-1] == math.inf
    assert list(rates) == sorted(rates, reverse=True) and rates[-1] > 0


def test_the_command_shows_and_forgets() -> None:
    run = CliRunner()
    shown = run.invoke(main, ["calibrate", "--show"])
    assert shown.exit_code == 0 and "start of a kernel" in shown.output
    record = json.loads(run.invoke(main, ["calibrate", "--show", "--json"]).output)
    assert record["bandwidths"][-1][0] is None
    assert "nothing was kept" in run.invoke(main, ["calibrate", "--reset"]).output
    assert run.invoke(main, ["calibrate", "--backend", "no"]).exit_code == 1
