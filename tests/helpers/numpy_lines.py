"""Lines of NumPy that programs are drawn from.

Names in braces are filled in: arrays ``a b c``, arrays of integers or bools ``i j``, of
floats ``f``, of bfloat16 ``h``, masks ``m``, arrays that may be written to ``o``, and
the one that was named last ``O``,
numbers ``n``, dtypes ``t``, axes ``x``, slices ``k``, shapes ``s``.
"""

from __future__ import annotations

DTYPES = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64"
).split()
AXES = ("-1", "0", "None", "(0,)", "(0, -1)", "()")
SLICES = ("1:", ":-1", "::2", "::-1", "-2:", "1:1", "0", "-1", "None", "..., 1::2")
SHAPES = ("(6,)", "(3, 6)", "(3, 1)", "()", "6", "(0, 6)", "{a}.shape")

NUMBERS = """
True False 0 1 2 -1 3 0.5 -0.0 2.0 -1.5 0.25 np.float32(0.5) np.float64(2) np.int8(3)
np.uint8(2) np.bool_(True) np.int64(-2) np.float16(1.5) np.array(2.5) np.array(3,'i1')
np.uint64(2) np.int16(-3) np.array(True) np.array(-0.0,'f4')
""".split()
ODD_NUMBERS = """
(2**31) (-2**31) (2**31-1) (2**32) (2**53+1)
(2**63) (-2**63) (2**63-1) (2**64) (2**64-1) 300 -300 (10**30)
1e300 (-1e39) 1e-320 1e-42 70000.0 float('inf') (-float('inf')) float('nan') np.nan
np.inf np.float32('nan') np.float32(1e-42) np.float16('inf') np.int8(-128) np.uint8(255)
np.int64(2**63-1) np.uint64(2**64-1) np.array(np.nan) np.array(2**40) 0.1 (1/3)
np.float32(0.1) np.float16(0.1) np.float64(0.1)
""".split()


def lines(text: str) -> tuple[str, ...]:
    """The lines of a table."""
    return tuple(line.strip() for line in text.strip().splitlines())


ELEMENTWISE = lines("""
    {a} + {b}
    {a} - {b}
    {a} * {b}
    -{a}
    abs({a})
    {a} + {n}
    {n} - {a}
    {a} * {n}
    {n} + {a}
    {n} * {n} * {a}
    {a} / {n}
    {n} / {a}
    {f} / {f}
    np.maximum({a}, {b})
    np.minimum({a}, {n})
    np.maximum({n}, {a})
    np.fmax({a}, {n})
    np.fmin({a}, {b})
    np.clip({a}, {n}, {n})
    np.clip({a}, {n}, None)
    {a}.clip(None, {n})
    np.clip({a}, {b}, {n})
    np.where({m}, {a}, {b})
    np.where({m}, {a}, {n})
    np.where({m}, {n}, {n})
    np.where({n}, {a}, {b})
    np.where({a}, {n}, {b})
    np.square({a})
    {a} ** 2
    np.sqrt({f} * {f})
    np.sqrt({f})
    np.reciprocal({f})
    np.copysign({f}, {n})
    np.copysign({n}, np.nan_to_num({f}))
    np.positive({a})
    np.add({a}, {b}, dtype='float64')
    np.add({a}, {n}, where={m}, out={o})
    np.multiply({a}, {n}, dtype='{t}')
    np.subtract({a}, {b}, out={o})
    {i} ** 3
    np.power({i}, 2)
    {i} & {j}
    {i} | {n}
    {i} ^ {j}
    ~{i}
    {i} << 2
    {i} >> 1
    {i} << {j}
    np.invert({m})
    np.nan_to_num({f})
    np.nan_to_num({f}, nan={n}, posinf=3, neginf={n})
    np.heaviside({f}, 0.5)
    np.nextafter({f}, {f})
    np.select([{m}, {m}], [{a}, {b}], {n})
    +{a}
    {h} + {h}
    {h} * {h}
    {h} - {h}
    -{h}
    abs({h})
    np.maximum({h}, {h})
    np.where({m}, {h}, {h})
""")
CASTS = lines("""
    {a}.astype('{t}')
    {a}.astype('{t}')
    {a}.astype('{t}').astype('{t}')
    np.asarray({a}, dtype='{t}')
    {n} * {a}.astype('{t}')
    np.array({a}, '{t}')
    {a}.astype(bf16)
    {h}.astype('{t}')
    {h}.astype('float32')
    ({a} + {n}).astype('{t}')
    {a}.astype('{t}') * {b}
    np.full({s}, {n}, '{t}')
    np.full_like({a}, {n})
    np.full_like({a}, {n}, dtype='{t}')
    np.zeros_like({a}, dtype='{t}') + {n}
    np.result_type({a}, {b}).type({n})
""")
VIEWS = lines("""
    {a}[{k}]
    {a}[{k}]
    {o}[{k}]
    {o}[{k}]
    {a}[..., ::-1]
    {a}[::-1]
    {a}[..., 1:] * 1
    {a}.T
    {o}.T
    {a}.reshape(-1)
    {o}.ravel()
    {a}[..., None]
    {a}[None]
    {a}[[0, -1]]
    {a}[..., [0, 0]]
    np.concatenate([{a}, {b}], -1)
    np.concatenate([{a}, {b}])
    np.stack([{a}, {b}])
    np.broadcast_to({a}, (2, 3, 6))
    np.flip({a})
    np.roll({a}, 1, -1)
    np.repeat({a}, 2, -1)
    np.tile({a}, 2)
    np.pad({a}, 1, constant_values={n})
    np.swapaxes({a}, 0, -1)
    np.squeeze({a})
    np.expand_dims({a}, 0)
    np.take({a}, [0, -1], -1)
    np.take_along_axis({a}, np.argsort({a}, -1, kind='stable'), -1)
    np.sort({a}, -1)
    np.tril({a})
    np.diff({a})
    np.array([{a}[..., 0], {a}[..., -1]])
    np.hstack([{a}, {b}])
    np.r_[{n}, {a}.ravel()]
    np.split({a}, 2, -1)[1]
    np.moveaxis({a}, 0, -1)
    np.append({a}, {n})
    np.atleast_2d({a})
    {a}.copy()
""")
CHOSEN = lines("""
    {a}.max({x})
    np.min({a}, {x})
    np.max({a}, {x}, keepdims=True)
    np.max({a}, {x}, initial={n})
    np.min({a}, {x}, initial={n}, where={m})
    {i}.sum({x})
    np.sum({i}, {x}, keepdims=True)
    np.sum({m}, {x}, dtype='{t}')
    np.sum({i}, initial={n})
    np.prod({i}, {x})
    np.cumsum({i}, {x})
    np.cumprod({i}, -1)
    np.maximum.accumulate({a}, -1)
    np.minimum.reduce({a}, 0)
    np.logical_or.reduce({a}, 0)
    np.add.reduce({i}, -1)
    {a}[{m}].max()
    {i}[{m}].sum()
    {a}[..., 0].max()
    np.ptp({i}, -1)
    np.median({i})
    {h}.max({x})
    {i} @ {j}.T
    np.dot({i}, {j}.T)
    np.nanmax({a})
    np.add.reduceat({i}, [0, 2], -1)
""")
"""Reductions that do not round."""
SUMS = lines("""
    {a}.sum({x})
    np.sum({a}, {x}, where={m})
    np.sum({a}, {x}, dtype='{t}')
    np.sum({a}, {x}, keepdims=True)
    np.sum({a}, {x}, initial={n})
    np.sum({a}, {x}, initial={n}, where={m})
    np.sum(np.where({m}, {a}, 0))
    {a}[{m}].sum()
    np.cumsum({a}, {x})
    np.prod({a}, {x}, initial={n})
    {a}.mean({x})
    np.mean({a}, {x}, where={m})
    np.mean({a}, {x}, dtype='{t}')
    {a} @ {b}.T
    np.dot({a}, {b}.T)
    np.trace({a})
    np.add.reduce({a}, -1)
    np.einsum('...i->i', {a})
    np.nansum({a}, {x})
    np.cumsum({a}, {x}, dtype='{t}')
    np.outer({a}, {b}).sum()
    np.average({a}, {x})
""")
ROUNDED = lines("""
    np.exp(-abs({a}))
    np.tanh({a})
    np.log1p(abs({a}))
    np.sin({a})
    np.var({a}, {x})
    np.std({a}, -1, keepdims=True)
    np.hypot({a}, {n})
    np.power(abs({f}) + 1, {n})
    abs({f}) ** 1.5
    ({a} - {a}.mean(-1, keepdims=True)) / (1 + {a}.std(-1, keepdims=True))
    np.exp({a} - {a}.max(-1, keepdims=True))
    {a} * 0.1 + {b} * 0.3
    ({a} + {n}) / 3 * {n}
    ({a} * {b}) * ({a} + {n})
    {a} * {n} + {b} * {n}
    np.linalg.norm({a})
    np.arctan2({a}, {n})
    np.logaddexp({a}, {b})
    np.cbrt({a})
    np.exp2({a} * 0.5)
""")
MASKS = lines("""
    {a} < {b}
    {a} == {n}
    {a} >= {n}
    {n} < {a}
    {n} != {a}
    {m} & {m}
    {m} | {m}
    {m} ^ {n}
    ~{m}
    np.logical_and({a}, {n})
    np.logical_or({n}, {a})
    np.logical_xor({a}, {b})
    np.logical_not({a})
    {a} != {b}
    np.isfinite({a})
    np.isnan({a})
    np.signbit(np.nan_to_num({f}))
    {a}.astype(bool)
    ({a} / 3 * 3) == {a}
    ({a} / {n} * {n}) == {a}
    {a} / 7 > {b} / 7
    {a} * 0.1 < {b} * 0.1
    {a} * 0.1 * 3 <= {a} * 0.3
    ({a} + 0.1) - 0.1 == {a}
    {a} / 3 + {b} / 3 >= ({a} + {b}) / 3
    {a} < {a}.max() * 3 / 3
    {a} >= {a}.max(-1, keepdims=True) / 7 * 7
    {a} == {a}.min() * 0.1 / 0.1
    np.sqrt(abs({a})) ** 2 == abs({a})
    {n} / ({n} / {a}) == {a}
    ({a} - {b}) + {b} == {a}
    np.any({a}, {x})
    np.all({m}, {x})
    np.any({a} > {n}, {x}, keepdims=True)
    np.isin({a}, [0, 1, 2])
    np.isclose({a}, {b})
    {h} < {h}
    {h} / {h} == {h}
    np.equal({a}.astype('{t}'), {a})
    np.zeros({s}, bool)
    np.greater({a}, {b}, where={m}, out=np.zeros_like({a}, bool))
""")
"""``np.greater(unsigned, -1, where=m, out=o)`` crashes NumPy 2.4, so that ``where`` is
drawn with arrays alone."""
DECISIONS = lines("""
    np.floor({a} / 3)
    np.rint({a} * 0.1)
    {a} // 2
    {a} % 3
    {a} // {n}
    {a} % {n}
    {n} // {a}
    {n} % {a}
    {a} // {b}
    np.fmod({a}, {n})
    np.remainder({a}, {b})
    np.sign({a})
    np.sign({a} / 3 * 3 - {a})
    np.argmax({a}, {x})
    np.argmax({a} / 3 * 3, {x})
    np.argmin({a} * 0.7 / 0.7, {x})
    np.argmax({a} + 0.1, -1)
    np.argmax({a} * 0.1 + {b} * 0.1, -1)
    np.trunc({a} / 7 * 3)
    np.ceil({a} * 0.3 + 0.1)
    ({a} * 1.1).astype('int64')
    ({a} / 3 * 3).astype('{t}')
    np.floor({a} / {n} * {n})
    np.round({a} / 3, 1)
    np.round({a} * 0.15, 2)
    np.count_nonzero({m})
    np.count_nonzero({a}, 0)
    np.argsort({a} / 3, kind='stable')
    np.argsort(-{a}, axis=0, kind='stable')
    np.divmod({a}, 3)[0]
    np.divmod({a}, {n})[1]
    np.modf({f})[0]
    np.sum({m}, {x})
    ({a} / 3 * 3 == {a}).sum()
    np.mean({m})
    np.searchsorted(np.array([-1.5, 0.1, 0.3, 2]), {a} * 0.1)
    np.searchsorted(np.sort({a}.ravel()), {a} * 1)
    np.digitize({a} * 0.1, [0.1, 0.2, 0.3])
    np.bincount(abs({i}).ravel().astype('int64') % 5, minlength=5)
    np.histogram({f}, [-3, -1, 0.1, 2, 7])[0]
    (({f}[..., None] >= np.arange(4) * 0.1) & ({f}[..., None] < 0.2)).sum(0)
    np.clip(np.floor(({f} - {f}.min()) / ({f}.max() - {f}.min() + 0) * 5), 0, 4)
    {a}.argmax()
    np.float64({a}.max()) // 3
    np.where({a} / 3 * 3 == {a}, {a}, {b})
    np.flatnonzero(np.array([1, 0, 2]))
    round({f}.max(), 1)
""")
MADE = lines("""
    np.zeros({s}, '{t}')
    np.ones({s})
    np.full({s}, {n})
    np.arange(6) * 1
    np.arange(6, dtype='{t}')
    np.eye(3, 6)
    np.identity(6, '{t}')
    np.zeros_like({a})
    np.empty_like({a}) * 0 == 1
    np.ones((3, 6), '{t}')
    np.array([{n}, {n}, {n}, {n}, {n}, {n}])
    np.linspace(0, 5, 6)
    np.array({a})
""")
WRITES = lines("""
    {o}[...] = {n}
    {o}[{m}] = {n}
    {o}[{m}] = {n}
    {o}[..., 0] = {a}[..., 0]
    {o}[{k}] = {n}
    {o}[{k}] = {a}[{k}]
    {o}[{k}] += {n}
    {o}[{k}] *= {n}
    {o} += {n}
    {o} -= {n}
    {o} *= {b}
    {o} /= {n}
    {o} //= {n}
    {o} %= {n}
    {o} &= {n}
    {o} |= {i}
    {o}[..., 1:] += {n}
    {o}[1:] = {o}[:-1]
    {o}[..., 1:] += {o}[..., :-1]
    {o}[..., :-1] = {o}[..., 1:] * 2
    {o}[..., ::-1] += {o}
    {o}[{m}] += {n}
    {o}[{m}] *= {n}
    {o}[{m}] = {a}[{m}]
    {o}[~{m}] = 0
    {o} -= {b}
    {o}[...] = {b}
    {o}[[0, -1]] = {n}
    {o}[..., [0, 0]] += {n}
    {o}.fill({n})
    {o}.sort(); {O} += 0
    {o}.sort(0); {O} += 0
    np.copyto({o}, {a}, where={m})
    np.copyto({o}, {n})
    np.add.at({o}, 0, {n}); {O} += 0
    np.maximum.at({o}, [0, 0], {n}); {O} += 0
    np.putmask({o}, {m}, {n})
    for q in range({o}.shape[-1]): {o}[..., q] = {i}[..., q].sum()
    for q in range(len({o})): {o}[q] = {a}[q] + q
    for q in range(1, len({o})): {o}[q] = {o}[q - 1]
    for q in range(3): {o}[..., q] += {n}
    {o}.flat[1] = {n}
    {o}.T[0] = {n}
    np.clip({o}, {n}, {n}, out={o}); {O} += 0
    np.negative({o}, out={o})
    {o}[0], {o}[-1] = {n}, {n}
    {o}[...] = {o}.T
""")
