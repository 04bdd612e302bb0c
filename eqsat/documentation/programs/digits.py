"""A network learns the digits of scikit-learn: ``python digits.py [FILE]``.

Loss, gradient and Adam's step are one compiled program. It prints the accuracy on
digits that it did not see, and writes the curve of its losses to FILE, an SVG.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import eqsat as eq

Arrays = dict[str, Any]


def logits(p: Arrays, x: Any) -> Any:
    """Two layers: 64 pixels, ``hidden`` features, 10 digits."""
    h = np.maximum(x @ p["w1"] + p["b1"], 0)
    return h @ p["w2"] + p["b2"]


@eq.value_and_grad
def loss(p: Arrays, x: Any, y: Any) -> Any:
    """Cross-entropy of the digits ``y``, an array of integers."""
    right = eq.log_softmax(logits(p, x))[np.arange(len(y)), y]
    return -right.mean()


@eq.jit
def step(p: Arrays, m: Arrays, v: Arrays, t: Any, x: Any, y: Any) -> Any:
    """One step of Adam. ``t`` is the number of the step, from 1 on."""
    value, g = loss(p, x, y)
    m = {k: np.float32(0.9) * m[k] + np.float32(0.1) * g[k] for k in p}
    v = {k: np.float32(0.999) * v[k] + np.float32(0.001) * g[k] ** 2 for k in p}
    rate = np.float32(0.002) * np.sqrt(1 - np.float32(0.999) ** t)
    rate = rate / (1 - np.float32(0.9) ** t)
    p = {k: p[k] - rate * m[k] / (np.sqrt(v[k]) + np.float32(1e-8)) for k in p}
    return value, p, m, v


def digits(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Images from 0 to 1 and their digits: three quarters to learn, then the others."""
    images, numbers = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    x, y = (images[order] / 16).astype(np.float32), numbers[order]
    cut = len(x) * 3 // 4
    return x[:cut], y[:cut], x[cut:], y[cut:]


def train(steps: int, seed: int = 0, hidden: int = 256) -> tuple[Arrays, list[float]]:
    """The weights after so many steps, and the loss of each step."""
    rng = np.random.default_rng(seed)
    x, y, _, _ = digits(rng)
    p: Arrays = {
        "w1": rng.standard_normal((64, hidden), np.float32) * np.float32(0.15),
        "b1": np.zeros(hidden, np.float32),
        "w2": rng.standard_normal((hidden, 10), np.float32) * np.float32(0.06),
        "b2": np.zeros(10, np.float32),
    }
    m = {k: np.zeros_like(w) for k, w in p.items()}
    v = {k: np.zeros_like(w) for k, w in p.items()}
    losses = []
    for t in range(1, steps + 1):
        some = rng.integers(0, len(x), 128)
        value, p, m, v = step(p, m, v, np.float32(t), x[some], y[some])
        losses.append(float(value))
    return p, losses


def accuracy(p: Arrays, seed: int = 0) -> float:
    """The share of unseen digits that the network names rightly."""
    _, _, x, y = digits(np.random.default_rng(seed))
    return float((logits(p, x).argmax(1) == y).mean())


def curve(losses: list[float]) -> str:
    """The losses as an SVG: steps to the right, loss upwards, by powers of 10."""
    width, height, left, low = 640, 320, 60, -4
    y = [20 + (0.6 - np.log10(v)) / (0.6 - low) * (height - 60) for v in losses]
    x = np.linspace(left, width - 20, len(losses))
    y = list(np.minimum(y, height - 40))
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    lines = []
    for power in range(low, 1):
        at = 20 + (0.6 - power) / (0.6 - low) * (height - 60)
        lines.append(
            f'<path d="M{left} {at:.1f}H{width - 20}" stroke="#ddd"/>'
            f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">1e{power}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12" fill="#333">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>\n'
        + "\n".join(lines)
        + f'\n<text x="{left}" y="{height - 14}">step 1</text>'
        f'<text x="{width - 20}" y="{height - 14}" text-anchor="end">'
        f"step {len(losses)}</text>"
        f'<text x="{width // 2}" y="{height - 14}" text-anchor="middle">'
        "loss of a step (cross-entropy)</text>\n"
        f'<polyline points="{points}" fill="none" stroke="#0a6ebd"/>\n</svg>\n'
    )


if __name__ == "__main__":
    weights, losses = train(1500)
    print(f"loss {losses[0]:.3f} to {losses[-1]:.5f}, accuracy {accuracy(weights):.1%}")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(curve(losses), encoding="utf-8")
