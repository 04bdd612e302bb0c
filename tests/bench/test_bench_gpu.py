"""``python -m bench gpu``: seconds of a device alone, on devices that are made up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from bench.devices.queued import (
    IN_TIME,
    LEAST,
    MOST,
    NotInTime,
    Queue,
    QueueSize,
    sized,
    slope,
    told,
)

pytestmark = pytest.mark.bench

SYNC_S = 3e-5


@dataclass
class Machine:
    """A host that records calls, and a device that runs them in order."""

    host_s: float
    device_s: float
    room: int = 1 << 20
    """Calls that wait in the queue at most: the host waits for a place."""
    now: float = 0.0
    ends: list[float] = field(default_factory=list)

    def _start(self, took: float) -> float:
        free = self.ends[-1] if self.ends else 0.0
        self.ends.append(max(self.now, free) + took)
        return self.ends[-1]

    def plug(self, seconds: float) -> float:
        return self._start(seconds)

    def hand(self, calls: int) -> list[float]:
        found = []
        for _ in range(calls):
            self.now += self.host_s
            if len(self.ends) >= self.room:
                self.now = max(self.now, self.ends[-self.room])
            found.append(self._start(self.device_s))
        return found

    def wait(self, found: list[float]) -> None:
        self.now = max(self.now, found[-1]) + SYNC_S

    def queue(self, clock: bool = False) -> Queue:
        between = self.between if clock else None
        return Queue(self.plug, self.hand, self.wait, between, lambda: self.now)

    def between(self, first: float, last: float) -> float:
        """By the device's clock; the host notices when it likes."""
        self.now = max(self.now, last) + SYNC_S * (1 + len(self.ends) % 3)
        return last - first

    @property
    def once_s(self) -> float:
        return max(self.host_s, self.device_s) + SYNC_S / 8


MACHINES = {
    "the host is slower": Machine(1e-5, 2e-6),
    "much slower": Machine(6e-5, 7e-6),
    "the device is slower": Machine(1e-5, 1.5e-4),
    "calls are long": Machine(1e-3, 6.8e-2),
    "the queue is short": Machine(1e-5, 2e-6, room=100),
}


@pytest.mark.parametrize("clock", [False, True], ids=["host's clock", "its clock"])
@pytest.mark.parametrize("name", MACHINES)
def test_the_device_is_timed_whatever_the_host_takes(name: str, clock: bool) -> None:
    machine = MACHINES[name]
    queue = machine.queue(clock)
    size = sized(queue, machine.once_s, 320)
    assert LEAST <= size.many <= min(MOST, machine.room) and 0 < size.few < size.many
    assert slope(queue, size) == pytest.approx(machine.device_s, rel=1e-6)


def test_results_that_need_much_memory_are_few() -> None:
    machine = Machine(1e-5, 2e-6)
    assert sized(machine.queue(), machine.once_s, 9).many == 9


def test_a_host_that_no_plug_waits_for_is_told() -> None:
    machine = Machine(0.05, 0.01)
    with pytest.raises(NotInTime, match=r"4 calls took the host 200\.0 ms"):
        sized(machine.queue(), machine.once_s, 320)


def test_rounds_in_which_the_host_was_late_do_not_count() -> None:
    machine = Machine(1e-5, 2e-6)
    queue = machine.queue()
    size = sized(queue, machine.once_s, 320)
    slopes = [slope(queue, size)]
    machine.host_s *= 2 * IN_TIME + 0.5
    slopes.append(slope(queue, size))
    machine.host_s = 1e-5
    slopes.append(slope(queue, size))
    assert slopes[1] is None
    assert slope(queue, size.longer()) == pytest.approx(2e-6, rel=1e-6)
    said = told(size, slopes)
    assert said["device_s"]["median"] == pytest.approx(2e-6, rel=1e-6)
    assert said["queued"]["late_rounds"] == 1
    assert "device_s" not in told(size, slopes[:2])


def test_the_plug_and_the_calls_are_told() -> None:
    said = told(QueueSize(4e-3, 256), [2e-6, 4e-6, 3e-6])
    assert said["device_s"] == {"median": 3e-6, "min": 2e-6, "max": 4e-6}
    assert said["queued"] == {"calls": [64, 256], "plug_s": 4e-3, "late_rounds": 0}


def test_noise_is_no_time() -> None:
    said = told(QueueSize(4e-3, 256), [-2e-6, 1e-6, -1e-6])
    assert "device_s" not in said and "varies" in said["device_reason"]


# -- by MLX, on any device -------------------------------------------------------------


def test_a_row_has_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlx.core")
    from bench.devices import gpu, queued
    from bench.workloads import device

    small = {
        "ROUNDS": 3,
        "SLOPES": 3,
        "FEW_ROUNDS": 2,
        "ROUND_S": 1e-3,
        "SIDE": 256,
        "MOST_CALLS": 16,
    }
    for name, value in small.items():
        monkeypatch.setattr(gpu, name, value)
    monkeypatch.setattr(queued, "MOST", 8)
    gpu.plug_of_mlx.cache_clear()
    (w,) = (w for w in device.workloads("float32") if w.name == "softmax/1x1024")
    row: dict[str, Any] = gpu.measured(w, None)
    assert set(row["results"]) == {"eqsat", "mlx", "mx.compile", "copy"}
    for r in row["results"].values():
        assert r["status"] == "ok" and r["min_s"] <= r["median_s"] <= r["max_s"]
        if "device_s" in r:
            assert r["queued"]["plug_s"] > 0
        else:
            assert r["device_reason"]
    text = gpu.line(row)
    assert text.startswith("softmax/1x1024") and "mx.compile" in text
    gpu.plug_of_mlx.cache_clear()


def test_a_line_says_what_is_not_known() -> None:
    from bench.devices.gpu import line

    both = {"status": "ok", "median_s": 1e-5, "device_s": {"median": 4e-6}}
    copy = {"status": "ok", "median_s": 9e-6, "device_s": {"median": 3e-6}}
    late = {"status": "wrong", "median_s": 2e-5, "device_reason": "the host"}
    failed = {"status": "failed", "reason": "no memory"}
    results = {"eqsat": both, "mlx": late, "torch.compile": failed, "copy": copy}
    text = line({"workload": "map", "results": results})
    assert (
        text.split()
        == (
            "map 75.0% 90.0% eqsat 4.0 10.0 mlx – 20.0 WRONG "
            "torch.compile no memory copy 3.0 9.0"
        ).split()
    )
