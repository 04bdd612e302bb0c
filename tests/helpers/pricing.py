"""A second opinion on the price of kernels: flops and bytes counted from their bodies,
by other means than extraction's."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from eqsat.kernels.cost_model import Device
from eqsat.kernels.kernel import Kernel
from eqsat.kernels.target import Target
from eqsat.terms.op import SCALAR, Op
from eqsat.terms.term import Term, Weak, postorder
from eqsat.trace.kernel_body import KERNEL, KernelBody
from eqsat.trace.open_composites import body_of

INDEX_MAPS = {"reshape", "broadcast_to", "transpose", "slice"}


def body_terms(kernel: Kernel) -> tuple[list[Term], list[Term]]:
    """The e-nodes of a kernel as terms over its arguments, and its results."""
    term = kernel.term
    if term.op is not KERNEL:
        return [term], [term]
    body: Any = term.attrs[0]
    assert isinstance(body, KernelBody)
    values = body.apply(term.graph, term.args)
    inside = [v for v in values[body.arity :] if v.op is not SCALAR]
    return inside, [values[i] for i in body.results]


def flops_of(term: Term) -> Counter[str]:
    """Flops of one e-node, a composite by its body: in products, and others."""
    op = term.op
    assert isinstance(op, Op)
    if op.body is not None:
        leaves = set(term.args)
        found: Counter[str] = Counter()
        body = body_of(term)
        assert body is not None
        for t in postorder([body]):
            fixed = not leaves & set(postorder([t]))
            if t not in leaves and not fixed and not _below(t, leaves):
                found += flops_of(t)
        return found
    if op.flops is None:
        return Counter()
    work = op.flops([a.type for a in term.args], op.attr_dict(term), term.type)
    return Counter({"products" if op.kind == "contract" else "others": work})


def _below(t: Term, leaves: set[Term]) -> bool:
    """Whether ``t`` is part of what computes the leaves."""
    return any(t in set(postorder([leaf])) for leaf in leaves)


def bytes_read(term: Term, i: int) -> float:
    """Bytes of argument ``i`` that one e-node needs: the elements of its index map."""
    op = term.op
    assert isinstance(op, Op)
    arg = term.args[i]
    if isinstance(arg.dtype, Weak):
        return 0.0
    if op.name == "slice":
        return float(min(arg.nbytes, term.nbytes))
    if op.name == "take" and i == 0:
        return float(min(arg.nbytes, term.nbytes))
    return float(arg.nbytes)


def stored_bytes(t: Term) -> float:
    """Bytes of memory behind a value, which a broadcast shows several times."""
    least = float(t.nbytes)
    while t.op.name in INDEX_MAPS - {"slice"}:
        t = t.args[0]
        least = min(least, float(t.nbytes))
    return least


def wanted(t: Term, inside: list[Term], results: list[Term]) -> float:
    """How many times each element of ``t`` is wanted: once at each place where index
    maps find it, four times where they step along the last axis."""
    total = 0.0
    for (_, axes), share in places(t, inside, results).items():
        total += share * (4.0 if axes and axes[-1][1] != 1 else 1.0)
    return total


def places(t: Term, inside: list[Term], results: list[Term]) -> dict[Any, float]:
    """Where the results find ``t``: through which index maps that are no slices, and
    the first element and step of each axis; and which share of it they see there."""
    found: dict[Any, float] = {((), ()): 1.0} if t in results else {}
    for reader in inside:
        if t not in reader.args:
            continue
        there = places(reader, inside, results)
        if reader.op.name not in INDEX_MAPS:
            found |= there
            continue
        share = bytes_read(reader, 0) / max(1.0, t.nbytes)
        for (path, axes), n in there.items():
            if reader.op.name != "slice":
                found[(reader, path, axes), ()] = n * share
                continue
            named = dict(zip(reader.op.attrs, reader.attrs, strict=True))
            rank = len(t.shape)
            outer = [(0, 1)] * (rank - len(axes)) + [*axes]
            own = [*zip(named["starts"], named["steps"], strict=True)]
            own = [(0, 1)] * (rank - len(own)) + own
            both = [
                (a + b * first, b * step)
                for (a, b), (first, step) in zip(own, outer, strict=True)
            ]
            found[path, tuple(both)] = n * share
    return found


def is_gram(term: Term) -> bool:
    """Whether a product is of a matrix by its own transpose."""
    if term.op.name != "matmul":
        return False

    def turned(a: Term) -> Term | None:
        is_turned = a.op.name == "transpose" and a.attrs == ((-1, -2),)
        return a.args[0] if is_turned else None

    x, y = term.args
    return x is turned(y) or y is turned(x)


def seconds(kernel: Kernel, device: Device, target: Target) -> float:
    """The price of a kernel on a device. ``target`` says which share counts of the
    flops of a product of a matrix by its own transpose, and whether each part that a
    kernel joins is a pass of its own."""
    inside, results = body_terms(kernel)
    arithmetic = 0.0
    for t in inside:
        work = flops_of(t)
        share = target.gram_share if is_gram(t) else 1.0
        each = share * work["products"] / device.flops_per_s
        each += work["others"] / device.map_flops_per_s + device.step_s
        if t.op.name == "concatenate" and target.joins_in_place:
            each += (len(t.args) - 1) * device.launch_s
        is_cheap = each <= 4 * math.prod(t.shape) / device.map_flops_per_s
        again = 1.0 if is_cheap else wanted(t, inside, results)
        arithmetic += each * max(1.0, again)
    read: dict[Term, float] = {}
    for t in inside:
        for a in dict.fromkeys(t.args):
            if a in kernel.term.args:
                read[a] = read.get(a, 0.0) + bytes_read(t, t.args.index(a))
    moved = [min(n, stored_bytes(a)) for a, n in read.items()]
    moved += [float(r.nbytes) for r in results]
    traffic = sum(device.traffic_s(n) for n in moved)
    views = sum(t.op.name in INDEX_MAPS for t in inside)
    return device.launch_s + max(arithmetic, traffic) + views * device.view_s


def disagreements(
    kernels: Any, prices: dict[Term, float], device: Device, target: Target
) -> list[str]:
    """The kernels whose price in extraction is not what their body says."""
    found = []
    for k in kernels:
        taken = [prices.get(t) for t in (k.term, *k.results) if t in prices]
        if not taken or any(
            p is None or not np.isclose(p, seconds(k, device, target), rtol=1e-9)
            for p in taken
        ):
            found.append(
                f"{k.name}: {taken}, the body says {seconds(k, device, target)}"
            )
    return found
