"""What the namespace says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.array_api.delegates import DEVICE, check_device
from eqsat.support import DTypeError
from eqsat.terms import dtype_code

_info = np.__array_namespace_info__()


def _is_known(dtype: Any) -> bool:
    try:
        dtype_code(np.dtype(dtype))
    except DTypeError:
        return False
    return True


class NamespaceInfo:
    """What devices, dtypes and abilities there are."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indices and shapes that depend on values are taken."""
        return dict(_info.capabilities())

    def default_device(self) -> str:
        """The device that arrays are made on."""
        return DEVICE

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """Dtypes of what Python numbers and indices become."""
        check_device(device)
        found = _info.default_dtypes(device=None)
        return {k: d for k, d in found.items() if _is_known(d)}

    def devices(self) -> list[str]:
        """All devices."""
        return [DEVICE]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """Dtypes of a kind, or of any, by their names."""
        check_device(device)
        found = _info.dtypes(device=None, kind=kind)
        return {k: np.dtype(d) for k, d in found.items() if _is_known(d)}


def __array_namespace_info__() -> NamespaceInfo:
    """What the namespace says of itself."""
    return NamespaceInfo()
