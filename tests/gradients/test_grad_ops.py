"""The derivative of every op of the catalogue, against differences of its values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from derivatives import apart, check, gradient, weighted, widths
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq
from eqsat import ops
from eqsat.terms.op import Op
from eqsat.terms.type_rules import Pointwise, ReducedAxes
from eqsat.trace.trace import Spec, trace

Shapes = list[tuple[int, ...]]
Case = tuple[Callable[..., Any], Callable[[int, int, int], Shapes]]
CATALOGUE = {
    n: o for n, o in Op.registry.items() if o.reference.__module__.startswith("eqsat.")
}
quick = examples(12)
seeds = st.integers(0, 2**16)
SIZES = st.permutations([0, 1, 2, 3, 4]).map(lambda p: tuple(p[:3]))
"""Three sizes, pairwise distinct."""
POSITIVE = st.permutations([1, 2, 3, 4]).map(lambda p: tuple(p[:3]))

# -- every op has its place ------------------------------------------------------------


def is_discrete(op: Op) -> bool:
    """Whether the result is of bools or integers whatever the arguments are."""
    rule = op.type_rule
    fixed = rule.dtype if isinstance(rule, (Pointwise, ReducedAxes)) else None
    return fixed is not None and fixed.kind in "biu"


@pytest.mark.parametrize("op", CATALOGUE.values(), ids=str)
def test_every_op_says_what_its_derivative_is(op: Op) -> None:
    if op.kind in ("leaf", "kernel"):
        return
    assert op.vjp is not None or op.body is not None, (
        "give the op vjp=: rules, FLAT where the derivative is 0, or a text that says "
        "what to write instead"
    )
    if isinstance(op.vjp, tuple) and op.vjp:
        assert len(op.vjp) == (1 if op.variadic else len(op.params))
    if is_discrete(op):
        assert op.vjp == ()


# -- pointwise -------------------------------------------------------------------------

DOMAINS = {
    **dict.fromkeys("log log2 log10 sqrt rsqrt power float_power".split(), (0.3, 3)),
    **dict.fromkeys("reciprocal divide remainder fmod".split(), (0.3, 3)),
    **dict.fromkeys("arcsin arccos arctanh erfinv".split(), (-0.9, 0.9)),
    **dict.fromkeys("gamma gammaln digamma beta betaln".split(), (0.3, 3)),
    "ndtri": (0.05, 0.95),
    "log1p": (-0.7, 3),
    "arccosh": (1.2, 3),
}
"""Where a function is defined, and far from where it has no derivative."""
SMOOTH = [
    n
    for n, o in CATALOGUE.items()
    if o.kind == "pointwise" and isinstance(o.vjp, tuple) and o.vjp
]


@pytest.mark.parametrize("name", [n for n in SMOOTH if n not in ("where", "cast")])
@quick
@given(seeds, SIZES, st.integers(0, 3))
def test_pointwise(name: str, seed: int, sizes: Any, way: int) -> None:
    a, b, c = sizes
    pairs = [((a, b), (a, b)), ((a, b, c), (b, 1)), ((), (a, c)), ((a, 1), (1, b))]
    op = CATALOGUE[name]
    shapes = list(pairs[way])[: len(op.params)]
    rng = np.random.default_rng(seed)
    args = apart(rng, shapes, *DOMAINS.get(name, (-2, 2)))
    check(lambda *xs: op(*xs), args, seed)


@pytest.mark.parametrize("y", [0, 1, 2, 3, -1, 0.5, 2.5, np.float64(3)])
def test_powers_that_are_numbers(y: Any) -> None:
    x = apart(np.random.default_rng(0), [(7,)], 0.3, 3)
    check(lambda x: x**y, x, 0)
    if y in (0, 1, 2, 3):
        check(lambda x: x**y, [x[0] - 1.5], 0)
        assert np.isfinite(gradient(lambda x: (x**y).sum(), [np.zeros(2)], 0)).all()


def test_a_power_of_zero_has_no_nan() -> None:
    x, y = np.array([0.0, 0.0, 2.0]), np.array([0.0, 2.0, 0.0])
    dx, dy = gradient(lambda x, y: (x**y).sum(), [x, y], 0, 1)
    np.testing.assert_array_equal(dx, [0, 0, 0])
    np.testing.assert_allclose(dy, [0, 0, np.log(2)])
    by_x = eq.grad(lambda x, y: (x**y).sum()).fn
    x, y = np.array([2.0, 3.0, np.inf]), np.zeros(3)
    (dx,) = gradient(lambda x, y: (x**y).sum(), [x, y], 0)
    np.testing.assert_array_equal(dx, 0)
    (mixed,) = gradient(lambda x, y: by_x(x, y).sum(), [x[:2], y[:2]], 1)
    np.testing.assert_allclose(mixed, [1 / 2, 1 / 3])


@quick
@given(seeds, SIZES)
def test_where_and_casts(seed: int, sizes: Any) -> None:
    a, b, _ = sizes
    rng = np.random.default_rng(seed)
    x, y = apart(rng, [(a, b), (b,)])
    mask = rng.random((a, 1)) < 0.5
    check(lambda x, y: np.where(mask, x, y) * x, [x, y], seed)
    check(lambda x: ops.where(x, 2.0, x) + ops.where(x > 0, x, 1), [x], seed)
    check(lambda x: ops.copy(x) * ops.cast(ops.cast(x, "f8") > 0, "f8"), [x], seed)
    (g,) = gradient(lambda x: (x.astype("f4") * 3).sum(), [x], 0)
    np.testing.assert_array_equal(g, np.full((a, b), 3.0))


def test_ties_and_kinks() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 2.0])
    zero = np.zeros(1)

    def by(f: Callable[..., Any], *xs: Any) -> list[list[float]]:
        found = gradient(lambda *a: f(*a).sum(), xs, *range(len(xs)))
        return [g.tolist() for g in found]

    for name in ("maximum", "fmax"):
        assert by(getattr(np, name), x, y) == [[0, 0.5, 1], [1, 0.5, 0]]
    for name in ("minimum", "fmin"):
        assert by(getattr(np, name), x, y) == [[1, 0.5, 0], [0, 0.5, 1]]
    nan = np.array([np.nan])
    assert by(np.fmax, nan, y[:1]) == [[0], [1]]
    assert by(np.fmin, y[:1], nan) == [[1], [0]]
    assert by(ops.max, np.array([2.0, 1.0, 2.0])) == [[0.5, 0, 0.5]]
    assert by(ops.min, np.array([1.0, 1.0, 2.0])) == [[0.5, 0.5, 0]]
    assert by(np.abs, zero) == by(eq.relu, zero) == [[0]]
    assert by(np.floor, x) == by(np.sign, x) == by(np.rint, x) == [[0, 0, 0]]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", [n for n in SMOOTH if n != "float_power"])
def test_derivatives_are_computed_in_the_dtype_of_the_op(name: str, dtype: str) -> None:
    op = CATALOGUE[name]
    if op.attrs:
        return
    masked = name == "where"
    xs = [Spec((2, 3), bool)] * masked + [Spec((2, 3), dtype)] * len(op.params)
    by = tuple(range(masked, len(op.params)))
    done = trace(eq.grad(lambda *xs: op(*xs).sum(), by).fn, xs[: len(op.params)])
    assert widths(done.outputs) <= {dtype, "python float"}
    assert [t.dtype for t in done.outputs] == [np.dtype(dtype)] * len(by)


# -- what is not pointwise -------------------------------------------------------------

INDICES = np.array([[2, 0, -1], [0, 0, 1]])


def convolution(**attrs: Any) -> Callable[..., Any]:
    return lambda x, w: eq.conv2d(x, w, **attrs)


def regular(x: Any) -> Any:
    """Square matrices far from singular ones."""
    return x + 4 * np.eye(x.shape[-1])


def positive(x: Any) -> Any:
    """Matrices of which the lower triangle is that of a positive definite one."""
    return x + 12 * np.eye(x.shape[-1])


def triangular(**attrs: Any) -> Callable[..., Any]:
    return lambda a, b: ops.solve_triangular(regular(a), b, **attrs)


def of_positive(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: f(np.exp(x), np.exp(y))


OF_ANY_SIZE: dict[str, Case] = {
    "lu_solve": (
        lambda a, b: np.linalg.solve(regular(a), b),
        lambda a, b, c: [(2, 1, a, a), (b, a, c)],
    ),
    "lu of one matrix, for a vector": (
        lambda a, b: np.linalg.solve(regular(a).mT, b),
        lambda a, b, c: [(b, a, a), (a,)],
    ),
    "lu_inv": (lambda a: np.linalg.inv(regular(a)), lambda a, b, c: [(b, a, a)]),
    "sinc": (np.sinc, lambda a, b, c: [(a, b)]),
    "entr": (lambda x: ops.entr(np.exp(x)), lambda a, b, c: [(a, b)]),
    "rel_entr": (of_positive(ops.rel_entr), lambda a, b, c: [(a, b, c), (b, 1)]),
    "kl_div": (of_positive(ops.kl_div), lambda a, b, c: [(b,), (a, b)]),
    "xlogy": (of_positive(ops.xlogy), lambda a, b, c: [(a, 1), (1, b)]),
    "xlog1py": (of_positive(ops.xlog1py), lambda a, b, c: [(), (a, b)]),
    "lu_det": (lambda a: np.linalg.det(regular(a)), lambda a, b, c: [(b, a, a)]),
    "lu_cofactors": (
        lambda a: ops.lu_cofactors(ops.lu(regular(a))),
        lambda a, b, c: [(b, a + 1, a + 1)],
    ),
    "lu_logabsdet": (
        lambda a: np.linalg.slogdet(regular(a))[1] * np.linalg.slogdet(a)[0],
        lambda a, b, c: [(b, a, a)],
    ),
    "cholesky": (
        lambda a: np.linalg.cholesky(positive(a)),
        lambda a, b, c: [(b, a, a)],
    ),
    "cholesky, upper": (
        lambda a: np.linalg.cholesky(positive(a), upper=True),
        lambda a, b, c: [(b, a, a)],
    ),
    "solve_triangular": (
        triangular(lower=True),
        lambda a, b, c: [(2, 1, a, a), (b, a, c)],
    ),
    "solve_triangular, upper": (
        triangular(),
        lambda a, b, c: [(b, a, a), (a,)],
    ),
    "solve_triangular, transposed": (
        triangular(lower=True, transposed=True),
        lambda a, b, c: [(a, a), (b, a, c)],
    ),
    "solve_triangular, unit": (
        triangular(transposed=True, unit_diagonal=True),
        lambda a, b, c: [(a, a), (a, c)],
    ),
    "pinv": (np.linalg.pinv, lambda a, b, c: [(2, a, b)]),
    "pinv of few rows": (np.linalg.pinv, lambda a, b, c: [(a, a + b)]),
    "lstsq": (
        lambda a, b: np.linalg.lstsq(a, b)[0],
        lambda a, b, c: [(a + b, a), (a + b, c)],
    ),
    "matrix_power": (
        lambda a: np.linalg.matrix_power(regular(a), -3),
        lambda a, b, c: [(b, a, a)],
    ),
    "sum": (lambda x: ops.sum(x, 1), lambda a, b, c: [(a, b, c)]),
    "prod": (lambda x: ops.prod(x, (0, 2)), lambda a, b, c: [(a, b, c)]),
    "reshape": (lambda x: x.reshape(x.shape[::-1]), lambda a, b, c: [(a, b, c)]),
    "broadcast_to": (
        lambda x, y: np.broadcast_to(x, y.shape) * y,
        lambda a, b, c: [(b, 1), (a, b, c)],
    ),
    "transpose": (lambda x: x.transpose(1, 2, 0), lambda a, b, c: [(a, b, c)]),
    "slice": (lambda x: x[1:, ::-2, ::3], lambda a, b, c: [(a + 1, b + 2, c + 4)]),
    "slice of one": (lambda x: x[-1, ..., :-1], lambda a, b, c: [(a + 1, b, c + 1)]),
    "concatenate": (
        lambda x, y, z: ops.concatenate([x, y, x, z], 1),
        lambda a, b, c: [(a, b), (a, c), (a, 1)],
    ),
    "stack, flip, roll": (
        lambda x, y: np.roll(np.flip(np.stack([x, y], 1), 0), 1, 2),
        lambda a, b, c: [(a, b), (a, b)],
    ),
    "pad": (
        lambda x, v: ops.pad(x, ((1, 2), (0, 3)), constant_values=v),
        lambda a, b, c: [(a, b), ()],
    ),
    "take": (lambda x: x[INDICES] * x[0], lambda a, b, c: [(3 + a, b)]),
    "unless": (
        lambda x: ops.unless(x, x > 1e9, "all_nan") ** 2,
        lambda a, b, c: [(3 + a, b)],
    ),
    "take within": (lambda x: ops.take(x, INDICES, 1), lambda a, b, c: [(a, 3, b)]),
    "add_at": (
        lambda x: ops.add_at(x, INDICES, axis=-2, size=3),
        lambda a, b, c: [(a, 2, 3, c)],
    ),
    "set_at": (
        lambda x, y: ops.set_at(x, INDICES, y, axis=-2),
        lambda a, b, c: [(a, 3, c), (a, 2, 3, c)],
    ),
    "matmul": (lambda x, y: x @ y, lambda a, b, c: [(a, b), (b, c)]),
    "matmul in batches": (
        lambda x, y: x @ y,
        lambda a, b, c: [(2, 1, a, b), (5, b, c)],
    ),
    "matmul of layers": (lambda x, y: x @ y, lambda a, b, c: [(2, a, b), (b, c)]),
    "matmul of vectors": (
        lambda x, y, z: (x @ y) @ z,
        lambda a, b, c: [(a,), (a, b), (b,)],
    ),
    "einsum": (
        lambda x, y: np.einsum("aib,bja->ij", x, y),
        lambda a, b, c: [(a, c, b), (b, 2, a)],
    ),
    "accumulate": (lambda x: np.cumsum(x, 1), lambda a, b, c: [(a, b, c)]),
    "cumprod": (lambda x: np.cumprod(x, 1), lambda a, b, c: [(a, b, c)]),
    "sort": (lambda x: np.sort(x, 1) * x[:, :1], lambda a, b, c: [(a, b, c)]),
    "linear": (
        lambda x, w, b: eq.linear(x, w, b, act="gelu"),
        lambda a, b, c: [(2, a, b), (b, c), (c,)],
    ),
    "rope": (eq.rope, lambda a, b, c: [(c, a, 4), (a, 4), (a, 4)]),
    "batch_norm": (
        lambda x, m, v, w, b: eq.batch_norm(x, m, v * v, w, b, 0.1),
        lambda a, b, c: [(a, b, c, 2), (b,), (b,), (b,), (b,)],
    ),
    "gated": (
        lambda x, y: Op.registry["gated"](x, y, act="silu"),
        lambda a, b, c: [(a, b), (a, b)],
    ),
    "lora_residual": (
        ops.lora_residual,
        lambda a, b, c: [(2, a, b), (b, c), (b, 1), (1, c), (c,), (2, a, c)],
    ),
    "vdot, outer, trace": (
        lambda x, y: np.outer(x, y) * np.vdot(x, x) + np.trace(np.outer(x, x)),
        lambda a, b, c: [(a,), (b,)],
    ),
}
OF_SOME: dict[str, Case] = {
    "decompose by eigenvalues": (
        lambda a: np.linalg.eigh(a).eigenvectors[..., :1, :] ** 2,
        lambda a, b, c: [(b, a, a)],
    ),
    "decompose, eigh": (
        lambda a: np.exp(np.linalg.eigh(a, "U").eigenvalues),
        lambda a, b, c: [(b, a, a)],
    ),
    "decompose, eigvalsh": (
        lambda a: np.linalg.eigvalsh(a) ** 2,
        lambda a, b, c: [(b, a, a)],
    ),
    "decompose, svd": (
        lambda a: np.linalg.svd(a, full_matrices=False).U ** 2,
        lambda a, b, c: [(c, a, b)],
    ),
    "decompose, svd of both": (
        lambda a: np.linalg.svd(a, full_matrices=False).Vh ** 2 * 3,
        lambda a, b, c: [(a, b)],
    ),
    "decompose, svdvals": (
        lambda a: np.linalg.svd(a, compute_uv=False) ** 2,
        lambda a, b, c: [(c, a, b)],
    ),
    "decompose, qr": (
        lambda a: np.linalg.qr(a).Q + np.linalg.qr(a).R.sum(),
        lambda a, b, c: [(c, a + b, a)],
    ),
    "decompose, nuclear norm": (
        lambda a: np.linalg.norm(a, "nuc", (0, 1)) + np.linalg.norm(a, 2, (1, 0)),
        lambda a, b, c: [(a, b, c)],
    ),
    "lu_inv for a condition": (
        lambda a: np.linalg.cond(regular(a), 1),
        lambda a, b, c: [(b, a, a)],
    ),
    "max": (lambda x: ops.max(x, (0, 2)), lambda a, b, c: [(a, b, c)]),
    "min": (lambda x: ops.min(x, 1, keepdims=True), lambda a, b, c: [(a, b, c)]),
    "var": (lambda x: ops.var(x, (0, 1), ddof=1), lambda a, b, c: [(a + 1, b, c)]),
    "std": (lambda x: ops.std(x, 1), lambda a, b, c: [(a, b + 1, c)]),
    "norm": (lambda x: np.linalg.norm(x, axis=1), lambda a, b, c: [(a, b, c)]),
    "mean": (lambda x: ops.mean(x, (0, 2)), lambda a, b, c: [(a, b, c)]),
    "median": (lambda x: np.median(x, 1), lambda a, b, c: [(a, b, c)]),
    "take_along_axis": (
        lambda x: np.take_along_axis(x, np.argsort(np.cos(x), 1), 1),
        lambda a, b, c: [(a, b, c)],
    ),
    "pad by reflection": (
        lambda x: np.pad(x, ((0, 1), (1, 1)), "reflect"),
        lambda a, b, c: [(a + 1, b + 1)],
    ),
    "softmax": (lambda x: eq.softmax(x, axis=(0, -1)), lambda a, b, c: [(a, b, c)]),
    "log_softmax": (lambda x: eq.log_softmax(x, axis=1), lambda a, b, c: [(a, b, c)]),
    "logsumexp": (lambda x: eq.logsumexp(x, axis=1), lambda a, b, c: [(a, b, c)]),
    "conv2d": (convolution(), lambda a, b, c: [(a, b, 5, 4), (c, b, 3, 2)]),
    "conv2d with steps": (
        convolution(stride=(2, 3), padding=(2, 0), dilation=(1, 2)),
        lambda a, b, c: [(a, b, 4, 8), (c, b, 3, 2)],
    ),
    "conv2d in groups": (
        convolution(padding=3, stride=2, groups=2),
        lambda a, b, c: [(a, 2 * b, 3, 4), (2 * c, b, 2, 1)],
    ),
    "max_pool2d": (
        lambda x: ops.max_pool2d(x, 2, 1, padding=1),
        lambda a, b, c: [(a, b, c + 1, 3)],
    ),
    "avg_pool2d": (
        lambda x: ops.avg_pool2d(x, (2, 3), padding=(0, 1)),
        lambda a, b, c: [(a, b, c + 1, 7)],
    ),
    "group_norm": (
        lambda x, w, b: eq.group_norm(x, w, b, groups=2),
        lambda a, b, c: [(a, 2 * b, c, 3), (2 * b,), (2 * b,)],
    ),
    "dequantize": (
        lambda s: ops.dequantize(np.arange(12) % 7, s, np.array([1, 2, 3])),
        lambda a, b, c: [(3,)],
    ),
    "conv2d_act": (
        lambda x, w, b: ops.conv2d_act(x, w, b, act="tanh"),
        lambda a, b, c: [(a, b, 4, 3), (c, b, 2, 2), (c, 1, 1)],
    ),
    "binary_act": (
        lambda x, y: ops.binary_act(x, y, op="multiply", act="gelu_tanh"),
        lambda a, b, c: [(a, b), (a, b)],
    ),
    "scaled_softmax": (ops.scaled_softmax, lambda a, b, c: [(a, b), ()]),
}
NORMS = "standardize rms_normalize layer_norm rms_norm".split()
SCALED = [n for n in CATALOGUE if n.startswith("attention_")]
ACTIVATIONS = "relu leaky_relu silu gelu gelu_tanh gelu_sigmoid softplus".split()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OF_ANY_SIZE)
@quick
@given(seeds, SIZES)
def test_arrays_of_any_size(name: str, seed: int, sizes: Any) -> None:
    f, shapes = OF_ANY_SIZE[name]
    check(f, apart(np.random.default_rng(seed), shapes(*sizes)), seed)


@pytest.mark.parametrize("name", OF_SOME)
@quick
@given(seeds, POSITIVE)
def test_arrays_that_are_not_empty(name: str, seed: int, sizes: Any) -> None:
    f, shapes = OF_SOME[name]
    check(f, apart(np.random.default_rng(seed), shapes(*sizes)), seed)


@pytest.mark.parametrize("name", ACTIVATIONS)
@quick
@given(seeds, SIZES)
def test_activations(name: str, seed: int, sizes: Any) -> None:
    op = CATALOGUE[name]
    shapes = [sizes[:2], ()][: len(op.params)]
    check(lambda *xs: op(*xs), apart(np.random.default_rng(seed), shapes), seed)


@pytest.mark.parametrize("name", NORMS)
@quick
@given(seeds, POSITIVE)
def test_norms(name: str, seed: int, sizes: Any) -> None:
    a, b, c = sizes
    op = CATALOGUE[name]
    weights = [(c + 1,)] * (len(op.params) - 2)
    *xs, eps = apart(np.random.default_rng(seed), [(a, b, c + 1), *weights, ()])
    check(lambda *xs: op(*xs), [*xs, np.abs(eps) + 0.1], seed)


@pytest.mark.parametrize("name", SCALED)
@quick
@given(seeds, POSITIVE)
def test_attention(name: str, seed: int, sizes: Any) -> None:
    m, n, d = sizes
    n = max(m, n)
    shapes = {"q": (2, m, d), "k": (2, n, d), "v": (2, n, 5), "r": (2, m, 5)}
    shapes |= {"mask": (m, n), "bias": (1, n), "keep": (m, n)}
    op = CATALOGUE[name]
    rng = np.random.default_rng(seed)
    args = apart(rng, [shapes.get(p, ()) for p in op.params])
    if "keep" in op.params:
        at = op.params.index("keep")
        args[at] = args[at] > -1
    floats = [i for i, x in enumerate(args) if x.dtype != bool]
    check(lambda *xs: op(*xs), args, seed, *floats)


def fused_linear(name: str) -> Callable[..., Any]:
    op = CATALOGUE[name]
    attrs = {n: of[-1] for n, of in op.choices.items()}
    return lambda *xs: op(*xs, **attrs)


OF_LINEAR = [
    n
    for n, o in CATALOGUE.items()
    if o.kind == "fused" and n not in (*OF_ANY_SIZE, *OF_SOME, *SCALED)
]
"""Fusions of products, whose axes are k, n and j."""


@pytest.mark.parametrize("name", OF_LINEAR)
@quick
@given(seeds, POSITIVE)
def test_fused_products(name: str, seed: int, sizes: Any) -> None:
    op = CATALOGUE[name]
    axes = dict(zip("knj", (s + 1 for s in sizes), strict=True))
    rule: Any = op.type_rule
    shapes = [
        tuple(2 if t == "..." else axes[t] for t in given.tokens)
        for given in rule.signature.inputs
    ]
    args = apart(np.random.default_rng(seed), shapes)
    if "eps" in op.params:
        args[op.params.index("eps")] = np.array(0.1)
    check(fused_linear(name), args, seed)


def test_every_composite_is_tested() -> None:
    named = {n.replace(",", "").split()[0] for n in (*OF_ANY_SIZE, *OF_SOME)}
    named |= {*ACTIVATIONS, *NORMS, *SCALED, *OF_LINEAR, *SMOOTH}
    smooth = {n for n, o in CATALOGUE.items() if o.body or isinstance(o.vjp, tuple)}
    flat = {n for n, o in CATALOGUE.items() if o.vjp == ()}
    assert smooth - flat - named == {"kernel", "result"}


# -- second derivatives, and what bodies would get wrong -------------------------------

TWICE: dict[str, Case] = {
    "tanh": (np.tanh, lambda a, b, c: [(a, b)]),
    "gelu": (eq.gelu, lambda a, b, c: [(a, b)]),
    "sinc": (np.sinc, lambda a, b, c: [(a, b)]),
    "entr": (lambda x: ops.entr(np.exp(x)), lambda a, b, c: [(a, b)]),
    "kl_div": (of_positive(ops.kl_div), lambda a, b, c: [(a, b), (b,)]),
    "xlogy": (of_positive(ops.xlogy), lambda a, b, c: [(a, b), (b,)]),
    "softmax": (eq.softmax, lambda a, b, c: [(a, b)]),
    "layer_norm": (eq.layer_norm, lambda a, b, c: [(a, b + 1), (b + 1,), (b + 1,)]),
    "matmul": (lambda x, y: np.sin(x @ y), lambda a, b, c: [(a, b), (b, c)]),
    "prod": (lambda x: ops.prod(x, 1), lambda a, b, c: [(a, b)]),
    "cumprod": (lambda x: np.cumprod(x, 1), lambda a, b, c: [(a, b)]),
    "take": (lambda x: x[INDICES] ** 3, lambda a, b, c: [(3, b)]),
    "slice": (lambda x: x[::2] ** 3, lambda a, b, c: [(a + 2, b)]),
    "conv2d": (
        lambda x, w: np.sin(eq.conv2d(x, w, stride=2, padding=1)),
        lambda a, b, c: [(a, b, 4, 3), (c, b, 2, 2)],
    ),
    "lu_solve": (
        lambda a, b: np.linalg.solve(regular(a), b) ** 2,
        lambda a, b, c: [(a, a), (a, b)],
    ),
    "lu_logabsdet": (
        lambda a: np.linalg.slogdet(regular(a))[1],
        lambda a, b, c: [(b, a, a)],
    ),
    "lu_det": (
        lambda a: np.linalg.det(regular(a)),
        lambda a, b, c: [(b, a, a)],
    ),
    "cholesky": (
        lambda a: np.linalg.cholesky(positive(a)) ** 2,
        lambda a, b, c: [(a, a)],
    ),
    "power": (lambda x, y: (x * x + 1) ** y, lambda a, b, c: [(a, b), (b,)]),
    "sort": (lambda x: np.sort(x, 0) ** 3, lambda a, b, c: [(a, b)]),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", TWICE)
@examples(5)
@given(seeds, POSITIVE)
def test_second_derivatives(name: str, seed: int, sizes: Any) -> None:
    f, shapes = TWICE[name]
    rng = np.random.default_rng(seed)
    args = apart(rng, shapes(*sizes))
    weights = rng.uniform(0.5, 1.5, np.shape(f(*args)))
    by = tuple(range(len(args)))
    first = eq.grad(weighted(f, weights), by).fn

    def flat(*xs: Any) -> Any:
        if type(xs[0]) is not np.ndarray:  # it is traced
            return np.concatenate([g.ravel() for g in first(*xs)])
        return np.concatenate(
            [g.ravel() for g in gradient(weighted(f, weights), xs, *by)]
        )

    check(flat, args, seed)


def test_products_of_zeros() -> None:
    x = np.array([2.0, 0.0, 3.0, 5.0])
    for f in (np.prod, lambda x: np.cumprod(x)[-1]):
        (g,) = gradient(f, [x], 0)
        np.testing.assert_array_equal(g, [0, 30, 0, 0])
    (g,) = gradient(np.prod, [np.array([0.0, 0.0, 3.0])], 0)
    np.testing.assert_array_equal(g, [0, 0, 0])


def test_softmax_of_large_numbers() -> None:
    x = np.array([1000.0, 999.0, -np.inf])
    p = np.exp([0.0, -1.0, -np.inf])
    p /= p.sum()
    (g,) = gradient(lambda x: eq.softmax(x)[0], [x], 0)
    np.testing.assert_allclose(g, p * ([1, 0, 0] - p[0]), rtol=1e-14)
    (g,) = gradient(lambda x: eq.log_softmax(x)[0], [x], 0)
    np.testing.assert_allclose(g, [1, 0, 0] - p, rtol=1e-14)
    (g,) = gradient(lambda x: eq.logsumexp(x).sum(), [x], 0)
    np.testing.assert_allclose(g, p, rtol=1e-14)
    (g,) = gradient(lambda x: eq.logsumexp(x).sum(), [np.full(3, -np.inf)], 0)
    np.testing.assert_array_equal(g, [0, 0, 0])
