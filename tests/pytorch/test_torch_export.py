"""Exported programs of PyTorch are functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat as eq

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Counted(nn.Module):  # type: ignore[misc, name-defined]
    """A layer that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Any, *, scale: Any) -> Any:
        self.calls.add_(1)
        y = torch.softmax(self.linear(x) * scale + self.shift, -1)
        return {"y": y * self.calls, "turned": x.T}


def exported() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = Counted().requires_grad_(False)
    program = torch.export.export(model, (torch.ones(3, 4),), {"scale": torch.ones(4)})
    return model, eq.from_torch(program)


def test_arrays_give_arrays_and_the_state_is_kept() -> None:
    model, function = exported()
    x, scale = np.random.default_rng(0).random((2, 3, 4), np.float32)
    for n in (1, 2):
        want = model(torch.from_numpy(x), scale=torch.from_numpy(scale[0]))
        found = function(x, scale=scale[0])
        assert type(found["y"]) is np.ndarray
        np.testing.assert_allclose(found["y"], want["y"], rtol=1e-5)
        np.testing.assert_array_equal(found["turned"], x.T)
        assert function.state["calls"] == n
    report = function.report()
    assert report.programs == 1 and report.fallbacks == ()
    assert "in 1 program of eqsat" in str(report)


class Doubled(torch.nn.Module):
    """Writes to its parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(3, 3), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.w.mul_(2)
        return self.w @ x


def test_parameters_that_a_model_writes_to_are_written_to() -> None:
    renormed = torch.nn.Embedding(9, 4, max_norm=0.5).requires_grad_(False)
    cases: list[tuple[torch.nn.Module, list[torch.Tensor]]] = [
        (Doubled(), [torch.rand(3, 2), torch.rand(3, 2)]),
        (renormed, [torch.tensor([1, 2]), torch.tensor([3, 1])]),
    ]
    for model, calls in cases:
        f = eq.from_torch(torch.export.export(model, (calls[0],)))
        for x in calls:
            torch.testing.assert_close(f(x), model(x))


def test_rules_find_the_fused_ops() -> None:
    layer = nn.TransformerEncoderLayer(
        *(64, 4, 128), dropout=0.0, activation="gelu", batch_first=True
    )
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        x = torch.rand(2, 16, 64)
        program = torch.export.export(layer.eval().requires_grad_(False), (x,))
        function = eq.from_torch(program)
        torch.testing.assert_close(function(x), layer(x), rtol=1e-4, atol=1e-5)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    (explanation,) = function.explain()
    names = " ".join(k.name for k in explanation.kernels)
    for op in ("linear", "attention", "layer_norm", "gelu"):
        assert op in names


def test_tensors_give_tensors() -> None:
    model, function = exported()
    x, scale = torch.rand(3, 4), torch.rand(4)
    found = function(x, scale=scale)
    torch.testing.assert_close(found["y"], model(x, scale=scale)["y"])
    assert found["turned"].data_ptr() == x.data_ptr()


def test_weights_are_those_of_the_export() -> None:
    model, function = exported()
    x, scale = torch.rand(3, 4), torch.rand(4)
    want = model(x, scale=scale)["y"]
    model.linear.weight.zero_()
    torch.testing.assert_close(function(x, scale=scale)["y"], want)


def test_bfloat16_goes_through_views() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).bfloat16()
    model.requires_grad_(False)
    x = torch.rand(2, 4).bfloat16()
    function = eq.from_torch(torch.export.export(model, (x,)))
    found = function(x.view(torch.uint16).numpy().view("bfloat16"))
    assert found.dtype == "bfloat16"
    want = model(x).float().numpy()
    np.testing.assert_allclose(found.astype(np.float32), want, rtol=0.02, atol=0.01)


class Table(nn.Module):  # type: ignore[misc, name-defined]
    """A module that reads a buffer where its argument says."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(12.0).reshape(4, 3))

    def forward(self, i: Any) -> Any:
        return self.table[i], torch.gather(self.table, 0, i[:, None].expand(2, 3))


def test_indices_of_what_is_constant_are_in_the_program() -> None:
    model, i = Table(), torch.tensor([2, 0])
    function = eq.from_torch(torch.export.export(model, (i,)))
    for found, want in zip(function(i), model(i), strict=True):
        assert torch.equal(found, want)
    assert function.report().fallbacks == ()


def test_sizes_that_vary() -> None:
    model = nn.Linear(4, 2).requires_grad_(False)
    n = torch.export.Dim("n", min=2, max=9)
    program = torch.export.export(model, (torch.rand(3, 4),), dynamic_shapes=({0: n},))
    function = eq.from_torch(program)
    for k in (2, 5, 9):
        x = torch.rand(k, 4)
        torch.testing.assert_close(function(x), model(x))
    with pytest.raises(eq.ShapeError, match=r"has size 11, expected 2 to 9"):
        function(torch.rand(11, 4))


def test_writes_to_arguments() -> None:
    class Writes(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            x.mul_(2)
            return x.sum()

    function = eq.from_torch(torch.export.export(Writes(), (torch.ones(3),)))
    x = np.arange(3, dtype=np.float32)
    assert function(x) == 6
    np.testing.assert_array_equal(x, [0, 2, 4])
    x.flags.writeable = False
    with pytest.raises(eq.EqsatError, match="an argument that is read-only"):
        function(x)


def test_arguments_that_do_not_fit_are_refused() -> None:
    _, function = exported()
    x, scale = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    with pytest.raises(eq.ShapeError, match=r"'x' has shape \(2, 4\), expected \(3, 4"):
        function(x[:2], scale=scale)
    with pytest.raises(eq.DTypeError, match=r"dtype torch.float64, expected torch.flo"):
        function(x.astype(float), scale=scale)
    with pytest.raises(eq.EqsatError, match="the exported program takes"):
        function(x)
    with pytest.raises(eq.TraceError, match="requires a gradient"):
        function(torch.ones(3, 4, requires_grad=True), scale=scale)
    with pytest.raises(eq.EqsatError, match=r"expected a torch.export.ExportedProgram"):
        eq.from_torch(nn.Linear(2, 2))


def test_options_that_are_none_are_refused_before_a_call() -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(3),))
    with pytest.raises(eq.OptionError, match=r"from_torch: no option .speed.; there"):
        eq.from_torch(program, speed=1)
    with pytest.raises(eq.OptionError, match=r"options=3, expected eqsat.Options"):
        eq.from_torch(program, options=3)
    with pytest.raises(eq.BackendError, match="no backend 'nope'"):
        eq.from_torch(program, backend="nope")


def test_rows_of_attention_that_a_mask_hides_are_zero() -> None:
    """As in PyTorch, and so are their gradients."""
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 3, 4, generator=rng) for _ in range(3))
    keep = torch.tensor([[0, 0, 0], [1, 0, 1], [1, 1, 1]]).bool()
    for mask in (keep, torch.where(keep, 0.0, -torch.inf)):

        def attend(q: Any, k: Any, v: Any, mask: Any = mask) -> Any:
            of = torch.nn.functional.scaled_dot_product_attention
            return of(q, k, v, attn_mask=mask)

        results = []
        for f in (attend, torch.compile(attend, backend="eqsat")):
            given = [x.clone().requires_grad_() for x in (q, k, v)]
            y = f(*given)
            (y * y + y).sum().backward()
            results.append([y.detach(), *(x.grad for x in given)])
        for want, got in zip(*results, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        assert not results[1][0][:, :, 0].any()


class Inverse(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return torch.linalg.inv(x) @ torch.linalg.cholesky(x)


def test_models_that_say_what_was_done_before() -> None:
    """Operators with effects take tokens of each other."""
    x = torch.eye(3) * 2
    f = eq.from_torch(torch.export.export(Inverse(), (x,)))
    torch.testing.assert_close(f(x), Inverse()(x))


class Chosen(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return x[y[:, 0] > 0].sum(0), y


def test_shapes_that_depend_on_values_beside_sizes_that_vary() -> None:
    model = Chosen().requires_grad_(False)
    sizes = ({0: torch.export.Dim("n", min=2, max=9)},)
    exported = torch.export.export(model, (torch.ones(3, 4),), dynamic_shapes=sizes)
    f = eq.from_torch(exported)
    for n in (3, 5):
        x = torch.randn(n, 4)
        for got, want in zip(f(x), model(x), strict=True):
            torch.testing.assert_close(got, want)


def test_tensors_with_the_negative_bit() -> None:
    z = torch.randn(3, dtype=torch.complex64)

    def f(x: Any, z: Any) -> Any:
        return x * 2, torch.fft.fft(z).conj().imag + 1

    got = torch.compile(f, backend="eqsat")(z.conj().imag, z)
    for one, want in zip(got, f(z.conj().imag, z), strict=True):
        torch.testing.assert_close(one, want)


class WrittenTo(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(2))
        self.register_buffer("fixed", torch.ones(2))

    def forward(self, x: Any) -> Any:
        x.add_(1)
        self.n.add_(1)
        return x, self.n, self.fixed, x * self.fixed


def test_results_that_are_what_was_written_to() -> None:
    """They are the argument and the buffer; a constant is the caller's copy."""
    f = eq.from_torch(torch.export.export(WrittenTo(), (torch.ones(2),)))
    x = torch.ones(2)
    one, n, fixed, _ = f(x)
    assert one is x and n is f.state["n"]
    fixed.add_(5)
    *_, again, product = f(x)
    assert n.tolist() == [2, 2] and one.tolist() == [3, 3]
    assert again.tolist() == [1, 1] and product.tolist() == [3, 3]
    array = np.ones(2, np.float32)
    got, *_ = f(array)
    assert got is array and array.tolist() == [2, 2]


class Mixed(torch.nn.Module):
    """Maps its arguments, and nothing else."""

    def forward(self, x: Any, y: Any) -> Any:
        return x @ y, x.T, (x + 1).sum()


@pytest.mark.parametrize("varies", [False, True])
def test_calls_after_the_first_one(varies: bool) -> None:
    x, y = torch.rand(3, 4), torch.rand(4, 5)
    n = torch.export.Dim("n", min=2, max=9)
    given: Any = {"dynamic_shapes": {"x": {0: n}, "y": None}} if varies else {}
    function = eq.from_torch(torch.export.export(Mixed(), (x, y), **given))

    def check(x: Any, y: Any) -> None:
        arrays = [v if isinstance(v, torch.Tensor) else np.array(v) for v in (x, y)]
        as_tensors = [torch.as_tensor(v) for v in arrays]
        found, want = function(x, y), Mixed()(*as_tensors)
        kind = np.ndarray if isinstance(x, np.ndarray) else torch.Tensor
        for a, b in zip(found, want, strict=True):
            assert isinstance(a, kind)
            np.testing.assert_allclose(a, b, 1e-5)

    for rows in (3, 5, 3) if varies else (3, 3):
        x = torch.rand(rows, 4)
        for a, b in ((x, y), (x.numpy(), y.numpy()), (x.numpy()[:, ::-1], y.numpy())):
            check(a, b)
        check(x.T.contiguous().T, y.clone())
        check(-torch.imag(torch.complex(x, x).conj()), y)
        frozen = y.numpy().copy()
        frozen.flags.writeable = False
        check(x.numpy(), frozen)
    with pytest.raises(eq.DTypeError, match=r"has dtype torch\.float64"):
        function(x.double(), y)
    with pytest.raises(eq.ShapeError, match="'y' has shape"):
        function(x, torch.rand(4, 6))
    with pytest.raises(eq.ShapeError):
        function(torch.rand(10, 4), y)
    with pytest.raises(eq.TraceError, match="requires a gradient"):
        function(x.clone().requires_grad_(), y)
    with pytest.raises(eq.EqsatError, match="takes"):
        function(x)


class Delays(nn.Module):
    """Each buffer moves on into the next one."""

    def __init__(self) -> None:
        super().__init__()
        for i, name in enumerate("abc"):
            self.register_buffer(name, torch.tensor([10.0**i]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.c.copy_(self.b)
        self.b.copy_(self.a)
        self.a.copy_(x)
        return self.b * 1, self.a * 100 + self.b, self.c


def test_buffers_that_move_on_into_each_other() -> None:
    program = torch.export.export(Delays(), (torch.zeros(1),))
    function, wanted = eq.from_torch(program), program.module()
    for value in (100.0, 101.0, 102.0):
        x = torch.tensor([value])
        for found, want in zip(function(x), wanted(x), strict=True):
            torch.testing.assert_close(found, want)
        assert float(function.state["a"]) == value


class Applied(nn.Module):
    """A function as a model."""

    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.f(*args, **named)


OF_ARGUMENTS = {
    "reshape": lambda x: x.reshape(2, 6),
    "computed": lambda x: x.reshape(2, 6) * 2,
    "torch": lambda x: torch.cummax(x.flatten(), 0).values,
    "parts": lambda x: x.reshape(2, 6).split(1),
    "memory": lambda x: x.as_strided((2, 2), (4, 1)),
    "computed memory": lambda x: x.as_strided((2, 2), (4, 1), 1) * 2,
    "memory after a reshape": lambda x: x.reshape(12).as_strided((2, 2), (1, 1)) + 1,
    "written": lambda x: x.add_(1).reshape(2, 6),
}


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("name", OF_ARGUMENTS)
def test_arguments_that_lie_otherwise_in_memory(name: str, varies: bool) -> None:
    """Turned, with gaps, behind the start of their memory, and as exported."""
    sizes = {0: torch.export.Dim("n", min=2, max=9)} if varies else None
    how: Any = {"dynamic_shapes": {"args": (None, sizes)}}

    def f(x: Any, y: Any) -> Any:
        return OF_ARGUMENTS[name](x), y + 1

    y = torch.rand(5)
    example = torch.arange(12.0).reshape(3, 4), y
    function = eq.from_torch(torch.export.export(Applied(f), example, **how))
    for strides, start in (((4, 1), 0), ((1, 3), 0), ((8, 2), 1), ((4, 1), 7)):
        tensor, other = [
            torch.arange(48.0).as_strided((3, 4), strides, start) for _ in range(2)
        ]
        for x, given in ((tensor, other), (tensor.numpy(), other.numpy())):
            want = torch.utils._pytree.tree_leaves(f(torch.as_tensor(given), y))
            found = torch.utils._pytree.tree_leaves(function(x, y))
            for a, b in zip(found, want, strict=True):
                np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(x, given)


def test_dicts_in_any_order_of_keys() -> None:
    def f(d: Any, *, o: Any, p: Any) -> Any:
        return {"s": d["a"] - d["n"]["c"], "r": [{"z": o["q"] * 2, "y": p[0]["b"]}]}

    a, b, c = torch.rand(3, 2)
    named = {"o": {"q": a, "r": b}, "p": [{"b": b, "c": c}]}
    program = torch.export.export(Applied(f), ({"a": a, "n": {"c": c, "d": b}},), named)
    function = eq.from_torch(program)
    d = {"n": {"d": b, "c": c}, "a": a}
    others = {"p": [{"c": c, "b": b}], "o": {"r": b, "q": a}}
    found, want = function(d, **others), f(d, **others)
    assert list(found) == ["s", "r"] and list(found["r"][0]) == ["z", "y"]
    torch.testing.assert_close(found, want)
    with pytest.raises(eq.EqsatError, match="takes"):
        function({"n": {"d": b}, "a": a}, **others)
