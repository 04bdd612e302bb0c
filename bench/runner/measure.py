"""The method: rounds of all candidates in turn, after their results are checked."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers import is_eqsat
from bench.processes import SIZES, Gone, Missing, Worker, bytes_per_s
from bench.reports import Record, ratio, spread
from bench.runner.exactness import Reference, reference
from bench.workloads import Workload, leaves

Say = Callable[[str], None]


@dataclass(frozen=True)
class Method:
    """How long to measure."""

    rounds: int = 7
    round_s: float = 0.02
    """Seconds of one candidate in one round: as many calls as fit, one at least."""
    most_s: float = 5.0
    """Seconds after which a candidate gets no more rounds, of which it has two."""
    far_behind: float = 20.0
    """How many times slower than the fastest a candidate is that has only the calls
    which found that out, where these take :attr:`long_s`."""
    long_s: float = 0.25
    again: int = 0
    """How often a close race is run in processes of its own."""
    close: float = 1.25
    """How many times as long as the fastest those of a close race take at most."""
    again_ties: int = 0
    """How often a race is run after that which is as good as a tie, whoever leads."""
    tie: float = 1.1
    """How many times as long as the faster the slower of a tie takes at most, of eqsat
    and its best peer."""
    seed: int = 0
    estimates: bool = False
    """Whether eqsat is asked what it expects a call to take."""
    limit_sizes: tuple[int, ...] = SIZES
    """Bytes at which the bandwidth is measured."""


class Team:
    """One worker for each peer, all with the same number of threads.

    A worker that died is started again for the next workload.
    """

    def __init__(self, peers: Sequence[str], threads: int) -> None:
        self.peers, self.threads = tuple(peers), threads
        self.workers: dict[str, Worker] = {}
        self.missing: dict[str, str] = {}
        self.versions: dict[str, dict[str, str]] = {}

    def ready(self) -> dict[str, Worker]:
        """The workers of all peers that are installed."""
        new = [p for p in self.peers if p not in {**self.workers, **self.missing}]
        self.workers |= {p: Worker(p, self.threads) for p in new}
        for peer in new:
            try:
                self.workers[peer].greet()
                self.versions[peer] = self.workers[peer].versions
            except (Missing, Gone) as error:
                self.missing[peer] = str(error)
                self.drop(peer)
        return dict(self.workers)

    def close(self) -> None:
        """End all workers."""
        for peer in list(self.workers):
            self.drop(peer)

    def drop(self, peer: str) -> None:
        """End a worker."""
        self.workers.pop(peer).close()


@contextmanager
def team(peers: Sequence[str], threads: int) -> Iterator[Team]:
    """Workers that end with the block."""
    found = Team(peers, threads)
    with ExitStack() as stack:
        stack.callback(found.close)
        yield found


class References:
    """What results are compared with; kept on disk between thread counts."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.known: dict[str, tuple[Reference, list[str]]] = {}

    def of(self, w: Workload) -> tuple[Reference, list[str]]:
        """The reference of ``w``, and what its inputs are."""
        if w.name not in self.known:
            drawn = w.draw(self.seed)
            found = reference(w, drawn)
            exact = [
                self._kept(f"{len(self.known)}.{i}.npy", a)
                for i, a in enumerate(found.exact)
            ]
            shapes = [
                f"{'×'.join(map(str, a.shape))} {a.dtype}" for a in leaves(drawn[0])
            ]
            self.known[w.name] = replace(found, exact=exact), shapes
        return self.known[w.name]

    def _kept(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        np.save(self.folder / name, array)
        kept: np.ndarray[Any, Any] = np.load(self.folder / name, mmap_mode="r")
        return kept


def measure(
    w: Workload, workers: Team, limits: Record, method: Method, references: References
) -> Record:
    """One row: what each peer does with ``w``, and what the machine could.

    It has the seconds of each round; :func:`summarise` says what is kept of them.
    """
    results = raced(w, workers, method, references)
    known, shapes = references.of(w)
    rate = bytes_per_s(limits, known.need.bytes)
    peak = limits["fma_flops_per_s"]
    return {
        "workload": w.name,
        "tags": list(w.tags),
        "dtype": w.dtype,
        "inputs": shapes,
        "threads": workers.threads,
        "product_flops": known.need.product_flops,
        "other_flops": known.need.other_flops,
        "bytes": known.need.bytes,
        "limit_s": known.need.limit_s(peak, rate),
        "limited_by": known.need.limited_by(peak, rate),
        "results": results,
    }


def raced(
    w: Workload, workers: Team, method: Method, references: References
) -> dict[str, Record]:
    """What each peer does with ``w``: its seconds of each round if its result is right,
    and what it expected, if it expects anything."""
    known, _ = references.of(w)
    ready = workers.ready()
    results: dict[str, Record] = {}
    for peer in workers.peers:
        if peer in ready:
            results[peer] = _asked(
                workers,
                peer,
                lambda p=peer: _load(  # type: ignore[misc]
                    workers.workers[p], w, known, method.seed
                ),
            )
        else:
            results[peer] = {"status": "missing", "reason": workers.missing[peer]}
    _rounds(workers, results, method)
    for peer, result in results.items():
        if method.estimates and is_eqsat(peer) and "median_s" in result:
            result["estimate"] = _asked(
                workers,
                peer,
                lambda p=peer: workers.workers[p].ask("estimate"),  # type: ignore[misc]
            )
        if peer in workers.workers and result["status"] in ("ok", "wrong"):
            freed = _asked(workers, peer, lambda p=peer: workers.workers[p].ask("free"))  # type: ignore[misc]
            result["peak_bytes"] = freed.get("peak_bytes")
    return results


def run_again(
    row: Record, w: Workload, limits: Record, method: Method, references: References
) -> None:
    """Measure eqsat and the peers that are close to it in new processes, and let
    ``row`` have the median over processes.

    A process keeps its arrays where they are, which is worth up to a fifth of the time
    of what runs at the speed of a cache; the fastest of several equal peers is the one
    that was lucky.
    """
    runs = [{peer: dict(result) for peer, result in row["results"].items()}]
    for factor, times in (
        (method.close, method.again),
        (method.tie, method.again_ties),
    ):
        runners = _close(row["results"], factor) if times else []
        for _ in range(times if runners else 0):
            with team(runners, row["threads"]) as workers:
                again = measure(w, workers, limits, method, references)
                runs.append(again["results"])
        for peer in runners:
            row["results"][peer] |= _of_processes([run.get(peer, {}) for run in runs])


def _of_processes(runs: Sequence[Record]) -> Record:
    """What a peer's results in several processes say together."""
    found = [result for result in runs if "median_s" in result]
    medians = [result["median_s"] for result in found]
    return {
        "processes_s": medians,
        "median_s": statistics.median(medians),
        "rounds_s": [each for result in found for each in result["rounds_s"]],
    }


def summarise(row: Record) -> None:
    """Put medians and spreads in place of the seconds of rounds.

    The median of several processes is that of their medians. A copy of a peer, which
    is there to show the noise, keeps the ratio to the first: :func:`ratio`.
    """
    rounds = {
        peer: result.pop("rounds_s")
        for peer, result in row["results"].items()
        if "rounds_s" in result
    }
    for peer, seconds in rounds.items():
        result, first = row["results"][peer], peer.partition("#")[0]
        result |= {**spread(seconds), "median_s": result["median_s"]}
        if peer != first in rounds:
            result["to_first"] = ratio(seconds, rounds[first])


def _close(results: dict[str, Record], factor: float) -> list[str]:
    """Who takes at most ``factor`` times as long as the fastest, if eqsat and others
    do."""
    timed = {p: r["median_s"] for p, r in results.items() if "median_s" in r}
    most = factor * min(timed.values(), default=0.0)
    found = [p for p, seconds in timed.items() if seconds <= most]
    return found if {is_eqsat(p) for p in found} == {True, False} else []


def _asked(workers: Team, peer: str, ask: Callable[[], Record]) -> Record:
    """What a worker answers; one that died is dropped."""
    try:
        return ask()
    except Gone as error:
        workers.drop(peer)
        return {"status": "failed", "reason": str(error)}


def _load(worker: Worker, w: Workload, known: Reference, seed: int) -> Record:
    """Build a candidate and check its first result."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.npz"
        reply = worker.ask("load", workload=w.name, seed=seed, out=str(path))
        for status in ("unsupported", "failed"):
            if status in reply:
                return {"status": status, "reason": reply[status]}
        with np.load(path) as arrays:
            error, bound = known.worst([arrays[name] for name in arrays.files])
    status = "ok" if error <= bound else "wrong"
    shown = error if math.isfinite(error) else None
    return {"status": status, "error": shown, "bound": bound, **reply}


def _rounds(workers: Team, results: dict[str, Record], method: Method) -> None:
    """Time those whose results are right, in turn, and write it into ``results``."""
    once = {
        peer: found
        for peer, result in results.items()
        if result["status"] == "ok" and (found := _probed(workers, results, peer))
    }
    late = max(method.long_s, method.far_behind * min(once.values(), default=0.0))
    seconds = {peer: [each] if each > late else [] for peer, each in once.items()}
    calls = {
        peer: max(1, min(int(method.round_s / each), 10**6))
        for peer, each in once.items()
    }
    spent = dict(once)
    for i in range(method.rounds):
        order = [p for p in seconds if once[p] <= late]
        for peer in order[i % len(order) :] + order[: i % len(order)] if order else ():
            if spent[peer] > method.most_s and len(seconds[peer]) >= 2:
                continue
            each = _timed(workers, results, peer, calls[peer])
            if each is None:
                del seconds[peer]
                continue
            seconds[peer].append(each)
            spent[peer] += each * calls[peer]
    for peer, each_s in seconds.items():
        results[peer] |= {
            "median_s": statistics.median(each_s),
            "calls": calls[peer],
            "rounds_s": each_s,
        }


def _probed(workers: Team, results: dict[str, Record], peer: str) -> float | None:
    """About how long a call takes (s), when those before it have compiled and filled
    the caches; None when the worker failed.

    Candidates whose inputs were drawn first have lost the caches to the others' since:
    if they were judged by their first calls, they would have fewer in each round.
    """
    least, once = math.inf, _timed(workers, results, peer, 1)
    while once is not None and once < min(0.9 * least, 1):
        least, once = once, _timed(workers, results, peer, 2)
    return None if once is None else max(min(once, least), 1e-9)


def _timed(
    workers: Team, results: dict[str, Record], peer: str, calls: int
) -> float | None:
    """Seconds of one call of so many; None when the worker failed."""
    reply = _asked(
        workers, peer, lambda: workers.workers[peer].ask("time", calls=calls)
    )
    if "total_s" in reply:
        return float(reply["total_s"]) / calls
    results[peer] |= {
        "status": "failed",
        "reason": reply.get("failed", reply.get("reason")),
    }
    return None


def progress(total: int) -> tuple[Callable[[], None], Say]:
    """A bar on standard error: how to close it, and how to say what comes next."""
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    bar.start()
    task = bar.add_task("starting", total=total)
    begun = time.perf_counter()

    def say(what: str) -> None:
        minutes = (time.perf_counter() - begun) / 60
        bar.update(task, advance=1, description=f"{minutes:4.1f} min  {what}")

    return bar.stop, say
