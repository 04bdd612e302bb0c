"""Programs of science and graphics: sampling of images, points, boxes, particles, small
matrices. Sizes are those that each ``_draw…`` names."""

from __future__ import annotations

from typing import Any

from bench.workloads import Array, Draw, Drawn, sizes

NEIGHBOURS = 8
"""Of a row of a sparse matrix."""
SOFT = 0.01
"""What is added to squared distances of particles."""
WINDOW = 50


def _bilinear(F: Any, image: Array, y: Array, x: Array) -> Array:
    """What lies at fractional places."""
    i, j = F.whole(y), F.whole(x)
    v, u = y - F.cast(i, y), x - F.cast(j, x)
    top = image[i, j] * (1 - u) + image[i, j + 1] * u
    low = image[i + 1, j] * (1 - u) + image[i + 1, j + 1] * u
    return top * (1 - v) + low * v


def _bicubic(F: Any, image: Array, y: Array, x: Array) -> Array:
    """Keys 1981, doi:10.1109/TASSP.1981.1163711; the image goes on as it ends."""
    height, width = image.shape
    i, j = F.whole(y), F.whole(x)
    down, across = _cubic(y - F.cast(i, y)), _cubic(x - F.cast(j, x))
    total = 0
    for n, v in enumerate(down, -1):
        row = 0
        for m, u in enumerate(across, -1):
            below = F.minimum(F.maximum(i + n, 0), height - 1)
            behind = F.minimum(F.maximum(j + m, 0), width - 1)
            row = row + u * image[below, behind]
        total = total + v * row
    return total


def _cubic(t: Array) -> list[Array]:
    """Weights of the four neighbours of a place."""
    square = t * t
    cube = square * t
    return [
        -0.5 * cube + square - 0.5 * t,
        1.5 * cube - 2.5 * square + 1,
        -1.5 * cube + 2 * square + 0.5 * t,
        0.5 * (cube - square),
    ]


def _product(F: Any, x: Array, y: Array) -> Array:
    return x @ y


def _overlap(F: Any, a: Array, b: Array) -> Array:
    """Intersection over union of boxes (x₀ y₀ x₁ y₁)."""
    low = F.maximum(a[:, None, :2], b[None, :, :2])
    high = F.minimum(a[:, None, 2:], b[None, :, 2:])
    side = F.relu(high - low)
    both = side[..., 0] * side[..., 1]
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    return both / (area_a[:, None] + area_b - both)


def _nearest(F: Any, a: Array, b: Array) -> Array:
    """Which of the points b is nearest to each of a."""
    d = a[:, None] - b
    return F.argmax(-(d * d).sum(-1))


def _gravity(F: Any, x: Array, mass: Array) -> Array:
    """The force on each particle."""
    d = x - x[:, None]
    r = (d * d).sum(-1) + SOFT
    return (d * (mass / (r * F.sqrt(r)))[..., None]).sum(1)


def _sparse(F: Any, a: Array, columns: Array, x: Array) -> Array:
    """A matrix with few numbers in each row times a vector."""
    return (a * x[columns]).sum(1)


def _area(F: Any, corners: Array, faces: Array) -> Array:
    """Of triangles."""
    a, b, c = (corners[faces[:, i]] for i in range(3))
    u, v = b - a, c - a
    x = u[:, 1] * v[:, 2] - u[:, 2] * v[:, 1]
    y = u[:, 2] * v[:, 0] - u[:, 0] * v[:, 2]
    z = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
    return 0.5 * F.sqrt(x * x + y * y + z * z)


def _cross(F: Any, u: Array, v: Array) -> Array:
    parts = [
        u[:, 1] * v[:, 2] - u[:, 2] * v[:, 1],
        u[:, 2] * v[:, 0] - u[:, 0] * v[:, 2],
        u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0],
    ]
    return F.stack(parts, -1)


def _running_mean(F: Any, x: Array) -> Array:
    n = x.shape[0] - WINDOW
    return F.stack([x[i : i + n] for i in range(WINDOW)], 0).mean(0)


def _laplacian(F: Any, u: Array) -> Array:
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return around - 4 * u[1:-1, 1:-1]


# -- what they are called with ---------------------------------------------------------


def _image_and_places(draw: Draw, height: int, width: int, n: int) -> Drawn:
    y, x = (draw.rng.random(n) * (size - 2) for size in (height, width))
    return [draw.normal(height, width), *(a.astype(draw.dtype) for a in (y, x))], []


def _matrices(draw: Draw, n: int, m: int, k: int, p: int) -> Drawn:
    return [draw.normal(n, m, k), draw.normal(n, k, p)], []


def _colours(draw: Draw, height: int, width: int, k: int) -> Drawn:
    return [draw.normal(height, width, k), draw.normal(k, k)], []


def _boxes(draw: Draw, n: int, m: int) -> Drawn:
    def some(count: int) -> Array:
        boxes = draw.rng.random((count, 4))
        boxes[:, 2:] = boxes[:, :2] + 0.3 * boxes[:, 2:] + 0.01
        return boxes.astype(draw.dtype)

    return [some(n), some(m)], []


def _points(draw: Draw, n: int, m: int, k: int) -> Drawn:
    return [draw.normal(n, k), draw.normal(m, k)], []


def _particles(draw: Draw, n: int) -> Drawn:
    return [draw.normal(n, 3), draw.gain(n)], []


def _few_in_rows(draw: Draw, n: int) -> Drawn:
    columns = draw.rng.integers(0, n, (n, NEIGHBOURS))
    return [draw.normal(n, NEIGHBOURS), columns, draw.normal(n)], []


def _mesh(draw: Draw, corners: int, faces: int) -> Drawn:
    return [draw.normal(corners, 3), draw.rng.integers(0, corners, (faces, 3))], []


def _vectors(draw: Draw, n: int) -> Drawn:
    return [draw.normal(n, 3), draw.normal(n, 3)], []


def _one(draw: Draw, *shape: int) -> Drawn:
    return [draw.normal(*shape)], []


PLACES = ((512, 512, 65536),)
MATRICES = ((50000, 3, 3, 1), (50000, 3, 3, 3))
WORKLOADS = [
    *sizes("bilinear", _bilinear, "science", _image_and_places, PLACES),
    *sizes("bicubic", _bicubic, "science", _image_and_places, PLACES, quick=None),
    *sizes("matrices", _product, "science", _matrices, MATRICES),
    *sizes("colours", _product, "science", _colours, ((512, 512, 3),), quick=None),
    *sizes("box_overlap", _overlap, "science", _boxes, ((600, 800),), quick=None),
    *sizes("nearest", _nearest, "science", _points, ((1000, 1200, 3),), quick=None),
    *sizes("gravity", _gravity, "science", _particles, ((1000,),), quick=None),
    *sizes("sparse", _sparse, "science", _few_in_rows, ((10000,),), quick=None),
    *sizes("mesh_area", _area, "science", _mesh, ((3000, 6000),), quick=None),
    *sizes("cross", _cross, "science", _vectors, ((200000,),), quick=None),
    *sizes("running_mean", _running_mean, "science", _one, ((20000,),), quick=None),
    *sizes("laplacian", _laplacian, "science", _one, ((1024, 1024),), quick=None),
]
