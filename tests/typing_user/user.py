"""What type checkers say of a user's code.

No test runs this file: ``tests/house/test_types.py`` has mypy and pyright read it. A
line that names an error after ``#`` is wrong, and the checkers must say so; all others
are right.
"""

import functools
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import eqsat as eq
from eqsat.define import Axis, Op, composite, op

Array = npt.NDArray[np.float64]
x: Array = np.ones((4, 4))

# -- jit -------------------------------------------------------------------------------


@eq.jit
def ffn(x: Array, w: Array, *, scale: float = 1.0) -> Array:
    return np.tanh(x @ w) * scale


assert_type(ffn(x, x), Array)
assert_type(ffn(x, w=x, scale=2.0), Array)
ffn(x)  # error: call-arg
ffn(x, x, 2.0)  # error: call-arg
ffn(x, x, sclae=2.0)  # error: call-arg
ffn(x, x, scale="2")  # error: arg-type
ffn.lowered(x, x)  # error: attr-defined
assert_type(ffn.lower(eq.Spec((4, 4), "float64"), x), eq.Lowered)
assert_type(ffn.explain(x, x), eq.Explanation)
assert_type(ffn.name, str)


@eq.jit(options=eq.Options(deadline_s=1.0), constants=["w"])
def with_options(x: Array, w: Array) -> tuple[Array, int]:
    return x @ w, 1


assert_type(with_options(x, w=x), tuple[Array, int])
with_options(x, v=x)  # error: call-arg
assert_type(eq.jit(with_options)(x, x), tuple[Array, int])
eq.jit(ffn, "numpy", constants=("w",))
eq.jit(ffn, bakcend="numpy")  # error: call-overload
eq.jit(3)  # error: call-overload


@eq.jit()
def of_many(*arrays: Array, **named: Array) -> Array:
    return sum([*arrays, *named.values()], x)


assert_type(of_many(x, x, y=x), Array)
of_many(1)  # error: arg-type

twice = eq.jit(lambda a: a + a)
twice(x)
twice(x, x)  # error: call-arg
half: eq.Jit[[Array], Array] = eq.jit(lambda a: a / 2)
assert_type(half(x), Array)
assert_type(eq.jit(functools.partial(ffn, scale=2.0))(x, x), Array)
any_jitted: eq.Jit = ffn
any_jitted(1, 2, 3)


class Layer:
    """A user's class."""

    def __init__(self, w: Array) -> None:
        self.w = w
        self.bound = eq.jit(self.plain)

    def plain(self, x: Array) -> Array:
        return x @ self.w

    @eq.jit
    def forward(self, x: Array, *, scale: float = 1.0) -> Array:
        return x @ self.w * scale

    @eq.jit(options=eq.Options())
    def with_options(self, x: Array) -> Array:
        return x @ self.w

    @staticmethod
    @eq.jit
    def square(x: Array) -> Array:
        return x * x


layer = Layer(x)
assert_type(layer.forward(x, scale=2.0), Array)
assert_type(layer.with_options(x), Array)
assert_type(layer.bound(x), Array)
assert_type(Layer.forward(layer, x), Array)
assert_type(Layer.forward.explain(layer, x), eq.Explanation)
assert_type(Layer.square(x), Array)
layer.forward()  # error: call-arg
layer.forward(x, size=2.0)  # error: call-arg
layer.forward(x, x)  # error: call-arg
Layer.square(x, x)  # error: call-arg

# -- gradients -------------------------------------------------------------------------


def loss(p: dict[str, Array], x: Array, power: int = 2) -> np.float64:
    return np.float64(np.mean((x @ p["w"]) ** power))


assert_type(eq.grad(loss)({"w": x}, x, power=3), Any)
assert_type(eq.value_and_grad(loss, argnums="p")({"w": x}, x), tuple[np.float64, Any])
assert_type(eq.grad(loss).explain({"w": x}, x), eq.Explanation)
eq.grad(loss)({"w": x})  # error: call-arg
eq.grad(loss, 0)({"w": x}, x, pwer=3)  # error: call-arg
eq.value_and_grad(loss)({"w": x}, x, 2, 3)  # error: call-arg
eq.grad(loss, argnums=1.5)  # error: call-overload
eq.grad(loss, argnums=(0, "x"), backend="numpy")
eq.grad(loss, bakcend="numpy")  # error: call-overload


@eq.grad(argnums=(0, 1))
def slope(x: Array, y: Array) -> np.float64:
    return np.float64(np.vdot(x, y))


@eq.value_and_grad(options=eq.Options())
def value_and_slope(x: Array) -> np.float64:
    return np.float64(np.vdot(x, x))


assert_type(slope(x, y=x), Any)
assert_type(value_and_slope(x), tuple[np.float64, Any])
slope(x)  # error: call-arg
value_and_slope(x, x)  # error: call-arg

# -- ops -------------------------------------------------------------------------------

eq.softmax(x)
eq.softmax(x, axis=-1)
eq.softmax(x, axis=(0, 1))
eq.softmax(x, axes=-1)  # error: call-arg
eq.softmax(x, -1)  # error: call-arg
eq.softmax()  # error: call-arg
eq.layer_norm(x, x[0], x[0], eps=1e-6)
eq.layer_norm(x, x[0])  # error: call-arg
eq.layer_norm(x, x[0], x[0], epsilon=1e-6)  # error: call-arg
eq.group_norm(x, x[0], x[0], groups=2)
eq.group_norm(x, x[0], x[0])  # error: call-arg
eq.group_norm(x, x[0], x[0], groups="2")  # error: arg-type
eq.linear(x, x, x[0], act="relu")
eq.linear(x, x, x[0], activation="relu")  # error: call-arg
eq.attention(x, x, x, casual=True)  # error: call-arg
print(eq.relu.nmae)  # error: attr-defined
assert_type(eq.relu.name, str)
assert_type(eq.jit(eq.gelu)(x), Any)
eq.jit(eq.gelu)(x, 2)  # error: call-arg
any_op: Op = eq.softmax


@composite("... -> ...")
def swish(x: Any, *, beta: float = 1.0) -> Any:
    return x * eq.sigmoid(beta * x)


@op("..., -> ...")
def scaled(x: Any, y: Any, *, axis: Axis = None) -> Any:
    return np.sum(x * y, axis)


swish(x, beta=2.0)
swish(x, bta=2.0)  # error: call-arg
scaled(x, x, axis=(0, 1))
scaled(x)  # error: call-arg

# -- lazy arrays -----------------------------------------------------------------------

lazy = eq.array([[1.0, 2.0]], dtype="float32")
assert_type(lazy, eq.LazyArray)
eq.array([1.0], dtpye="float32")  # error: call-arg
eq.array([1.0], dtype=1.5)  # error: arg-type
assert_type(lazy + 1, eq.LazyArray)
assert_type(1 - lazy, eq.LazyArray)
assert_type(lazy * lazy / 2 // 2 % 2, eq.LazyArray)
assert_type(lazy @ lazy, eq.LazyArray)
assert_type(lazy**2, eq.LazyArray)
assert_type(2**lazy, eq.LazyArray)
assert_type(-abs(+lazy), eq.LazyArray)
assert_type((lazy > 0) & ~(lazy < 1) | (lazy >= 2) ^ (lazy <= 3), eq.LazyArray)
assert_type(lazy == 1, eq.LazyArray)
assert_type(lazy != lazy, eq.LazyArray)
assert_type(lazy[0], eq.LazyArray)
assert_type(lazy[:, None], eq.LazyArray)
assert_type(lazy.sum(axis=0, keepdims=True), eq.LazyArray)
assert_type(lazy.T.reshape(1, -1).astype("float64"), eq.LazyArray)
assert_type(lazy.shape, tuple[int, ...])
assert_type(lazy.lower(), eq.Lowered)
lazy += 1
assert_type(lazy, eq.LazyArray)
eq.evaluate(lazy, nmae=1)  # error: call-arg
