"""What is in force here: options and where they come from, versions, folders."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import (
    PackageNotFoundError,
    entry_points,
    requires,
    version,
)
from typing import Any

from eqsat.command.shared import columns
from eqsat.kernels import CPU, measured
from eqsat.support import (
    TABLE,
    BackendError,
    OptionError,
    base_folder,
    device_file,
    unknown_variables,
)


def record() -> dict[str, Any]:
    """All of it, as JSON can hold it. What is wrong is told in the place of a value, by
    a dictionary with the key ``error``."""
    return {
        "options": {name: _option(name) for name in TABLE},
        "unknown_variables": {n: near[2:] for n, near in unknown_variables()},
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in _packages()},
        },
        "machine": f"{platform.machine()} {sys.platform}",
        "backend": _or_error(_backend),
        "folders": {
            "cache": _or_error(lambda: str(base_folder())),
            "figures": _or_error(lambda: str(device_file())),
        },
        "cost_models": {n: _or_error(partial(_origin, n)) for n in _backends()},
    }


def is_right(found: dict[str, Any]) -> bool:
    """Whether nothing in a record is wrong."""
    return not any("error" in option for option in found["options"].values())


def text(found: dict[str, Any]) -> str:
    """A record for people."""
    rows = [("option", "value", "from", "variable")]
    for name, o in found["options"].items():
        value = "wrong" if "error" in o else _shown(o["value"])
        rows.append((name, value, o["from"], o["variable"]))
    lines = columns(rows)
    lines += [o["error"] for o in found["options"].values() if "error" in o]
    for name, near in found["unknown_variables"].items():
        lines.append(f"{name} is no option{'; ' if near else ''}{near}")
    versions = {n: v or "not installed" for n, v in found["versions"].items()}
    rest = [
        *versions.items(),
        *((n, found[n]) for n in ("machine", "backend")),
        *((f"{n} in", place) for n, place in found["folders"].items()),
        *((f"costs of {n}", origin) for n, origin in found["cost_models"].items()),
    ]
    return "\n".join([*lines, "", *columns([(n, _shown(v)) for n, v in rest])])


def _backends() -> list[str]:
    return sorted(e.name for e in entry_points(group="eqsat.backends"))


def _option(name: str) -> dict[str, Any]:
    option = TABLE[name]
    found: dict[str, Any] = {
        "from": "environment" if option.is_given else "default",
        "variable": option.variable,
        "default": _plain(option.default),
    }
    try:
        return {"value": _plain(option.from_environment()), **found}
    except OptionError as error:
        return {"error": str(error), **found}


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


def _shown(value: Any) -> str:
    if isinstance(value, dict) and "error" in value:
        return str(value["error"])
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "-" if value is None else str(value)


def _packages() -> list[str]:
    """eqsat, what it needs, and MLX."""
    needed = [r for r in requires("eqsat") or () if "extra" not in r]
    names = [re.split(r"[^\w.-]", r, maxsplit=1)[0] for r in needed]
    return ["eqsat", *sorted(names), "mlx"]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _backend() -> str:
    from eqsat.kernels import backend_named, default_backend

    chosen = TABLE["backend"].from_environment()
    return (backend_named(chosen) if chosen else default_backend()).name


def _origin(backend: str) -> str:
    """Where the figures of a backend's cost model come from."""
    return "as shipped" if measured(backend, CPU) is CPU else str(device_file())


def _or_error(ask: Callable[[], str]) -> str | dict[str, str]:
    try:
        return ask()
    except (OptionError, BackendError, RuntimeError) as error:
        return {"error": str(error)}
