"""Operators that compute element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.onnx.operators.table import (
    enter_all,
    expect_broadcast,
    expect_shape,
    is_known,
    kind_of,
    number,
    operator,
)
from eqsat.support import EqsatError

# -- one expression of NumPy each ------------------------------------------------------

enter_all(
    {
        "Abs": np.abs,
        "Acos": np.arccos,
        "Acosh": np.arccosh,
        "Add": np.add,
        "And": np.logical_and,
        "Asin": np.arcsin,
        "Asinh": np.arcsinh,
        "Atan": np.arctan,
        "Atanh": np.arctanh,
        "BitwiseAnd": np.bitwise_and,
        "BitwiseNot": np.invert,
        "BitwiseOr": np.bitwise_or,
        "BitwiseXor": np.bitwise_xor,
        "Ceil": np.ceil,
        "Cos": np.cos,
        "Cosh": np.cosh,
        "Equal": np.equal,
        "Exp": np.exp,
        "Floor": np.floor,
        "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
        "Identity": lambda x: x,
        "IsNaN": np.isnan,
        "Less": np.less,
        "LessOrEqual": np.less_equal,
        "Log": np.log,
        "Mul": np.multiply,
        "Neg": np.negative,
        "Not": np.logical_not,
        "Or": np.logical_or,
        "Reciprocal": lambda x: 1 / x,
        "Relu": lambda x: np.maximum(x, 0),
        "Round": np.rint,
        "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Sign": np.sign,
        "Sin": np.sin,
        "Sinh": np.sinh,
        "Softplus": lambda x: np.logaddexp(x, 0),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "Sqrt": np.sqrt,
        "Sub": np.subtract,
        "Tan": np.tan,
        "Tanh": np.tanh,
        "Where": np.where,
        "Xor": np.logical_xor,
    }
)


@operator("Erf")
def erf(x: Any) -> Any:
    """2/√π ∫ e^(-t²) from 0 to x."""
    if x.dtype != np.float64 and is_known(x):  # SciPy's has no loop for all halves
        return ops.erf(x.astype(np.float64)).astype(x.dtype)
    return ops.erf(x)


@operator("LeakyRelu")
def leaky_relu(x: Any, *, alpha: float) -> Any:
    """x above 0, else alpha x."""
    return np.where(x < 0, alpha * x, x)


@operator("PRelu")
def p_relu(x: Any, slope: Any) -> Any:
    """x above 0, else slope x."""
    expect_broadcast("slope", slope, x.shape)
    return np.where(x < 0, slope * x, x)


@operator("Elu")
def elu(x: Any, *, alpha: float) -> Any:
    """x above 0, else alpha (e^x - 1). What the standard writes out takes 1 from a
    rounded e^x, which loses the digits of what is near 0."""
    return np.where(x < 0, alpha * np.expm1(x), x)


@operator("Selu")
def selu(x: Any, *, alpha: float, gamma: float) -> Any:
    """gamma x above 0, else gamma alpha (e^x - 1)."""
    return np.where(x < 0, gamma * alpha * np.expm1(x), gamma * x)


@operator("Shrink")
def shrink(x: Any, *, bias: float, lambd: float) -> Any:
    """x nearer to 0 by bias, or 0 from -lambd to lambd. What the standard writes out
    cuts both to integers before it adds."""
    below = np.where(x < -lambd, x + bias, 0)
    return np.where(x > lambd, x - bias, below).astype(x.dtype)


@operator("Clip", until=10)
def clip(x: Any, *, min: float, max: float) -> Any:
    """x between two numbers."""
    return np.minimum(np.maximum(x, min), max)


@operator("Clip", since=11)
def clip_between(x: Any, low: Any = None, high: Any = None) -> Any:
    """x between two numbers, each of which may be left out."""
    y = x if low is None else np.maximum(x, _one("min", low))
    return y if high is None else np.minimum(y, _one("max", high))


def _one(name: str, value: Any) -> Any:
    """One number, which may come as an array. Raises :class:`ShapeError` for more."""
    if value.size != 1:
        expect_shape(name, value)
    return value.reshape(()) if value.ndim else value


# -- any number of inputs --------------------------------------------------------------


def _of_many(two: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *xs: functools.reduce(two, xs)


enter_all(
    {
        "Max": _of_many(np.maximum),
        "Min": _of_many(np.minimum),
        "Sum": _of_many(np.add),
        "Mean": lambda *xs: functools.reduce(np.add, xs) / len(xs),
    }
)


# -- what differs from NumPy's ---------------------------------------------------------


@operator("Div")
def div(x: Any, y: Any) -> Any:
    """x / y; of integers, cut towards 0."""
    if kind_of(x) == "u":
        return x // y
    if kind_of(x) == "i":
        quotient = x // y
        return quotient + ((quotient < 0) & (quotient * y != x)).astype(x.dtype)
    return x / y


@operator("Mod")
def mod(x: Any, y: Any, *, fmod: int) -> Any:
    """The remainder, with the sign of y, or that of x if ``fmod``."""
    return np.fmod(x, y) if fmod else np.remainder(x, y)


@operator("Pow")
def pow(x: Any, y: Any) -> Any:
    """xʸ in the dtype of x."""
    if kind_of(x) == kind_of(y) == "i" and not (is_known(y) and (y >= 0).all()):
        return _integer_power(x, y)
    if is_known(y) and y.shape == () and kind_of(y) != "f":
        y = int(y)  # so that x² is a product
    elif is_known(y) and y.shape == () and float(y).is_integer():
        y = int(y)
    if isinstance(y, int) and y < 0 and kind_of(x) != "f":
        y = np.asarray(float(y))
    return ops.power(x, y).astype(x.dtype)  # np.power takes a root for ½: -0, NaN


def _integer_power(x: Any, y: Any) -> Any:
    """xʸ of integers, cut towards 0; of 0 and a negative y the least integer, as ONNX
    Runtime has it."""
    of_others = np.where(x == 0, np.iinfo(x.dtype).min, 0)
    by_sign = np.where(x == -1, 1 - 2 * (y & 1), np.where(x == 1, 1, of_others))
    return np.where(y < 0, by_sign, np.power(x, np.maximum(y, 0))).astype(x.dtype)


@operator("BitShift")
def bit_shift(x: Any, y: Any, *, direction: str) -> Any:
    """x shifted by y bits, to the left or to the right."""
    return np.left_shift(x, y) if direction == "LEFT" else np.right_shift(x, y)


@operator("IsInf")
def is_inf(x: Any, *, detect_negative: int, detect_positive: int) -> Any:
    """Whether x is infinite, with a sign that counts."""
    if detect_negative and detect_positive:
        return np.isinf(x)
    signs = x > 0 if detect_positive else x < 0
    return np.isinf(x) & (signs if detect_negative or detect_positive else False)


@operator("Dropout", until=11)
def dropout(x: Any, *, ratio: float = 0.5, call: Any) -> Any:
    """x, as at inference."""
    return (x, np.ones(x.shape, bool)) if call.outputs > 1 else x


@operator("Dropout", since=12)
def dropout_in_training(
    x: Any,
    ratio: Any = None,
    training: Any = None,
    *,
    seed: int | None = None,
    call: Any,
) -> Any:
    """x, as at inference; in training elements are dropped at random."""
    share = 0.5 if ratio is None else ratio
    whole = training is None or not bool(number(training))
    if whole or (is_known(share) and float(share) == 0):
        return (x, np.ones(x.shape, bool)) if call.outputs > 1 else x
    if call.is_traced:
        raise EqsatError("elements are dropped anew in each call")
    kept = np.random.RandomState(seed).uniform(size=x.shape) >= float(share)
    return (x * kept / (1 - float(share))).astype(x.dtype), kept


# -- activations by name ---------------------------------------------------------------

Function = Callable[[Any], Any]


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_GIVEN = {
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01, 0.0),
    "ThresholdedRelu": (1.0, 0.0),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, 0.0),
}
"""What activations have where alpha and beta are not given."""
_PLAIN = "Relu Tanh Sigmoid Softsign Softplus".split()
_ACTIVATIONS = {name.lower(): name for name in (*_GIVEN, *_PLAIN)}
"""Case does not count, as in ONNX Runtime."""


def _activation(name: str, alpha: float | None, beta: float | None) -> Function:
    """A function by its name in ONNX."""
    first, second = _GIVEN.get(name, (0.0, 0.0))
    a = first if alpha is None else alpha
    b = second if beta is None else beta
    found: dict[str, Function] = {
        "Relu": lambda x: np.maximum(x, 0),
        "Tanh": np.tanh,
        "Sigmoid": _sigmoid,
        "Affine": lambda x: a * x + b,
        "LeakyRelu": lambda x: np.where(x < 0, a * x, x),
        "ThresholdedRelu": lambda x: np.where(x > a, x, 0),
        "ScaledTanh": lambda x: a * np.tanh(b * x),
        "HardSigmoid": lambda x: np.minimum(np.maximum(a * x + b, 0), 1),
        "Elu": lambda x: np.where(x < 0, a * (np.exp(x) - 1), x),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "Softplus": lambda x: np.logaddexp(x, 0),
    }
    return found[name]


def activations_of(
    names: Any, alphas: Any, betas: Any, default: Sequence[str], directions: int
) -> list[list[Function]]:
    """Functions of recurrent networks by their names, for each direction."""
    each = len(default)
    names = names or [*default] * directions
    if len(names) < each * directions or len(names) % each:
        raise ValueError(f"activations {names}, expected {each * directions}")
    unknown = [n for n in names if n.lower() not in _ACTIVATIONS]
    if unknown:
        allowed = ", ".join(map(repr, _ACTIVATIONS.values()))
        raise ValueError(
            f"attribute 'activations' has {unknown[0]!r}, and allowed are {allowed}"
        )
    both = {"Affine", "ScaledTanh", "HardSigmoid"}
    alphas, betas = list(alphas or ()), list(betas or ())
    made = []
    for name in (_ACTIVATIONS[n.lower()] for n in names):
        a = alphas.pop(0) if name in _GIVEN and alphas else None
        b = betas.pop(0) if name in both and betas else None
        made.append(_activation(name, a, b))
    return [made[i * each : (i + 1) * each] for i in range(directions)]
