"""Models of ONNX with the weights that their packages ship, and inputs of their kind:
a photo, drawn words, a voice that is made here, a file.

``pip install --no-deps ddddocr nudenet rapidocr_onnxruntime silero-vad magika
chython-rxnmap onnx-asr`` brings those that are not in the package onnx.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
NEAR = 1e-3
"""How near ONNX Runtime is to float64: some of its functions round more often than the
bounds of this project allow, and a model that is read wrongly is further away."""
RATE = 16_000
"""Samples of a voice in a second."""


class ShippedModel(NamedTuple):
    """A model in a package, and what to run it on."""

    kind: str
    package: str
    file: str
    inputs: Callable[[], dict[str, Array]]

    @property
    def path(self) -> Path | None:
        """Where it lies; None where the package is not installed, or lacks it."""
        found = importlib.util.find_spec(self.package)
        if found is None or not found.submodule_search_locations:
            return None
        path = Path(found.submodule_search_locations[0]) / self.file
        return path if path.is_file() else None


# -- inputs ----------------------------------------------------------------------------


def photo(height: int, width: int) -> Array:
    """A photo of the package scikit-learn, of ``height × width × 3``, 0 to 255."""
    import sklearn.datasets
    from PIL import Image

    folder = Path(sklearn.datasets.__file__).parent / "images"
    with Image.open(folder / "china.jpg") as image:
        small = image.convert("RGB").resize((width, height))
    return np.asarray(small, np.float32)


def words(height: int, width: int, text: str) -> Array:
    """Black words on white, ``height × width × 3``, 0 to 255."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (width, height), "white")
    font = ImageFont.load_default(height * 0.7)
    ImageDraw.Draw(image).text((4, height * 0.08), text, "black", font)
    return np.asarray(image, np.float32)


def batch(
    pixels: Array, scale: float = 1 / 255, mean: float = 0, std: float = 1
) -> Any:
    """An image as a batch of one, channels first: (pixel × scale - mean) / std."""
    made = (pixels * np.float32(scale) - np.float32(mean)) / np.float32(std)
    return np.ascontiguousarray(made.transpose(2, 0, 1)[None])


def voice(samples: int) -> Array:
    """A vowel with a falling pitch and a little noise: one channel, -1 to 1."""
    t = np.arange(samples) / RATE
    phase = 2 * np.pi * np.cumsum(140 - 20 * t) / RATE
    formants = np.array([700, 1220, 2600])
    parts = [
        np.sin(k * phase) * np.exp(-(((140 * k - formants) / 150) ** 2)).sum()
        for k in range(1, 25)
    ]
    noise = np.random.default_rng(0).standard_normal(samples)
    made = sum(parts) + 0.02 * noise
    wave: Array = (0.3 * made / np.abs(made).max()).astype(np.float32)
    return wave[None]


def sound() -> dict[str, Array]:
    """Two seconds of it."""
    wave = voice(2 * RATE)
    return {"waveforms": wave, "waveforms_lens": np.array([wave.shape[1]])}


def moment() -> dict[str, Array]:
    """36 ms of a voice, from its middle, and the first state."""
    return {
        "input": voice(RATE)[:, 8000:8576],
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(RATE),
    }


def source_file() -> dict[str, Array]:
    """The ends of this file, as its readers take them."""
    data = np.frombuffer(Path(__file__).read_bytes(), np.uint8).astype(np.int32)
    return {"bytes": np.concatenate([data[:1024], data[-1024:]])[None]}


def molecule(atoms: int) -> dict[str, Array]:
    """A chain of carbon and oxygen beside another, as one reaction."""
    places = np.arange(atoms)
    far = np.minimum(np.abs(places[:, None] - places), 9) + 2
    half = atoms // 2
    far[:half, half:] = far[half:, :half] = 1
    return {
        "atoms": np.where(places % 5 == 4, 11, 9)[None],
        "neighbors": np.full((1, atoms), 4),
        "distances": far[None],
        "roles": np.where(places < half, 2, 3)[None],
    }


def light(name: str, given: str) -> ShippedModel:
    """A network of the package onnx, whose weights are constant."""
    return ShippedModel(
        "image classifier",
        "onnx",
        f"backend/test/data/light/light_{name}.onnx",
        lambda: {given: batch(photo(224, 224))},
    )


_RAPID = "rapidocr_onnxruntime"
_ASR = "preprocessors/data"
MODELS: Mapping[str, ShippedModel] = {
    "alexnet": light("bvlc_alexnet", "data_0"),
    "densenet121": light("densenet121", "data_0"),
    "inception_v1": light("inception_v1", "data_0"),
    "inception_v2": light("inception_v2", "data_0"),
    "resnet50": light("resnet50", "gpu_0/data_0"),
    "shufflenet": light("shufflenet", "gpu_0/data_0"),
    "squeezenet": light("squeezenet", "data_0"),
    "vgg19": light("vgg19", "data_0"),
    "zfnet512": light("zfnet512", "gpu_0/data_0"),
    "ddddocr": ShippedModel(
        "text recognition, LSTM",
        "ddddocr",
        "common.onnx",
        lambda: {"input1": batch(words(64, 160, "a7Kx"))[:, :1]},
    ),
    "ddddocr_det": ShippedModel(
        "detector, YOLOX",
        "ddddocr",
        "common_det.onnx",
        lambda: {"images": batch(photo(416, 416), 1.0)},
    ),
    "nudenet": ShippedModel(
        "detector, YOLOv8",
        "nudenet",
        "320n.onnx",
        lambda: {"images": batch(photo(320, 320))},
    ),
    "ppocr_det": ShippedModel(
        "text detector",
        _RAPID,
        "models/ch_PP-OCRv4_det_infer.onnx",
        lambda: {"x": batch(words(320, 320, "eqsat 42"), 1 / 255, 0.5, 0.5)},
    ),
    "ppocr_rec": ShippedModel(
        "text recognition, transformer",
        _RAPID,
        "models/ch_PP-OCRv4_rec_infer.onnx",
        lambda: {"x": batch(words(48, 320, "equality 2026"), 1 / 255, 0.5, 0.5)},
    ),
    "ppocr_cls": ShippedModel(
        "text direction",
        _RAPID,
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        lambda: {"x": batch(words(48, 192, "upright"), 1 / 255, 0.5, 0.5)},
    ),
    "silero_vad": ShippedModel(
        "voice activity, If and LSTM", "silero_vad", "data/silero_vad.onnx", moment
    ),
    "magika": ShippedModel(
        "type of a file", "magika", "models/standard_v3_3/model.onnx", source_file
    ),
    "rxnmap": ShippedModel(
        "reactions, transformer",
        "chython_rxnmap",
        "rxnmap.onnx",
        lambda: molecule(48),
    ),
    "whisper_features": ShippedModel(
        "spectrogram, STFT", "onnx_asr", f"{_ASR}/whisper80.onnx", sound
    ),
    "kaldi_features": ShippedModel(
        "spectrogram, STFT", "onnx_asr", f"{_ASR}/kaldi.onnx", sound
    ),
    "wespeaker_features": ShippedModel(
        "spectrogram, Scan", "onnx_asr", f"{_ASR}/wespeaker.onnx", sound
    ),
}
"""Models by name."""
