"""The methods of lazy arrays that the Python array API standard asks for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from eqsat.trace import to_numpy

DEVICE = "cpu"
"""The device that arrays are on."""
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


class StandardArray:
    """An array that other libraries use by the standard, and exchange by DLPack."""

    __slots__ = ()

    _value: Callable[[], Any]

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """The functions of the standard: :mod:`eqsat.array_api`.

        Raises :class:`ValueError` for a version of the standard that it is not of.
        """
        if api_version not in (None, *_VERSIONS):
            raise ValueError(f"api_version {api_version!r} is none of {_VERSIONS}")
        # By its name: that room is made of this one's arrays.
        return importlib.import_module("eqsat.array_api")

    @property
    def device(self) -> str:
        """The device that it is on, ``"cpu"``."""
        return DEVICE

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """The array itself: there is one device.

        Raises :class:`ValueError` for another device, or a stream.
        """
        if device != DEVICE or stream is not None:
            raise ValueError(f"to_device: {device!r}, stream {stream!r}: no such")
        return self

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The values for another library, read-only. One that does not know read-only
        arrays (DLPack before 1.0) gets a copy; with ``copy=False`` it gets the values
        themselves, and must not write to them.

        Raises :class:`BufferError` for another device, and ``ValueError`` for a stream.
        """
        value = np.asarray(self)
        if max_version is None or max_version < (1, 0):
            value = to_numpy(self._value()) if copy is False else value.copy()
            return value.__dlpack__(stream=stream, dl_device=dl_device)
        return value.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU."""
        return np.asarray(0).__dlpack_device__()
