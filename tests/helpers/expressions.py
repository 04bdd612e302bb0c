"""Expressions as NumPy users write them: traced, evaluated, and compared with NumPy.

They speak of x float32 (3, 4), y float32 (2, 3, 4), v float32 (4), m float32 (4, 5),
i int64 (3) below 3, b bool (3, 4) and h float16 (3, 4), all traced, and of C float32
(3, 4), which is a constant.
"""

from __future__ import annotations

import numpy as np


def arrays() -> dict[str, np.ndarray]:
    """The arrays that the expressions speak of, by name."""
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 4), "y": (2, 3, 4), "v": (4,), "m": (4, 5)}
    found = {n: rng.standard_normal(s, np.float32) for n, s in shapes.items()}
    found["i"] = np.array([2, 0, 1])
    found["b"] = rng.random((3, 4)) > 0.5
    found["h"] = rng.standard_normal((3, 4)).astype(np.float16)
    root = rng.standard_normal((3, 3), np.float32)
    found["s"] = root @ root.T + 4 * np.eye(3, dtype=np.float32)
    return found


OPERATORS = """
x+1; 1+x; x-2.5; 2.5-x; x*2; x/3; 3/x; x//2; x%2; x**2; x**3; x**0.5; x**-1; 2**x; -x;
+x; abs(x); x<0; x<=0; x>0.5; x>=0; x==0; x!=0; 0<x; (x>0)&(x<1); (x>0)|(x<-1);
(x>0)^(x<1); ~(x>0); x*np.float64(2); x+[1, 2, 3, 4]; [1, 2, 3, 4]*x; x+True;
(x>0).all(1); x[None].squeeze(); x[None].squeeze(0);
x+np.zeros(4, np.result_type(x, np.float64)); sum([x, x]); sum(x); len(x);
[r.sum() for r in x]; (lambda a, b, c: a+b+c)(*x); ~i;
x - x.max(axis=-1, keepdims=True)
"""
"""Python's operators, and what else Python does to an array."""

METHODS = """
x.sum(); x.sum(0); x.sum(-1, keepdims=True); x.sum(axis=(0, 1));
x.sum(axis=1, dtype=np.float64); x.mean(); x.mean(1); x.max(); x.max(axis=0);
x.min(1); x.prod(); x.var(); x.var(1, ddof=1); x.std(0); x.any(); x.argmax();
x.argmax(1); x.argmin(0); x.argmax(0, keepdims=True); x.reshape(4, 3);
x.reshape((2, 6)); x.reshape(-1); x.reshape(2, -1); x.transpose(); x.transpose(1, 0);
x.transpose((1, 0)); x.swapaxes(0, 1); x.ravel(); x.flatten(); x.astype(np.float64);
x.astype(int); x.astype("float16"); x.astype(bool); x.clip(-1, 1); x.clip(0);
x.clip(max=0.5); x.clip(min=0); x.copy(); x.take([0, 2], axis=1); x.take([0, 5]);
x.repeat(2); x.repeat(2, axis=1); x.round(); x.T; x.mT; x.real; x.shape; x.size;
x.nbytes; x.max(-1)[..., None]; y.sum((0, 2)); y.transpose(0, 2, 1);
y.transpose(2, 0, 1); y.mT; y.T; y.reshape(2, -1); y.argmax(); y.argmax(1);
x.sum(axis=()); x.conj(); x.conjugate(); x.astype(float, casting="safe")
"""
"""Methods and properties."""

UFUNCS = """
np.add(x, 1); np.add(x, x, dtype=np.float64); np.add.reduce(x);
np.add.reduce(x, axis=1); np.add.reduce(x, axis=None);
np.multiply.reduce(x, axis=1, keepdims=True); np.maximum.reduce(x);
np.minimum.reduce(x, 1); np.logical_and.reduce(x>0);
np.logical_or.reduce(x>0, axis=1); np.square(x); np.reciprocal(x);
np.heaviside(x, 0.5); np.float_power(x, 2); np.degrees(x); np.radians(x);
np.deg2rad(x); np.rad2deg(x); np.fabs(x); np.ldexp(x, 3); np.positive(x); np.signbit(x);
np.conjugate(x); np.logaddexp(x, 0); np.logaddexp2(x, x); np.exp(x); np.log1p(abs(x));
np.maximum(x, 0); np.fmax(x, v); np.hypot(x, v); np.arctan2(x, v); np.copysign(x, v);
np.sign(x); np.isnan(np.log(x)); np.isfinite(x); np.floor(x); np.rint(x); np.trunc(x);
np.ceil(x); np.remainder(x, v); np.fmod(x, v); np.floor_divide(x, v);
np.logical_not(x); np.logical_and(x, v); np.minimum(x, np.float64(1));
np.add(x, np.int64(1)); np.power(x, 2); np.power(i, 2); np.divmod(x, v);
divmod(x, 2); divmod(7, x); np.modf(x*3); np.equal(x, x, dtype=bool);
np.add(x, 1, casting="safe"); np.gcd(i, 4); np.nextafter(x, v)
"""
"""Ufuncs of NumPy."""

FUNCTIONS = """
np.float32(2)*x; np.float64(2)*x; np.float16(2)*x; np.sum(x); np.sum(x, 0);
np.sum(x, axis=1, keepdims=True); np.mean(x, axis=-1); np.prod(x); np.max(x, 1);
np.amax(x, 1); np.min(x); np.amin(x, 0); np.real(x); np.isrealobj(x);
np.var(x, axis=0); np.std(x); np.any(x>1); np.all(x>1, axis=0); np.argmax(x, axis=1);
np.argmin(x); np.reshape(x, (4, 3)); np.reshape(x, -1); np.transpose(x);
np.swapaxes(x, 0, 1); np.moveaxis(x, 0, -1); np.matrix_transpose(x);
np.expand_dims(x, 1); np.expand_dims(x, (0, 2)); np.squeeze(x[None]); np.ravel(x);
np.broadcast_to(v, (3, 4)); np.flip(x); np.flip(x, 0); np.flip(x, (0, 1));
np.fliplr(x); np.flipud(x); np.roll(x, 1); np.roll(x, 1, axis=1);
np.roll(x, (1, 2), axis=(0, 1)); np.concatenate([x, x]);
np.concatenate([x, x], axis=1); np.concatenate([x, np.ones((3, 2))], axis=1);
np.concatenate([x, x], axis=None); np.concat([x, x]); np.stack([x, x]);
np.stack([x, x], axis=-1); np.split(x, 2, axis=1); np.split(x, [1], axis=0);
np.array_split(x, 3, axis=1); np.split(x, np.int64(2), 1);
np.array_split(x, np.int64(3), np.int64(1));
np.vsplit(x, 3); np.hsplit(x, 2); np.vstack([x, v]);
np.hstack([x, x]); np.hstack([v, v]); np.dstack([x, x]); np.column_stack([v, v]);
np.repeat(x, 3); np.repeat(x, 3, axis=0); np.tile(x, 2); np.tile(x, (2, 1));
np.tile(v, (2, 3)); np.pad(x, 1); np.pad(x, ((0, 0), (1, 2)), constant_values=3);
np.take(x, [0, 1], axis=0); np.take(x, i, axis=0); np.take(x, 2, axis=0);
np.clip(x, -1, 1); np.clip(x, a_min=None, a_max=1); np.clip(x, min=-1, max=0.1);
np.where(x>0, x, 0); np.where(x>0, 1.0, 2.0); np.where(b, -1, 300);
np.where(b, b, -1); np.where(b, x, -x); np.where(b, 1, x);
np.tril(x); np.triu(x, 1); np.full_like(x, 3); np.full_like(x, 3, dtype=int);
np.zeros_like(x); np.ones_like(x, dtype=bool); np.ones_like(x, shape=(2,));
np.linalg.matrix_transpose(x); np.average(x); np.average(x, axis=1);
np.average(x, axis=1, weights=v); np.average(x, axis=1, weights=np.arange(4));
np.average(x, weights=abs(x)); np.ptp(x); np.ptp(x, axis=1); np.astype(x, np.float64);
np.permute_dims(x, (1, 0)); np.count_nonzero(x>0); np.count_nonzero(x, axis=1);
np.nan_to_num(x); np.nan_to_num(np.log(x)); np.nan_to_num(x/0); np.diff(x);
np.diff(x, axis=0); np.diff(x, 2); np.diff(x>0); np.shape(x); np.ndim(x); np.size(x);
np.size(x, 0); np.empty_like(x)*0; np.broadcast_arrays(x, v); np.isclose(x, x+1e-9);
np.isclose(x, 1, equal_nan=True); np.rollaxis(x, 1); np.copy(x);
np.atleast_1d(x.sum()); np.atleast_2d(v);
np.atleast_3d(x); np.round(x); np.around(x); np.fix(x);
np.select([x>0, x<-1], [x, -x], 5.0); np.choose(i, [v[:3], 2*v[:3], i]);
np.choose(b, (x, 1.5)); np.choose(i-1, [i, -i], mode="wrap"); i.choose([i, 2, i*3]);
np.choose(i-1, [i, -i], mode="clip"); np.vander(v); np.vander(i, 5);
np.vander(v, 2, increasing=True); np.vander(v, N=1);
np.allclose(x, x); np.array_equal(x, x);
np.isposinf(x); np.isneginf(x);
np.take_along_axis(x, np.argmax(x, axis=1)[:, None], axis=1);
np.take_along_axis(x, i[None, :1], axis=1); np.take_along_axis(x, i, axis=None);
np.take_along_axis(x, np.argsort(C, 1), axis=1); np.swapaxes(x, -1, -2);
np.moveaxis(y, (0, 1), (1, 0)); np.rollaxis(y, 2); np.rollaxis(y, 0, 3);
np.dsplit(y, 2); np.tril(y); np.flip(y, 1); np.trace(np.eye(3))+x; np.iscomplexobj(x);
np.pad(x, [(1, 0), (0, 1)]); np.stack([x[0], np.arange(4)]);
np.where(x>0, x, np.zeros(4)); np.expand_dims(x, -1)*v; np.ones(3)[:, None]+x
"""
"""Functions of NumPy."""

PRODUCTS = """
x@m; x@v; v@m; v@v; x.dot(m); np.multiply.outer(v, x); np.add.outer(v, np.arange(3.));
np.einsum("ij,jk->ik", x, m); np.einsum("ij->ji", x); np.einsum("ij,j", x, v);
np.einsum("ij,->ij", x, 2); np.einsum(x, [0, 1], m, [1, 2], [0, 2]);
np.einsum("ij->", x); np.dot(x, m); np.dot(v, v); np.dot(x, 2.0); np.vdot(x, x);
np.inner(x, x); np.outer(v, v); np.tensordot(x, m, axes=1);
np.tensordot(x, m, np.int64(1)); np.tensordot(x, m, (np.int64(1), np.int64(0)));
np.tensordot(x, m, axes=([1], [0])); np.tensordot(x, x);
np.linalg.tensordot(x, m, axes=1); np.matmul(x, m); np.linalg.matmul(x, m);
np.linalg.outer(v, v); np.linalg.vecdot(x, x); np.vecdot(x, x); np.matvec(x, v);
np.vecmat(v, m); np.linalg.norm(x); np.linalg.norm(x, axis=1);
np.linalg.norm(x, axis=1, keepdims=True); np.linalg.norm(v, 1);
np.linalg.norm(v, np.inf); np.linalg.norm(v, 3); np.linalg.norm(x, axis=(0, 1));
np.linalg.vector_norm(x, axis=1); np.linalg.matrix_norm(x); np.matmul(y, m);
np.einsum("bij,jk->bik", y, m); np.einsum("...ij->...ji", y);
np.array([1., 2, 3, 4])@x.T; np.ones((2, 3))@x
"""
"""Products and norms."""

FACTORS = """
np.linalg.solve(s, x); np.linalg.solve(s, [1, 2, 3]); np.linalg.inv(s);
np.linalg.det(s); np.linalg.slogdet(s); np.linalg.cholesky(s);
np.linalg.cholesky(s, upper=True); np.linalg.matrix_power(s, 3);
np.linalg.matrix_power(s, -2); np.linalg.multi_dot([s, x, m]);
np.linalg.tensorsolve(s.reshape(3, 1, 3), x[:, :1]); np.linalg.tensorinv(s, 1);
np.linalg.eigh(s).eigenvalues; abs(np.linalg.eigh(s)[1]); np.linalg.eigvalsh(s);
np.linalg.svd(x, compute_uv=False); abs(np.linalg.svd(x, full_matrices=False).U);
np.linalg.svdvals(x); abs(np.linalg.qr(x).R); np.linalg.pinv(x); np.linalg.cond(s);
np.linalg.matrix_rank(x); np.linalg.lstsq(x.T, v)[0]; np.linalg.inv(np.stack([s, s.T]))
"""
"""Factorisations of matrices."""

INDEXING = """
x[0]; x[-1]; x[0, 1]; x[:, 1]; x[1:]; x[::2]; x[::-1]; x[:, ::-2]; x[..., 0]; x[None];
x[:, None]; x[..., None]; x[...]; x[1:1]; x[5:]; x[[0, 2]]; x[[0, 2], [1, 3]];
x[:, [0, 0, 1]]; x[i]; x[i[0]]; x[i, i]; x[:, i]; x[np.arange(3), i]; x[i, 0];
x[0, i]; x[i[:, None], i]; x[i][:, i]; x[C>0]; x[np.array([True, False, True])];
x[:, np.array([True, False, True, True])]; x[0, None, i]; x[i, None]; x[i, 1:3];
x[1:, i]; y[:, 0, i]; y[0, :, i]; y[i%2, :, i]; y[:, i, i]; y[..., i]; y[i%2, ..., 0];
y[None, :, i]; y[:, 1][..., i]; y[0, ..., i]; y[:, 0, ..., i];
y[np.array([True, False]), :, i[:1]]; y[:, np.ones((3, 4), bool)]; x[np.int64(1)];
x[np.array(1)]; x[()]
"""
"""Indices of every kind."""

DTYPES = """
np.linalg.norm(i); b.sum(); b.mean(); b.astype(int).sum(); b+b; b*x; i+1; i/2; i*x.T;
i**2; i//2; i%2; i<<1; i>>1; i&3; i+1.5; i.mean(); i.astype(np.int8).sum();
i.astype(np.uint8).sum(); np.sqrt(i); np.exp(i.astype(np.int8)); h+1; h*2.5; h@h.T;
h.sum(); h.mean(0); np.exp(h); h+x; h.var(); np.degrees(i.astype(np.int8));
np.linalg.norm(h); np.maximum(h, 0); np.where(h>0, h, 1e-3)
"""
"""Integers, bools and float16."""

SCIPY = """
sp.erf(x); sp.expit(x); sp.ndtr(x); sp.log_expit(x); sp.xlogy(abs(x), abs(v));
sp.logit(sp.expit(x)); sp.exp2(x); sp.expm1(x); sp.log1p(abs(x)); sp.cbrt(x);
sp.entr(abs(x)); sp.exp10(x); sp.erf(h); sp.erfc(x); sp.erfcx(x); sp.log_ndtr(x);
sp.erfinv(x/9); sp.ndtri(sp.ndtr(x)); sp.erfcinv(sp.erfc(x/2)); sp.gammaln(x);
sp.gamma(x); sp.psi(x); sp.beta(abs(x), abs(v)); sp.betaln(abs(x), abs(v)); sp.i0(x);
sp.i0e(x); sp.i1(x); sp.i1e(x); sp.j0(x); sp.j1(x); sp.cosm1(x); sp.erfc(h);
sp.xlog1py(abs(x), abs(v)); sp.rel_entr(abs(x), abs(v)); sp.kl_div(abs(x), abs(v));
sp.huber(abs(v), x); sp.pseudo_huber(abs(v), x); sp.softplus(x); sp.gammaln(i)
"""
"""Ufuncs of SciPy, recognised by name."""

PARTS = """
np.sum(x, where=b); np.sum(x, axis=0, where=x>0, initial=2); x.sum(initial=3);
np.max(x, where=b, initial=-5); np.min(x, 1, initial=0); x.max(0, initial=0);
np.prod(x, axis=0, where=b); np.prod(i, initial=2); np.any(x>0, where=b);
np.all(x>0, axis=0, where=b); np.mean(x, axis=1, where=x<9); np.mean(i, where=i>0);
np.var(x, where=x<9); np.std(x, 1, where=x<9, ddof=1); np.std(x, correction=1);
np.var(x, -1, mean=x.mean(-1, keepdims=True)); np.add.reduce(x, initial=2);
np.maximum.reduce(x, 1, where=b, initial=0);
np.max(x[:0], 0, initial=2); np.min(x[:0], initial=-1, where=x[:0]>0);
np.nansum(np.log(x), 0);
np.nanmean(np.log(x)); np.nanmean(np.log(x[:, :2]), 1); np.nanmax(np.log(x), 0);
np.nanmin(np.log(x), keepdims=True); np.nanstd(np.log(x)); np.nanprod(np.log(x), 1);
np.nanvar(np.log(x), 0, ddof=1); np.nanmax(i); np.nanvar(i); np.nanstd(np.log(x), 1);
np.average(x, 0, returned=True); np.average(x, weights=C, returned=True)
"""
"""Reductions of a part of the elements."""

RUNNING = """
np.cumsum(x); np.cumsum(x, 0); x.cumsum(1); np.cumsum(i); np.cumsum(h, -1);
np.cumsum(b, 0); np.cumsum(x[0, 0], 0); np.argsort(x[0, 0]); np.cumprod(x, 1);
x.cumprod(); np.cumsum(i, dtype=np.float32);
np.cumulative_sum(x, axis=0); np.cumulative_prod(x, axis=1, include_initial=True);
np.cumulative_sum(i, include_initial=True); np.nancumsum(np.log(x), 0);
np.add.accumulate(x, axis=1); np.maximum.accumulate(x); np.sort(x); np.sort(x, 0);
np.sort(x, axis=None); np.argsort(x, 1); x.argsort(0); np.argsort(i, stable=True);
np.argsort(b, None, kind="stable"); np.median(x); np.median(x, 0); np.median(x, 1);
np.median(np.log(x), 1); np.median(y, (0, 2), keepdims=True); np.median(i);
np.median(x[:0], 0); np.median(y[:, :0], 1, keepdims=True);
np.partition(x, 1, 1)[:, 1]; np.partition(x, [0, -1], None)[-1];
np.partition(i, 0, 0)[0];
np.take_along_axis(x, np.argpartition(x, 1, 1), 1)[:, 1]
"""
"""Running results and order."""

QUANTILES = """
np.quantile(x, 0.3); np.quantile(x, 0.25, 0); np.quantile(x, [0.1, 0.9], 1);
np.quantile(x, [[0.1], [1]], 0, keepdims=True); np.quantile(i, 0.7); np.quantile(x, 1);
np.quantile(y, 0.4, (0, 2), keepdims=True); np.quantile(np.log(x), 0.5, 1);
np.quantile(x, 0.4, 1, method="lower"); np.quantile(x, [0.4], method="higher");
np.quantile(x, 0.5, 1, method="nearest"); np.quantile(x, 0.4, 1, method="midpoint");
np.percentile(x, 30); np.percentile(x, [5, 95], axis=0); np.percentile(h, 40, 1);
np.percentile(x, np.array([25, 75]), 1, keepdims=True); np.percentile(i, 50);
np.nanquantile(np.log(x), 0.3); np.nanquantile(np.log(x), [0.2, 0.6], 1);
np.nanpercentile(np.log(x), 40, 0, keepdims=True); np.nanpercentile(i, 30);
np.nanmedian(np.log(x)); np.nanmedian(np.log(x), 0); np.nanmedian(np.log(x), 1);
np.nanmedian(x, (0, 1), keepdims=True); np.nanmedian(i); np.nanargmax(np.log(x));
np.nanargmin(np.log(x)); np.nanargmax(x, 0); np.nanargmin(i); np.nanargmax(x, 1)
"""
"""Elements in the middle, and at other shares of the way."""

SEARCHES = """
np.searchsorted(np.sort(v), x); np.searchsorted(np.sort(v), x, "right");
np.searchsorted(np.sort(i), i, side="right"); np.searchsorted(np.sort(i), x);
np.searchsorted(np.sort(v), 0.5); np.searchsorted(v, v, sorter=np.argsort(v));
np.searchsorted([0, 0.5, 0.5, 1], x, "right"); np.searchsorted(v[:0], x);
np.searchsorted(np.sort(np.log(v)), np.log(x)); np.searchsorted(np.sort(v), np.log(x));
np.digitize(x, np.sort(v)); np.digitize(x, np.sort(v)[::-1]); np.digitize(x, [0.0]);
np.digitize(x, [1, 0, -1], right=True); np.digitize(i, [0, 1, 2], right=True);
np.interp(x, np.sort(v), v); np.interp(x, [-1, 0, 2], [3, 4, 7], left=0, right=9);
np.interp(0.25, [0, 1], v[:2]); np.interp(i, [0, 2], [1, 5]); np.interp(v, v[:1], [2]);
np.interp(np.log(x), [-1, 0, 1], [1, 5, 2])
"""
"""Places in sorted arrays, and lines between them."""

COUNTS = """
np.bincount(i, minlength=3); np.bincount(i, v[:3], 4); np.bincount([0, 2, 2, 5], v);
np.bincount(b[0], minlength=2); np.bincount(i, minlength=np.int64(9));
np.histogram(x, 5); np.histogram(x, 4, (-1, 1)); np.histogram(x, [-1, 0, 0.7, 2]);
np.histogram(x, np.linspace(-2, 2, 9), density=True); np.histogram(i, [0, 1, 5]);
np.histogram(x, np.sort(v), weights=C); np.histogram(C, "auto")[1]+x[0, 0];
np.histogram(x, 3, (-1, 1), True, abs(x)); np.histogram(np.log(x), 3, (-1, 1));
np.histogram_bin_edges(x, 3, (-2, 1))+v; np.histogram_bin_edges(x, [0, 1, 3, 4])*v;
np.histogram2d(v, v[::-1], 2); np.histogram2d(v, v, [2, [-1, 0, 1]], weights=v);
np.histogramdd(x[:, :3], 2, [(-1, 1), (-2, 2), (0, 1)])[0];
np.linspace(v[0], v[1], 5); np.linspace(0, v, 4); np.linspace(x, v, 3, axis=-1);
np.linspace(v, 1, 3, endpoint=False); np.linspace(v[0], 9, 4, retstep=True);
np.linspace(i, 7, 4, dtype=int); np.logspace(v, 1, 3); np.logspace(v[0], 1, 3, base=2)
"""
"""Counts, and numbers that are equally far apart."""

WINDOWS = """
np.lib.stride_tricks.sliding_window_view(v, 2);
np.lib.stride_tricks.sliding_window_view(x, (2, 3));
np.lib.stride_tricks.sliding_window_view(x, 2, axis=1);
np.lib.stride_tricks.sliding_window_view(y, (2, 1), axis=(-1, 0));
np.lib.stride_tricks.sliding_window_view(np.tile(v, 20), 70);
np.convolve(v, [1, 2, 3]); np.convolve(v, [1, 2, 3], "same"); np.convolve(v, i);
np.convolve(v, [1, 2], "valid"); np.convolve([1, 2], v, "same"); np.convolve(i, i);
np.convolve(v[:2], [1, 2, 3, 4], "same"); np.convolve(np.tile(v, 30), np.tile(v, 20));
np.convolve(np.tile(v, 20), np.tile(v, 20), "same"); np.convolve(v, 2);
np.correlate(v, [1, 2, 3]); np.correlate(v, [1, 2], "same"); np.correlate(v, v, "full");
np.correlate(v[:2], [1, 2, 3], "same"); np.correlate(v[:2], [1, 2, 3], "full");
np.correlate([1, 2], v); np.correlate(v, i, "same"); np.gradient(v);
np.gradient(x, 2.0); np.gradient(x, axis=0);
np.gradient(x, 0.5, 2, axis=(1, 0)); np.gradient(i);
np.gradient(x, edge_order=2); np.gradient(v, [0, 1, 3, 7]); np.gradient(h, axis=1);
np.gradient(x, np.array([0.5, 1, 2, 4]), axis=1);
np.gradient(x, (7-i).astype(np.uint16), axis=0); np.cov(x); np.cov(x, rowvar=False);
np.cov(v, v[::-1], ddof=0); np.cov(v); np.cov(x, bias=True, dtype=np.float32);
np.cov(x, x); np.corrcoef(x); np.corrcoef(x, rowvar=False); np.corrcoef(v, v[::-1]);
np.corrcoef(v); np.ediff1d(x); np.ediff1d(v, to_begin=[1, 2], to_end=0.5)
"""
"""Neighbours, slopes, and covariances."""

MATRICES = """
np.diagonal(x); np.diagonal(x, 1); np.diagonal(x, -2); np.diagonal(x, 7);
np.diagonal(y, 0, -1, -2); x.diagonal(1); np.linalg.diagonal(y, offset=1);
np.trace(x); x.trace(1); np.trace(i[:, None], dtype=np.float32); np.linalg.trace(y);
np.diag(x, -1); np.diag(v); np.diag(v, 2); np.diag(v, -1); np.diagflat(x, 1);
np.diag(v[:0]); np.rot90(x); np.rot90(x, -1); np.rot90(x, 2); np.rot90(x, 4);
np.rot90(y, 1, (1, 2)); np.append(x, x); np.append(x, C, 0); np.append(x, [1, 2]);
np.block([[x, C], [C, x]]); np.block([x, x]); np.block([1, v]); np.block(x);
np.block([[x, i[:, None]], [np.ones((1, 5))]]); np.meshgrid(v, i); np.unstack(x);
np.meshgrid(v, i, indexing="ij"); np.meshgrid(v, i, v, sparse=True); np.meshgrid(v);
np.unstack(x, axis=1); np.delete(x, 1, 0); np.delete(x, [0, -1], 1); np.delete(x, 3);
np.kron(x, C); np.kron(v, x); np.kron(2, x); np.cross(x[:, :3], x[0, 1:]);
np.linalg.cross(x[:, :3], x[:, 1:]); np.cross(x, C, axis=0); np.isin(i, [0, 1]);
np.isin(i, [2], invert=True); np.polyval([1, 2, 3], x); np.polyval(v, x); np.sinc(x);
np.sinc(i); np.trapezoid(x); np.trapezoid(x, dx=0.5, axis=0); np.trapezoid(x, v);
np.trapezoid(x, x); np.trapezoid(x, i, axis=0); np.imag(x); x.imag; np.isreal(x);
np.iscomplex(x); np.array_equal(x, x, equal_nan=True)
"""
"""Diagonals, blocks, grids and formulas."""

TRANSFORMS = """
np.fft.fft(x); np.fft.ifft(x); np.fft.rfft(x); np.fft.irfft(x); np.fft.hfft(x);
np.fft.ihfft(x); np.fft.fft2(x); np.fft.ifft2(x); np.fft.rfft2(x); np.fft.irfft2(x);
np.fft.fftn(x); np.fft.ifftn(x); np.fft.rfftn(x); np.fft.irfftn(x); np.fft.fftshift(x);
np.fft.ifftshift(x, 1); np.fft.fft(i); np.angle(x); np.angle(x, deg=True);
np.linalg.eig(s*(1+1j)); np.linalg.eigvals(s+1j)
"""
"""Spectra."""

EDGES = """
np.pad(x, 1, "edge"); np.pad(x, 1, "reflect"); np.pad(x, (1, 2), "wrap");
np.pad(x, 1, "symmetric"); np.pad(x, 9, "reflect"); np.pad(x, {-1: (1, 2)}, "edge");
np.pad(x, 1, constant_values=((1, 2), (3, 4))); np.pad(x, 1, constant_values=(1, 2));
np.take(x, [0, 9], 1, mode="wrap"); np.take(x, [-9, 70], mode="clip");
np.take(np.tile(v, 80), (i*50).astype(np.int8), mode="wrap");
np.take(v[:0], (i[:0]).astype(np.uint8), mode="clip"); np.take(v[0], i, 0, mode="clip");
np.take(v[0], [0, -1], -1); np.max(y[:, :0, :0], 1, initial=0);
np.nanmedian(x[:, :0], 1); np.nanmedian(i[:0]); np.partition(x[:, :0], 0);
np.take(x, i*9, 0, mode="clip"); np.take(x, i-9, 0, mode="wrap"); np.round(x, 2);
np.repeat(x, [1, 2, 0], 0); np.repeat(x, [2]); np.repeat(v, np.array([1, 2, 0, 3]));
x.repeat(np.int64(2), 1); x.round(1); np.around(x, -1); np.round(i, 2);
np.reshape(x, (4, -1), order="F"); x.reshape(2, 6, order="F"); x.ravel("F");
x.flatten(order="F"); np.ravel(y, order="F"); np.diff(x, prepend=0); np.round(i*7, -1);
np.diff(x, append=C[:, :1]); np.diff(x, 2, 0, append=x[:1], prepend=x[:2])
"""
"""What lies beyond an edge, and orders of elements."""

AT_END = """
x[x>0]; x[b]; x[b[:, 0]]; x[1, b[0]]; x[:, b[0]]; y[:, b]; x[b]*2+x[b]; x[b][0];
v[b[0]]; x[np.nonzero(b)]; x[np.where(b)]*2; v[np.flatnonzero(b[0])];
np.nonzero(b); b.nonzero(); np.argwhere(x>0); np.flatnonzero(b); np.where(b);
np.unique(i); np.unique(h); np.unique(i, return_counts=True);
np.unique_all(i); np.unique_counts(i); np.unique_inverse(i);
np.unique_values(i); np.compress(b[0], x, axis=1); x.compress(b[0], axis=1);
np.extract(b, x); np.trim_zeros(i); np.setdiff1d(i, [1]);
np.setxor1d(i, [1, 5]); np.intersect1d(i, [1, 5]); np.union1d(i, [1, 5]);
np.delete(v, b[0]); np.repeat(v, i[b[0]*1 % 2])
"""
"""Results whose shape depends on data."""
