"""Matrices that are factored: inverses that are not needed, and factors that are known.

n rows; k, p columns. What is singular has no inverse: where a left side raises an
error, a right side may have a value.
"""

from eqsat import rule
from eqsat.ops import (
    absolute,
    cholesky,
    log,
    lu,
    lu_det,
    lu_inv,
    lu_logabsdet,
    lu_sign,
    lu_solve,
)
from eqsat.ops import solve_triangular_op as solve_triangular
from eqsat.rulelang import domain, positive_definite, regular

PHASE = "algebra"


def solve(a, b):
    """a⁻¹ b."""
    return lu_solve(lu(a), b, transposed=False)


def solve_transposed(a, b):
    """a⁻ᵀ b."""
    return lu_solve(lu(a), b, transposed=True)


def inv(a):
    """a⁻¹."""
    return lu_inv(lu(a))


# -- inverses --------------------------------------------------------------------------


@rule("... n n, ... n k", where=lambda a, b: domain(regular(a)))
def inverse_times(a, b):
    """a⁻¹ b solves a x = b."""
    return inv(a) @ b, solve(a, b)


@rule("... n n, ... n k", where=lambda a, b: domain(regular(a)))
def transposed_inverse_times(a, b):
    """a⁻ᵀ b solves aᵀ x = b."""
    return inv(a).mT @ b, solve_transposed(a, b)


@rule("... n n, ... k n", where=lambda a, b: domain(regular(a)))
def times_inverse(a, b):
    """b a⁻¹ = (a⁻ᵀ bᵀ)ᵀ."""
    return b @ inv(a), solve_transposed(a, b.mT).mT


@rule("... n n, ... k n", where=lambda a, b: domain(regular(a)))
def times_transposed_inverse(a, b):
    """b a⁻ᵀ = (a⁻¹ bᵀ)ᵀ."""
    return b @ inv(a).mT, solve(a, b.mT).mT


@rule("... n n", where=lambda a: domain(regular(a)))
def inverse_of_inverse(a):
    """(a⁻¹)⁻¹ = a."""
    return inv(inv(a)), a


@rule("... n n, ... n k", where=lambda a, b: domain(regular(a)))
def solution_by_inverse(a, b):
    """a⁻¹ x = b for x = a b."""
    return solve(inv(a), b), a @ b


@rule("... n n", where=lambda a: domain(regular(a)))
def inverse_of_transpose(a):
    """(aᵀ)⁻¹ = (a⁻¹)ᵀ."""
    return inv(a.mT), inv(a).mT


@rule("... n n, ... n k", where=lambda a, b: domain(regular(a)))
def solution_by_transpose(a, b):
    """aᵀ x = b by the factors of a."""
    return solve(a.mT, b), solve_transposed(a, b)


@rule("... n n, ... n k", where=lambda a, b: domain(regular(a)))
def transposed_solution_by_transpose(a, b):
    """(aᵀ)ᵀ x = b by the factors of a."""
    return solve_transposed(a.mT, b), solve(a, b)


@rule("... n n, ... n k, k p", where=lambda a, b, c: domain(regular(a)))
def solution_times(a, b, c):
    """(a⁻¹ b) c = a⁻¹ (b c): fewer columns to solve for."""
    return solve(a, b) @ c, solve(a, b @ c)


# -- determinants ----------------------------------------------------------------------


@rule("... n n", where=lambda a: domain(regular(a)))
def log_of_determinant(a):
    """ln det a = ln |det a| + ln sign, without the determinant, which overflows."""
    f = lu(a)
    return log(lu_det(f)), lu_logabsdet(f) + log(lu_sign(f))


@rule("... n n", where=lambda a: domain(regular(a)))
def log_of_absolute_determinant(a):
    """ln |det a| without the determinant."""
    return log(absolute(lu_det(lu(a)))), lu_logabsdet(lu(a))


@rule("... n n", where=lambda a: domain(regular(a)))
def determinant_of_transpose(a):
    """det aᵀ = det a."""
    return lu_det(lu(a.mT)), lu_det(lu(a))


@rule("... n n", where=lambda a: domain(regular(a)))
def log_determinant_of_transpose(a):
    """ln |det aᵀ| = ln |det a|."""
    return lu_logabsdet(lu(a.mT)), lu_logabsdet(lu(a))


@rule("... n n", where=lambda a: domain(regular(a)))
def determinant_of_inverse(a):
    """det a⁻¹ = 1 / det a."""
    return lu_det(lu(inv(a))), 1.0 / lu_det(lu(a))


@rule("... n n", where=lambda a: domain(regular(a)))
def log_determinant_of_inverse(a):
    """ln |det a⁻¹| = -ln |det a|."""
    return lu_logabsdet(lu(inv(a))), -lu_logabsdet(lu(a))


# -- known factors ---------------------------------------------------------------------


@rule("... n n, ... n k", where=lambda a, b: domain(positive_definite(a)))
def solution_by_factor(a, b):
    """l x = b for the lower l = cholesky(a): no factorisation."""
    l = cholesky(a)  # noqa: E741
    return solve(l, b), solve_triangular(l, b, lower=True)


@rule("... n n, ... n k", where=lambda a, b: domain(positive_definite(a)))
def solution_by_transposed_factor(a, b):
    """lᵀ x = b for the lower l = cholesky(a)."""
    l = cholesky(a)  # noqa: E741
    right = solve_triangular(l, b, lower=True, transposed=True)
    return solve_transposed(l, b), right


@rule("... n n, ... n k", where=lambda a, b: domain(positive_definite(a)))
def solution_by_product_of_factors(a, b):
    """l lᵀ x = b for the lower l = cholesky(a)."""
    l = cholesky(a)  # noqa: E741
    y = solve_triangular(l, b, lower=True)
    right = solve_triangular(l, y, lower=True, transposed=True)
    return solve(l @ l.mT, b), right
