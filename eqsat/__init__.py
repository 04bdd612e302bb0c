"""eqsat: the cheapest program that computes the same thing.

    import numpy as np, eqsat as eq

    @eq.jit
    def ffn(x, w, b):
        return eq.gelu(x @ w + b)

A function over arrays is traced to terms, the terms go into an e-graph, rewrite rules
are applied to all of it at once, a cost model chooses the cheapest program, and a
backend runs it.
"""

from contextlib import suppress

from eqsat import array_api, random
from eqsat.array_api import arange, asarray, eye, full, linspace, ones, zeros
from eqsat.can_fuse import CanFuse, can_fuse
from eqsat.checking import Finding, Report, check
from eqsat.explain import Explanation, WhyNot
from eqsat.grad import grad, value_and_grad
from eqsat.graph import Graph, GraphNode
from eqsat.jit import Jit, jit
from eqsat.kernels import release_memory
from eqsat.lazy import LazyArray, array, evaluate
from eqsat.lowered import Lowered
from eqsat.measure import Statistics, stats
from eqsat.mlx import from_mlx
from eqsat.onnx import from_onnx
from eqsat.ops import (
    attention,
    batch_norm,
    cho_solve,
    conv2d,
    gelu,
    gelu_sigmoid,
    gelu_tanh,
    group_norm,
    layer_norm,
    leaky_relu,
    linear,
    log_softmax,
    logsumexp,
    lora,
    relu,
    rms_norm,
    rope,
    sigmoid,
    silu,
    softmax,
    solve_triangular,
)
from eqsat.pytorch import from_torch
from eqsat.rulelang import Rule, RuleSet, default_rules, load_rules, recognition, rule
from eqsat.saved import SavedProgram, load
from eqsat.support import (
    ArgumentError,
    BackendError,
    BudgetWarning,
    DTypeError,
    EngineError,
    EqsatError,
    GraphError,
    MemoryLimitError,
    NoResultError,
    OnnxError,
    OptionError,
    Options,
    OptionWarning,
    RecompileWarning,
    RuleError,
    RuleWarning,
    SavedProgramError,
    ShapeError,
    StaleWarning,
    TraceError,
    VerifyError,
    bindings,
    is_on,
    options,
)
from eqsat.trace import Spec

LazyArray.namespace = array_api

# The engine and the stock rules take 30 and 15 ms to load. Without the disk cache the
# first call needs them in any case, so they load here; where they are missing, or
# EQSAT_CACHE is wrong, the first use says so.
with suppress(OptionError, EngineError):
    if not is_on():
        bindings()
        with suppress(RuleError):
            default_rules()

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "BackendError",
    "BudgetWarning",
    "CanFuse",
    "DTypeError",
    "EngineError",
    "EqsatError",
    "Explanation",
    "Finding",
    "Graph",
    "GraphError",
    "GraphNode",
    "Jit",
    "LazyArray",
    "Lowered",
    "MemoryLimitError",
    "NoResultError",
    "OnnxError",
    "OptionError",
    "OptionWarning",
    "Options",
    "RecompileWarning",
    "Report",
    "Rule",
    "RuleError",
    "RuleSet",
    "RuleWarning",
    "SavedProgram",
    "SavedProgramError",
    "ShapeError",
    "Spec",
    "StaleWarning",
    "Statistics",
    "TraceError",
    "VerifyError",
    "WhyNot",
    "arange",
    "array",
    "array_api",
    "asarray",
    "attention",
    "batch_norm",
    "can_fuse",
    "check",
    "cho_solve",
    "conv2d",
    "default_rules",
    "evaluate",
    "eye",
    "from_mlx",
    "from_onnx",
    "from_torch",
    "full",
    "gelu",
    "gelu_sigmoid",
    "gelu_tanh",
    "grad",
    "group_norm",
    "jit",
    "layer_norm",
    "leaky_relu",
    "linear",
    "linspace",
    "load",
    "load_rules",
    "log_softmax",
    "logsumexp",
    "lora",
    "ones",
    "options",
    "random",
    "recognition",
    "release_memory",
    "relu",
    "rms_norm",
    "rope",
    "rule",
    "sigmoid",
    "silu",
    "softmax",
    "solve_triangular",
    "stats",
    "value_and_grad",
    "zeros",
]
