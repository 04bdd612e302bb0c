"""Convolution is linear in its kernel: scales, shifts and batch norm fold into weights
and a bias."""

from eqsat import rule
from eqsat.ops import ACTIVATIONS, batch_norm, conv2d, conv2d_act, reshape_op, sqrt
from eqsat.terms import Ints

PHASE = "algebra"
IMAGES, KERNELS, CHANNELS = "b i h v", "o j p q", "o 1 1"


def column(s, w):
    """Per-channel numbers s (o 1 1) as they meet the kernels w (o j p q)."""
    return reshape_op(s, shape=(w.shape[0], 1, 1, 1))


@rule(f"{IMAGES}, {KERNELS}, {CHANNELS}")
def scale_into_kernel(x, w, s, r: Ints, p: Ints, d: Ints, g: int):
    """conv(x, w) s = conv(x, w s)."""
    return (
        conv2d(x, w, r, p, d, g) * s,
        conv2d(x, w * column(s, w), r, p, d, g),
    )


@rule(f"{IMAGES}, {KERNELS}, {CHANNELS}")
def divisor_into_kernel(x, w, s, r: Ints, p: Ints, d: Ints, g: int):
    """conv(x, w) / s = conv(x, w / s)."""
    return (
        conv2d(x, w, r, p, d, g) / s,
        conv2d(x, w / column(s, w), r, p, d, g),
    )


@rule(f"{IMAGES}, {KERNELS}, {CHANNELS}, {CHANNELS}")
def scale_of_sum_into_kernel(x, w, t, s, r: Ints, p: Ints, d: Ints, g: int):
    """(conv(x, w) + t) s = conv(x, w s) + t s."""
    return (
        (conv2d(x, w, r, p, d, g) + t) * s,
        conv2d(x, w * column(s, w), r, p, d, g) + t * s,
    )


@rule(f"{IMAGES}, {KERNELS}, {CHANNELS}, {CHANNELS}")
def scale_of_difference_into_kernel(x, w, t, s, r: Ints, p: Ints, d: Ints, g: int):
    """(conv(x, w) - t) s = conv(x, w s) - t s."""
    return (
        (conv2d(x, w, r, p, d, g) - t) * s,
        conv2d(x, w * column(s, w), r, p, d, g) - t * s,
    )


@rule(f"{IMAGES}, {KERNELS}, {CHANNELS}, {CHANNELS}")
def divisor_of_sum_into_kernel(x, w, t, s, r: Ints, p: Ints, d: Ints, g: int):
    """(conv(x, w) + t) / s = conv(x, w / s) + t / s."""
    return (
        (conv2d(x, w, r, p, d, g) + t) / s,
        conv2d(x, w / column(s, w), r, p, d, g) + t / s,
    )


@rule(f"{IMAGES}, {KERNELS}, {CHANNELS}, {CHANNELS}")
def divisor_of_difference_into_kernel(x, w, t, s, r: Ints, p: Ints, d: Ints, g: int):
    """(conv(x, w) - t) / s = conv(x, w / s) - t / s."""
    return (
        (conv2d(x, w, r, p, d, g) - t) / s,
        conv2d(x, w / column(s, w), r, p, d, g) - t / s,
    )


@rule(f"{IMAGES}, {KERNELS}, {CHANNELS}, {CHANNELS}")
def shifts_of_conv_merge(x, w, t, c, r: Ints, p: Ints, d: Ints, g: int):
    """(conv(x, w) - t) + c = conv(x, w) + (c - t)."""
    y = conv2d(x, w, r, p, d, g)
    return (y - t) + c, y + (c - t)


@rule(f"{IMAGES}, {KERNELS}, {CHANNELS}, {CHANNELS}")
def biases_of_conv_merge(x, w, t, c, r: Ints, p: Ints, d: Ints, g: int):
    """(conv(x, w) + t) + c = conv(x, w) + (t + c)."""
    y = conv2d(x, w, r, p, d, g)
    return (y + t) + c, y + (t + c)


@rule("b c h v, c, c, c, c, ")
def batch_norm_is_affine(x, mean, var, w, b, eps):
    """batch_norm(x) = x s + (b - mean s), where s = w / √(var + eps)."""
    s = w / sqrt(var + eps)
    shape = (x.shape[1], 1, 1)
    return (
        batch_norm(x, mean, var, w, b, eps),
        x * reshape_op(s, shape=shape) + reshape_op(b - mean * s, shape=shape),
    )


def _conv_act(act):
    def sides(x, w, t, r: Ints, p: Ints, d: Ints, g: int):
        """act(conv(x, w) + t) is one kernel."""
        return (
            ACTIVATIONS[act](conv2d(x, w, r, p, d, g) + t),
            conv2d_act(x, w, t, stride=r, padding=p, dilation=d, groups=g, act=act),
        )

    name = f"conv2d_act[{act or 'plain'}]"
    return rule(f"{IMAGES}, {KERNELS}, {CHANNELS}", phase="fuse", name=name)(sides)


activations = [_conv_act(act) for act in ACTIVATIONS]
