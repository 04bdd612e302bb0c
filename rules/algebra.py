"""Linear algebra: the order of products, and sums that share a factor."""

from eqsat import rule
from eqsat.ops import exp, log, log_softmax, softmax
from eqsat.rulelang import not_scalar

PHASE = "algebra"


@rule("..., ..., ...", where=lambda x, y, z: (not_scalar(y), not_scalar(z)))
def multiply_associates(x, y, z):
    """(x y) z = x (y z), but for bare numbers: x 1 1 1 … has no end."""
    return (x * y) * z, x * (y * z)


@rule("... m k, k n, n p")
def matmul_associates_right(x, a, b):
    """(x a) b = x (a b)."""
    return (x @ a) @ b, x @ (a @ b)


@rule("... m k, k n, n p")
def matmul_associates_left(x, a, b):
    """x (a b) = (x a) b: the low-rank order."""
    return x @ (a @ b), (x @ a) @ b


@rule("... m n, ... n 1, ... 1 k")
def matmul_of_outer(a, x, y):
    """a (x y) = (a x) y for a column x and a row y: no product of matrices."""
    return a @ (x * y), (a @ x) * y


@rule("... n 1, ... 1 k, ... k m")
def outer_matmul(x, y, a):
    """(x y) a = x (y a) for a column x and a row y."""
    return (x * y) @ a, x * (y @ a)


@rule("... m k, k n, k n")
def matmul_distributes(x, a, b):
    """x (a + b) = x a + x b."""
    return x @ (a + b), x @ a + x @ b


@rule("... m k, k n, k n")
def matmul_factors(x, a, b):
    """x a + x b = x (a + b)."""
    return x @ a + x @ b, x @ (a + b)


@rule("... m k, ... m k, k n")
def matmul_factors_right(x, y, a):
    """x a + y a = (x + y) a."""
    return x @ a + y @ a, (x + y) @ a


@rule("... m k, k n, ")
def scale_into_weight(x, w, s):
    """(x w) s = x (w s): free when w is known."""
    return (x @ w) * s, x @ (w * s)


@rule("... m k, k n, n, ... m n")
def bias_before_residual(x, w, b, r):
    """(r + x w) + b = (x w + b) + r."""
    return (r + x @ w) + b, (x @ w + b) + r


@rule("... m k, k n, n, ... m j, j n")
def bias_after_products(x, w, b, y, v):
    """(x w + b) + y v = (x w + y v) + b."""
    return (x @ w + b) + y @ v, (x @ w + y @ v) + b


@rule("... n")
def log_of_softmax(x):
    """log softmax(x) = log_softmax(x)."""
    return log(softmax(x)), log_softmax(x)


@rule("... n")
def exp_of_log_softmax(x):
    """exp log_softmax(x) = softmax(x)."""
    return exp(log_softmax(x)), softmax(x)
