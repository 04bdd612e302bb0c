"""What drawn programs are made of: lines of NumPy over arrays of any shape.

In a line ``{x}`` is the value so far, and other braces are drawn to fit it:

- ``{y}``: an array of its shape; ``{r}``: one row; ``{c}``: one column;
- ``{w}``: a matrix that it can be multiplied with; ``{p}``: a few points, one a row;
- ``{i}``: indices of its first axis; ``{t}``: a table of 64 numbers;
- ``{a}``: an axis, or None for all; ``{axis}``: an axis; ``{k}``: a number;
- ``{n}``: steps of a loop, no more than its last axis is long.

A line with ``{o}`` is statements that assign to it; others are expressions.
"""

from __future__ import annotations

MAPS = (
    "np.tanh({x})",
    "np.exp(-np.abs({x}))",
    "np.sqrt({x} * {x} + 1)",
    "np.log1p(np.abs({x}))",
    "np.where({x} > {k}, {x}, {k} * {x})",
    "np.clip({x}, -1, 1) * {k}",
    "np.sin({x}) * {y}",
    "{x} / (1 + np.abs({x}))",
    "np.hypot({x}, {y})",
    "np.arctan2({x}, {y})",
    "((0.1 * {x} + {k}) * {x} - 2) * {x}",
    "np.floor({x} * 4) / 4",
    "np.maximum({x}, {y}) - np.minimum({x}, {y})",
    "np.sign({x}) * np.abs({x}) ** 1.5",
    "{x} * {r} + {y}",
    "({x} - {c}) / (1 + {c} * {c})",
    "1 / (1 + np.exp(-{x}))",
    "np.cos(3 * {x}) ** 2",
    "np.square({x} - {y})",
    "np.logaddexp({x}, {y})",
    "np.abs({x} + {r}) + {c}",
    "{x} + {k} * {y}",
)
REDUCTIONS = (
    "{x}.sum({a})",
    "{x}.mean({a})",
    "{x}.max({a})",
    "{x}.min(axis={a})",
    "np.prod(1 + 0.001 * {x}, axis={axis})",
    "np.argmax({x}, axis={a})",
    "np.count_nonzero({x} > {k}, axis={a})",
    "np.sqrt(np.sum({x} * {x}, axis={a}))",
    "np.linalg.norm({x}, axis={axis})",
    "np.abs({x}).max({a})",
    "np.log(np.sum(np.exp({x} - 3), axis={a}))",
    "np.sum({x} * {y})",
    "np.mean(np.abs({x} - {y}), axis={a})",
    "np.ptp({x}, axis={axis})",
    "np.sum({x} * {x}, axis={a}) / {k}",
)
NORMALISATIONS = (
    "{o}_e = np.exp({x} - {x}.max({a}, keepdims=True))\n"
    "{o} = {o}_e / {o}_e.sum({a}, keepdims=True)",
    "({x} - {x}.mean({a}, keepdims=True)) / ({x}.std({a}, keepdims=True) + 1e-5)",
    "{x} / np.sqrt(np.mean({x} ** 2, axis=-1, keepdims=True) + 1e-6) * {r}",
    "({x} - {x}.min({a}, keepdims=True))"
    " / (np.ptp({x}, axis={a}, keepdims=True) + 1e-3)",
    "{x} / (1e-3 + np.abs({x}).sum({a}, keepdims=True))",
    "{o}_m = {x}.mean(-1, keepdims=True)\n"
    "{o}_v = ((({x} - {o}_m) ** 2).mean(-1, keepdims=True))\n"
    "{o} = ({x} - {o}_m) / np.sqrt({o}_v + 1e-5) * {r} + {r}",
    "{x} / np.linalg.norm({x}, axis={axis}, keepdims=True).clip(1e-3)",
)
PRODUCTS = (
    "{x} @ {w}",
    "np.maximum({x} @ {w}, 0)",
    "np.tanh({x} @ {w} + {k})",
    "{x}.T @ {x} / len({x})",
    "{x} @ {x}.T / {x}.shape[-1]",
    "np.einsum('...j,...j->...', {x}, {y})",
    "{x} @ {r}",
    "np.sqrt(np.maximum(({x} ** 2).sum(-1)[:, None] + ({p} ** 2).sum(-1)"
    " - 2 * {x} @ {p}.T, 0))",
    "np.dot({x}.ravel(), {y}.ravel())",
    "{x} @ np.swapaxes({x}, -1, -2)",
    "np.exp(-(({x}[:, None, :] - {p}) ** 2).sum(-1))",
    "np.outer({r}, {r})",
)
STENCILS = (
    "0.25 * ({x}[:-2, 1:-1] + {x}[2:, 1:-1] + {x}[1:-1, :-2] + {x}[1:-1, 2:])",
    "{x}[..., 1:] - {x}[..., :-1]",
    "np.diff({x}, axis={axis})",
    "np.roll({x}, 1, {axis}) + np.roll({x}, -1, {axis}) - 2 * {x}",
    "({x}[..., :-2] + 2 * {x}[..., 1:-1] + {x}[..., 2:]) / 4",
    "np.gradient({x}, axis={axis})",
    "{o} = {x}.copy()\n"
    "for _ in range(4):\n"
    "    {o}[1:-1] += 0.1 * ({o}[2:] - 2 * {o}[1:-1] + {o}[:-2])",
    "{o} = {x}.copy()\n"
    "for _ in range(3):\n"
    "    {o}[1:-1, 1:-1] = 0.2 * ({o}[1:-1, 1:-1] + {o}[:-2, 1:-1] + {o}[2:, 1:-1]"
    " + {o}[1:-1, :-2] + {o}[1:-1, 2:])",
    "{o}_p = np.pad({x}, 1, mode='edge')\n"
    "{o} = np.maximum({o}_p[:-2, 1:-1], {o}_p[2:, 1:-1])",
)
VIEWS = (
    "{x}.T * {k}",
    "np.concatenate([{x}, {y}], -1)",
    "np.stack([{x}, {y}])",
    "{x}[::2] + {k}",
    "{x}[..., ::-1] - {x}",
    "np.repeat({x}, 2, -1)",
    "np.tril({x})",
    "np.swapaxes({x}, 0, -1) + {k}",
    "{x}[..., :, None] - {x}[..., None, :]",
    "np.add.outer({r}, {r})",
    "np.ascontiguousarray({x}.T)",
    "{x}.reshape(-1)[: {x}.size // 2] * 2",
    "np.broadcast_to({r}, {x}.shape) + {x}",
)
GATHERS = (
    "{x}[{i}]",
    "np.take({x}, {i}, axis=0) * {k}",
    "{x}[{i}] - {x}[{i}]",
    "np.take_along_axis({x}, np.argmax({x}, -1)[..., None], -1)",
    "np.bincount({i}, weights={x}.reshape(len({x}), -1)[:, 0][{i}],"
    " minlength=len({x}))",
    "np.interp({x}, np.sort({r}), {r})",
    "{t}[np.clip((({x} + 3) * 10).astype(int), 0, 63)]",
    "{o} = np.zeros_like({x})\nnp.add.at({o}, {i}, {x}[{i}])",
    "{x}[np.arange(len({x})), np.argmax({x}, -1)]",
    "{o} = {x}.copy()\n{o}[{o} < {k}] = 0",
)
SORTS = (
    "np.sort({x}, axis=-1)",
    "np.argsort({x}, axis=-1)",
    "np.partition({x}, 5, axis=-1)[..., :5]",
    "np.median({x}, axis={a})",
    "np.percentile({x}, [10, 50, 90])",
    "np.sort({x}, axis=0)[::-1]",
    "np.searchsorted(np.sort({r}), {x})",
    "np.sort({x}, axis=None)[-10:].mean()",
)
RECURRENCES = (
    "np.cumsum({x}, axis={axis}) * 0.01",
    "np.cumprod(1 + 0.001 * {x}, axis={axis})",
    "np.maximum.accumulate({x}, axis={axis})",
    "{o} = {x}[..., :{n}].copy()\n"
    "for j in range(1, {n}):\n"
    "    {o}[..., j] = 0.5 * {o}[..., j - 1] + {o}[..., j]",
    "{o} = np.abs({x}) + 1\n"
    "for _ in range(5):\n"
    "    {o} = 0.5 * ({o} + (np.abs({x}) + 1) / {o})",
    "{o} = 0.5 / (1 + {x} * {x})\nfor _ in range(8):\n    {o} = 3.2 * {o} * (1 - {o})",
    "{o}_u = {x}[:{n}, :{n}]\n"
    "{o}_p = np.zeros_like({o}_u)\n"
    "{o}_q = np.zeros_like({o}_u)\n"
    "{o} = {o}_u.copy()\n"
    "for j in range(1, {o}_u.shape[1] - 1):\n"
    "    {o}_p[1:-1, j] = 0.4 / (1.8 - 0.4 * {o}_p[1:-1, j - 1])\n"
    "    {o}_q[1:-1, j] = (0.4 * {o}_u[:-2, j] + 0.2 * {o}_u[1:-1, j]"
    " + 0.4 * {o}_u[2:, j] + 0.4 * {o}_q[1:-1, j - 1])"
    " / (1.8 - 0.4 * {o}_p[1:-1, j - 1])\n"
    "for j in range({o}_u.shape[1] - 2, 0, -1):\n"
    "    {o}[1:-1, j] = {o}_p[1:-1, j] * {o}[1:-1, j + 1] + {o}_q[1:-1, j]",
    "{o}_s = {r} * 0\n"
    "for j in range({n}):\n"
    "    {o}_s = 0.9 * {o}_s + 0.1 * {x}[j]\n"
    "{o} = {o}_s",
    "{o}_h = {r}\n"
    "for j in range({n}):\n"
    "    {o}_h = np.tanh({x}[j] + 0.1 * {o}_h)\n"
    "{o} = {o}_h",
)
STATISTICS = (
    "np.cov({x}, rowvar=False)",
    "np.corrcoef({x}.T)",
    "np.std({x}, axis={a}, ddof=1)",
    "np.var({x}, axis={a})",
    "np.average({x}, axis=-1, weights=np.abs({r}) + 0.1)",
    "np.histogram({x}, bins=16, range=(-3, 3))[0]",
    "np.mean((({x} - {x}.mean({a}, keepdims=True))"
    " / ({x}.std({a}, keepdims=True) + 0.01)) ** 3, axis={a})",
    "np.nanmean(np.where({x} > 2, np.nan, {x}), axis={a})",
    "np.linalg.solve({x}.T @ {x} + np.eye({x}.shape[1]), {x}.T @ {y})",
    "np.trapezoid({x}, axis=-1)",
    "({x} * {y}).mean({a}) - {x}.mean({a}) * {y}.mean({a})",
    "-0.5 * np.sum((({x} - {r}) / (1 + {r} * {r})) ** 2 + np.log1p({r} * {r}),"
    " axis=-1)",
)
FACTORISATIONS = (
    "np.linalg.cholesky({x}.T @ {x} / len({x}) + np.eye({x}.shape[1]))",
    "np.linalg.inv({x}.T @ {x} / len({x}) + np.eye({x}.shape[1]))",
    "np.linalg.svd({x}, compute_uv=False)",
    "np.linalg.eigvalsh({x}.T @ {x} / len({x}))",
    "np.linalg.qr({x})[1]",
    "np.linalg.slogdet({x}.T @ {x} / len({x}) + np.eye({x}.shape[1]))[1]",
)
INTEGERS: tuple[str, ...] = (
    "({x} * 5 + 3) % 17",
    "({x} & {y}) + 1",
    "{x} ^ ({x} >> 3)",
    "np.where({x} % 2 == 0, {x} // 2, 3 * {x} + 1)",
    "np.minimum({x}, {y})",
    "np.abs({x} - {y})",
    "{x} / 10",
    "{x}.sum({a})",
    "{x}.max({a})",
    "np.cumsum({x}, axis={axis}) % 1000",
    "np.bincount({x}.ravel() & 255, minlength=256)",
    "np.sort({x}, axis=-1)",
    "(({x} > 3) & ({x} < 50)).sum({a})",
    "{x}[{i}]",
    "{x}.mean({a})",
)
FAMILIES = {
    "maps": MAPS,
    "reductions": REDUCTIONS,
    "normalisations": NORMALISATIONS,
    "products": PRODUCTS,
    "stencils": STENCILS,
    "views": VIEWS,
    "gathers": GATHERS,
    "sorts": SORTS,
    "recurrences": RECURRENCES,
    "statistics": STATISTICS,
    "factorisations": FACTORISATIONS,
}
"""Lines over floats. Those over integers are :data:`INTEGERS`."""
