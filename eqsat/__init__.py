"""eqsat: the cheapest program that computes the same thing.

    import numpy as np, eqsat as eq

    @eq.jit
    def ffn(x, w, b):
        return eq.gelu(x @ w + b)

A function over arrays is traced to terms, the terms go into an e-graph, rewrite rules
are applied to all of it at once, a cost model chooses the cheapest program, and a
backend runs it.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "eqsat.array_api": "arange asarray eye full linspace ones zeros",
    "eqsat.can_fuse": "CanFuse can_fuse",
    "eqsat.checking": "Finding Report check",
    "eqsat.explain": "Explanation WhyNot",
    "eqsat.grad": "grad value_and_grad",
    "eqsat.graph": "Graph GraphNode",
    "eqsat.jit": "Jit jit",
    "eqsat.kernels": "release_memory",
    "eqsat.lazy": "LazyArray array evaluate",
    "eqsat.lowered": "Lowered",
    "eqsat.measure": "Statistics stats",
    "eqsat.mlx": "from_mlx",
    "eqsat.onnx": "from_onnx",
    "eqsat.ops": (
        "attention batch_norm cho_solve conv2d gelu gelu_sigmoid gelu_tanh group_norm "
        "layer_norm leaky_relu linear log_softmax logsumexp lora relu rms_norm rope "
        "sigmoid silu softmax solve_triangular"
    ),
    "eqsat.pytorch": "from_torch",
    "eqsat.rulelang": "Rule RuleSet default_rules load_rules recognition rule",
    "eqsat.saved": "SavedProgram load",
    "eqsat.support": (
        "ArgumentError BackendError BudgetWarning DTypeError EngineError EqsatError "
        "GraphError MemoryLimitError NoResultError OnnxError OptionError Options "
        "OptionWarning RecompileWarning RuleError RuleWarning SavedProgramError "
        "ShapeError StaleWarning TraceError VerifyError options"
    ),
    "eqsat.trace": "Spec",
}
"""The public names by the module that has them; nothing is imported before one of its
names is used. ``__init__.pyi`` tells type checkers the same."""
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES = {"array_api", "random"}
__all__ = sorted({*_HOME, *_MODULES})


class _Package(ModuleType):
    """The module ``eqsat``, which looks for a name when it is first used."""

    def __getattr__(self, name: str) -> Any:
        if name in _HOME:
            value = getattr(importlib.import_module(_HOME[name]), name)
            setattr(self, name, value)
            return value
        module = f"{self.__name__}.{name}"  # eqsat.ops, eqsat.testing and their like
        if name.startswith("_") or importlib.util.find_spec(module) is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return importlib.import_module(module)

    def __setattr__(self, name: str, value: Any) -> None:
        # eqsat.jit is the function, also once the module of that name is imported.
        if not (isinstance(value, ModuleType) and name in _HOME):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
