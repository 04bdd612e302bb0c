"""Dtypes and numbers that PyTorch chooses: of floats made of integers or of nothing, of
integers that a dtype does not hold, and of quotients by 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch_functions import Model, torch

import eqsat as eq
from eqsat import pytorch as eqsat_torch

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def exported(f: Callable[..., Any], *args: Any, **how: Any) -> Any:
    return eq.from_torch(torch.export.export(Model(f), args, **how))


def same(found: Any, want: Any) -> None:
    """Compare dtypes, values, signs of 0 and NaN."""
    eps = torch.finfo(want.dtype).eps if want.dtype.is_floating_point else 0
    torch.testing.assert_close(found, want, rtol=4 * eps, atol=0, equal_nan=True)
    if want.dtype.is_floating_point:
        known = ~want.isnan()
        assert torch.equal(found.signbit()[known], want.signbit()[known])


@pytest.fixture
def default() -> Iterator[Callable[[Any], None]]:
    """``torch.set_default_dtype``, undone in the end."""
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)


OF_DEFAULT = {
    "quotient": lambda x: x / 3,
    "quotient of tensors": lambda x: x / (x + 1),
    "root": lambda x: x.sqrt(),
    "arctan2": lambda x: torch.atan2(x, x + 1),
    "erf": lambda x: torch.erf(x),
    "product": lambda x: x * 0.1,
    "product of bools": lambda x: (x > 1) * 0.1,
    "comparison": lambda x: x + 2**24 < 2**24 + 2.5,
    "power": lambda x: x**0.5,
    "power of a number": lambda x: 0.3**x,
    "clamp": lambda x: x.clamp(0.1, 1.7),
    "where": lambda x: torch.where(x > 1, 0.1, x),
    "logsumexp": lambda x: torch.logsumexp(x, 0),
    "mean": lambda x: (x / 7).mean() + torch.zeros(3).mean(),
    "zeros": lambda x: torch.zeros(3) + x,
    "ones": lambda x: torch.ones(3) / 3 * x,
    "full": lambda x: torch.full((3,), 0.1) + x,
    "arange": lambda x: torch.arange(0, 0.3, 0.1) + x,
    "linspace": lambda x: torch.linspace(0, 1, 3) / 3 + x,
    "eye": lambda x: torch.eye(3) * x / 7,
    "scalar_tensor": lambda x: torch.scalar_tensor(0.1) + x,
    "tensor": lambda x: torch.tensor(0.1) * x,
    "rand": lambda x: torch.rand(3) + x,
}


@pytest.mark.parametrize("name", OF_DEFAULT)
def test_floats_are_of_the_default_dtype(
    name: str, default: Callable[[Any], None]
) -> None:
    """Of the one at the time, also where a program was made for another one."""
    f, x = OF_DEFAULT[name], torch.tensor([1, 2, 3])
    compiled = torch.compile(f, backend=eqsat_torch.backend)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float32):
        default(dtype)
        for call in (compiled, exported(f, x)):
            torch.manual_seed(0)
            want = f(x)
            torch.manual_seed(0)
            same(call(x), want)


def test_complex_numbers_are_of_the_default_dtype(
    default: Callable[[Any], None],
) -> None:
    x = torch.tensor([1, 2, 3])
    calls = [lambda x: x * 0.1j, lambda x: x.float() * 0.1j]
    for dtype in (torch.float64, torch.float32, torch.float16):
        default(dtype)
        for f in calls:
            found = torch.compile(f, backend=eqsat_torch.backend)(x)
            assert found.dtype == f(x).dtype
            torch.testing.assert_close(found, f(x), rtol=1e-15, atol=0)


def test_an_exported_program_is_called_with_another_default_dtype(
    default: Callable[[Any], None],
) -> None:
    x = torch.tensor([1, 2, 3])
    n = torch.export.Dim("n", min=2, max=9)
    for how in ({}, {"dynamic_shapes": {"args": ({0: n},)}}):
        f = exported(lambda x: (x / 3).exp() + torch.rand(1), x, **how)
        for dtype in (torch.float32, torch.float64, torch.float32):
            default(dtype)
            torch.manual_seed(0)
            want = (x / 3).exp() + torch.rand(1)
            torch.manual_seed(0)
            same(f(x), want)


OF_DEFAULT_LATER = OF_DEFAULT | {
    "logspace": lambda x: torch.logspace(0, 1, 3) + x,
    "full alone": lambda x: torch.full((3,), 0.1),
    "xlogy": lambda x: torch.xlogy(x, x),
    "xlog1py": lambda x: torch.special.xlog1py(x, x),
    "where of numbers": lambda x: torch.where(x > 1, 0.1, 0.2),
    "hann_window": lambda x: torch.hann_window(3) * x,
    "sinc": lambda x: torch.sinc(x),
    "logit": lambda x: torch.logit(x / 9),
    "std": lambda x: (x / 7).std(),
    "lerp": lambda x: torch.lerp(x / 1, x * 2.0, 0.3),
    "nan_to_num": lambda x: torch.nan_to_num(x / 0),
    "cosine_similarity": lambda x: torch.cosine_similarity(x / 1, x * 2.0, dim=0),
}
DEFAULTS = torch.float32, torch.float64, torch.bfloat16


@pytest.mark.parametrize("exporting", DEFAULTS)
def test_an_exported_program_has_the_default_dtype_of_its_call(
    exporting: Any, default: Callable[[Any], None]
) -> None:
    """Not that of its export, nor that of ``from_torch``: as PyTorch's module of it."""
    x = torch.tensor([1, 2, 3])
    default(exporting)
    every = Model(lambda x: tuple(f(x) for f in OF_DEFAULT_LATER.values()))
    program = torch.export.export(every, (x,))
    for reading in (exporting, torch.float64):
        default(reading)
        function = eq.from_torch(program)
        for running in DEFAULTS:
            default(running)
            torch.manual_seed(0)
            want = program.module()(x)
            torch.manual_seed(0)
            for name, *pair in zip(OF_DEFAULT_LATER, function(x), want, strict=True):
                assert pair[0].dtype == pair[1].dtype, name
                same(*pair)


class Written(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A state, two names of one weight, and a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.again = self.linear
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("shift", torch.ones(3), persistent=False)

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        y = self.again(self.linear(x.to(self.shift.dtype))) + self.shift
        return y * self.calls, x / self.calls + torch.linspace(0, 1, 3)


def test_state_and_weights_are_the_same_with_each_default_dtype(
    default: Callable[[Any], None],
) -> None:
    torch.manual_seed(0)
    model = Written().requires_grad_(False)
    x = torch.tensor([[1, 2, 3], [4, 5, 6]])
    n = torch.export.Dim("n", min=2, max=9)
    for how in ({}, {"dynamic_shapes": {"x": {0: n}}}):
        program = torch.export.export(model, (x,), **how)
        module, function = program.module(), eq.from_torch(program)
        with torch.no_grad():
            kept = model.linear.weight.clone()
            for dtype in (*DEFAULTS, torch.float32):
                default(dtype)
                model.linear.weight.copy_(kept)
                want = module(x)
                model.linear.weight.zero_()  # from_torch has copied it
                for one, other in zip(function(x), want, strict=True):
                    assert one.dtype == other.dtype
                    torch.testing.assert_close(one, other)
                assert function.state["calls"] == module.calls
            model.linear.weight.copy_(kept)
        assert function.report().programs > 1 and function.explain()


BEYOND = {
    "equal": lambda x, n: x == n,
    "unequal": lambda x, n: n != x,
    "less": lambda x, n: x < n,
    "at least": lambda x, n: x >= n,
    "sum": lambda x, n: x + n,
    "difference": lambda x, n: n - x,
    "product": lambda x, n: x * n,
    "bits": lambda x, n: x & n,
    "quotient": lambda x, n: x // n,
    "remainder": lambda x, n: x % n,
    "true quotient": lambda x, n: x / n,
    "multiple": lambda x, n: torch.add(x, x, alpha=n),
    "larger": lambda x, n: torch.maximum(x, torch.tensor(n)),
    "clamp": lambda x, n: x.clamp(max=n),
    "where": lambda x, n: torch.where(x > 1, x, n),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "masked_fill of a tensor": lambda x, n: x.masked_fill(x > 1, torch.tensor(n)),
    "full_like": lambda x, n: torch.full_like(x, n),
    "pad": lambda x, n: torch.nn.functional.pad(x, (1, 0), value=n),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([0, 2]), n),
    "isin": lambda x, n: torch.isin(x, n),
    "logical": lambda x, n: torch.logical_and(x, torch.tensor(n)),
}
NUMBERS = {
    "uint8": (-1, 300, -300),
    "int8": (300, -129),
    "int32": (2**40, 2**31),
    "bool": (2, -1),
    "bfloat16": (0.1, 2**24 + 3, 3.4e38),
    "float16": (0.1, 65521),
}


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", BEYOND)
def test_numbers_that_a_dtype_does_not_hold(name: str, dtype: str) -> None:
    """They wrap, are rounded or are refused, as PyTorch does it in each operator."""
    x = torch.tensor([0, 1, 100, -1, 44]).to(getattr(torch, dtype))
    for n in NUMBERS[dtype]:
        gives_what_torch_gives(lambda x, n=n: BEYOND[name](x, n), x)


def gives_what_torch_gives(f: Callable[..., Any], *args: Any) -> Any:
    """Compare what ``f`` gives, or that it raises, compiled with both backends."""
    try:
        want = f(*args)
    except (RuntimeError, TypeError):
        want = None
    for backend in ("native", "numpy"):
        torch._dynamo.reset()
        options = {"backend": backend}
        call = torch.compile(f, backend=eqsat_torch.backend, options=options)
        if want is None:
            with pytest.raises((RuntimeError, TypeError)):
                call(*args)
        else:
            same(call(*args), want)


F = torch.nn.functional
REFUSING = {
    "threshold": lambda x: F.threshold(x, 1, 300),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=300),
    "addcmul of a fraction": lambda x: torch.addcmul(x, x, x, value=0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x, x),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "lerp of a tensor": lambda x: torch.lerp(x, x, x),
    "alpha": lambda x: torch.add(x, x, alpha=0.5),
    "celu": lambda x: F.celu(x, 0.0),
    "softplus": F.softplus,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "softmax": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "std": torch.std,
    "mse_loss": lambda x: F.mse_loss(x, x),
    "huber_loss": lambda x: F.huber_loss(x, x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x, beta=-1.0),
    "mm": lambda x: x[None] @ x[:, None],
    "mm of two dtypes": lambda x: x[None] @ torch.tensor([[1], [2], [3]]),
    "silu": F.silu,
    "gelu": F.gelu,
    "frac": torch.frac,
    "floor": torch.floor,
    "abs": torch.abs,
    "sign": torch.sign,
    "hypot": lambda x: torch.hypot(x, x),
    "logaddexp": lambda x: torch.logaddexp(x, x),
    "xlogy": lambda x: torch.xlogy(x, x),
    "maximum": lambda x: torch.maximum(x, x),
    "less": lambda x: x < x,
    "heaviside": lambda x: torch.heaviside(x, torch.tensor(0.5)),
    "lerp of two dtypes": lambda x: torch.lerp(x, torch.tensor([0.5, 1, 2]), 0.5),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", REFUSING)
def test_what_a_kernel_refuses_is_refused(name: str) -> None:
    """Its decomposition, or NumPy, would give some result."""
    refused = 0
    for dtype in ("float32", "int64", "uint8", "bool", "complex64"):
        x = torch.tensor([1, 2, 3]).to(getattr(torch, dtype))
        try:
            REFUSING[name](x)
        except (RuntimeError, TypeError):
            refused += 1
        gives_what_torch_gives(REFUSING[name], x)
    assert refused


def test_an_exported_program_refuses_what_a_kernel_refuses() -> None:
    x = torch.tensor([1, 2, 3])
    for f in (F.softplus, lambda x: torch.lerp(x, x, 0.5)):
        program = torch.export.export(Model(f), (x,))
        for call in (program.module(), eq.from_torch(program)):
            with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
                call(x)


DIVISIONS = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": torch.fmod,
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("name", DIVISIONS)
def test_integers_by_0_are_refused(name: str, dtype: str) -> None:
    """By elements, constants and numbers; other divisors give what PyTorch gives, and
    floats by 0 too."""
    f = DIVISIONS[name]
    x = torch.tensor([7, 9, 8]).to(getattr(torch, dtype))
    divisors = [torch.tensor([2, 1, 3]), torch.tensor([2, 0, 1]), torch.tensor(0)]
    for y in [y.to(x.dtype) for y in divisors]:
        gives_what_torch_gives(f, x, y)
        gives_what_torch_gives(lambda x, y=y: f(x, torch.tensor(y.tolist())), x)
    for n in (0, 3):
        gives_what_torch_gives(lambda x, n=n: f(x, n), x)
        gives_what_torch_gives(lambda x, n=n: f(x.float(), n), x)


def test_integers_by_constants_are_in_programs() -> None:
    def f(x: Any) -> Any:
        x = x // 3 + x % torch.tensor([2, 3, 4]) + torch.fmod(x, 5)
        return x + torch.div(
            torch.arange(1, 4), torch.arange(2, 5), rounding_mode="floor"
        )

    x = torch.tensor([7, -9, 8])
    eqsat_torch.fallbacks(clear=True)
    same(torch.compile(f, backend=eqsat_torch.backend)(x), f(x))
    assert eqsat_torch.fallbacks() == []
    exp = exported(f, x)
    same(exp(x), f(x))
    assert exp.report().fallbacks == ()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("n", [0.5, -0.5, 1.5, -1.5, -1, 3])
def test_powers_of_zeros_and_infinities(n: float, dtype: str) -> None:
    x = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 4.0, -4.0]
    x = torch.tensor(x, dtype=getattr(torch, dtype))
    gives_what_torch_gives(lambda x: x**n, x)
    gives_what_torch_gives(lambda x: x ** torch.full_like(x, n), x)
    gives_what_torch_gives(torch.rsqrt, x)
