"""An optimised program as a model of ONNX: each kernel is a function of the model,
whose body is of standard operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from eqsat.kernels import Kernel, Program, View, inner
from eqsat.saving.calls import made_by
from eqsat.saving.onnx_ops import COMPARISONS, LOGIC, WRITERS, operator_of
from eqsat.support import OnnxError, SavedProgramError
from eqsat.terms import BF16, CONSTANT, HALF, SCALAR, Op, Term, Weak, postorder
from eqsat.trace import KERNEL

OPSET, IR_VERSION = 18, 8
DOMAIN = "eqsat"
"""Of the functions of kernels."""
_WIDE = np.dtype(np.float32)
"""What halves are computed in."""
_INDEX = np.dtype(np.int64)


MOST_CHECKED = 1 << 31
"""Bytes of a model that ONNX's checker takes."""


def model_of(program: Program, name: str) -> Any:
    """The program as a ``ModelProto``, as :meth:`eqsat.Lowered.to_onnx` says."""
    try:
        import onnx
    except ImportError as error:
        raise OnnxError(
            "to_onnx needs the package onnx; pip install 'eqsat[onnx]'"
        ) from error
    if not program.roots:
        raise SavedProgramError(
            f"{name!r} cannot be a model of ONNX: it returns no array"
        )
    model = _Model(program, onnx).model(name)
    if model.ByteSize() < MOST_CHECKED:
        try:
            onnx.checker.check_model(model, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as e:
            raise SavedProgramError(
                f"{name!r} cannot be a model of ONNX: operators have no such types: "
                f"{' '.join(str(e).split())}"
            ) from e
    return model


class _Model:
    """The graph while it is written."""

    def __init__(self, program: Program, onnx: Any) -> None:
        self.program, self.onnx = program, onnx
        self.names = program.names
        self.functions: dict[bytes, Any] = {}
        """Functions by what they compute."""
        self.nodes: list[Any] = []

    def model(self, name: str) -> Any:
        """The whole model."""
        program, helper = self.program, self.onnx.helper
        fixed = (*program.constants, *program.folded)
        known = _values(fixed)
        kept = [_tensor(self.onnx, self.names[t], np.asarray(known[t])) for t in fixed]
        for step in program.steps:
            if isinstance(step, View):
                writer = _Nodes(self.onnx, f"{step.name}.")
                given = {a: self.names[a] for a in step.term.args}
                found = writer.terms([step.term], given)
                self.nodes += writer.nodes
                self._same(found[0], step.name)
            else:
                self._kernel(step)
        inputs = [self._info(self.names[t], t) for t in program.inputs]
        outputs = []
        taken = {*self.names.values()}
        for k, root in enumerate(program.roots):
            out = f"result_{k}"
            while out in taken:
                out += "_"
            self._same(self.names[root], out)
            outputs.append(self._info(out, root))
        graph = helper.make_graph(self.nodes, _plain(name), inputs, outputs, kept)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(
            graph,
            functions=[*self.functions.values()],
            opset_imports=opsets,
            ir_version=IR_VERSION,
            producer_name=made_by(),
        )

    def _same(self, value: str, name: str) -> None:
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))

    def _info(self, name: str, t: Term) -> Any:
        kind = _type(self.onnx, cast("np.dtype[Any]", t.dtype))
        return self.onnx.helper.make_tensor_value_info(name, kind, list(t.shape))

    def _kernel(self, kernel: Kernel) -> None:
        """A call of the function of a kernel; equal ones have one."""
        helper = self.onnx.helper
        writer = _Nodes(self.onnx, "v")
        params = [f"x{i}" for i in range(len(kernel.inputs))]
        given = dict(zip(kernel.inputs, params, strict=True))
        found = writer.terms(kernel.bodies, given, [r.dtype for r in kernel.results])
        outs = [f"y{i}" for i in range(len(found))]
        for value, out in zip(found, outs, strict=True):
            writer.nodes.append(helper.make_node("Identity", [value], [out]))
        text = str(kernel.term.attrs[0]) if kernel.op is KERNEL else kernel.op.name
        function = helper.make_function(
            DOMAIN,
            "",
            params,
            outs,
            writer.nodes,
            [helper.make_opsetid("", OPSET)],
            doc_string=f"{kernel.kind}: {text}",
        )
        key = function.SerializeToString(deterministic=True)
        if key not in self.functions:
            function.name = kernel.name
            self.functions[key] = function
        own = self.functions[key].name
        inputs = [self.names[a] for a in kernel.inputs]
        results = [self.names[r] for r in kernel.results]
        call = helper.make_node(own, inputs, results, name=kernel.name, domain=DOMAIN)
        self.nodes.append(call)


class _Nodes:
    """Operators for the terms of a kernel, in order."""

    def __init__(self, onnx: Any, prefix: str) -> None:
        self.onnx, self._prefix = onnx, prefix
        self.nodes: list[Any] = []
        self._dtypes: dict[str, Any] = {}
        self._numbers: dict[tuple[bytes, Any, tuple[int, ...]], str] = {}
        self._casts: dict[tuple[str, Any], str] = {}

    def terms(
        self,
        roots: Sequence[Term],
        given: Mapping[Term, str],
        dtypes: Sequence[Any] | None = None,
    ) -> list[str]:
        """The names of ``roots``, in their dtypes or in others; ``given`` are those of
        arguments."""
        made: dict[Term, str] = dict(given)
        for t, name in given.items():
            self._dtypes[name] = t.dtype
        known: dict[Term, Any] = {}
        """What depends on no argument."""
        for t in inner(roots, given):
            for a in t.args:
                if a not in made and a.op in (SCALAR, CONSTANT):
                    known[a] = _leaf(a)
            if all(a in known for a in t.args):
                known[t] = _value(t, [known[a] for a in t.args])
            else:
                made[t] = self._term(t, made, known)
        found = []
        for t, dtype in zip(roots, dtypes or [r.dtype for r in roots], strict=True):
            if t in made:
                found.append(self._cast(made[t], dtype))
            else:
                value = known[t] if t in known else _leaf(t)
                found.append(self.number(value, dtype))
        return found

    def _term(
        self, t: Term, made: Mapping[Term, str], known: Mapping[Term, Any]
    ) -> str:
        op = cast(Op, t.op)
        dtype, out = _operands(t)
        given = []
        for i, a in enumerate(t.args):
            wanted = _INDEX if op.name == "take" and i else dtype
            wanted = np.dtype(bool) if op.name == "where" and not i else wanted
            if a in made:
                given.append(self._cast(made[a], wanted))
            else:
                given.append(self.number(known[a], wanted))
        if op.name == "cast":
            found: str | None = given[0]
        elif operator := operator_of(op.name, dtype):
            found = self(operator, *given)
        else:
            writer = WRITERS.get(op.name)
            found = None if writer is None else writer(self, t, given, dtype)
        if found is None:
            raise SavedProgramError(
                f"ONNX has no operator for {op.name} of {dtype}, which the program "
                "computes"
            )
        self._dtypes[found] = out
        return found

    def __call__(self, operator: str, *given: str, **attributes: Any) -> str:
        """Write an operator; the name of its result."""
        name = f"{self._prefix}{len(self.nodes)}"
        if "to" in attributes:
            attributes["to"] = _type(self.onnx, attributes["to"])
        made = self.onnx.helper.make_node(operator, [*given], [name], **attributes)
        self.nodes.append(made)
        return name

    def number(self, value: Any, dtype: Any) -> str:
        """The name of a constant."""
        array = np.asarray(value).astype(dtype)
        key = array.tobytes(), array.dtype, array.shape
        if key not in self._numbers:
            name = f"{self._prefix}{len(self.nodes)}"
            tensor = _tensor(self.onnx, name, array)
            make = self.onnx.helper.make_node
            self.nodes.append(make("Constant", [], [name], value=tensor))
            self._numbers[key], self._dtypes[name] = name, array.dtype
        return self._numbers[key]

    def _cast(self, name: str, dtype: Any) -> str:
        if self._dtypes[name] == dtype:
            return name
        key = name, dtype
        if key not in self._casts:
            self._casts[key] = self("Cast", name, to=dtype)
            self._dtypes[self._casts[key]] = dtype
        return self._casts[key]


def _operands(t: Term) -> tuple[Any, Any]:
    """The dtype that an op computes in, and that of its result; halves in float32."""
    op, out = cast(Op, t.op), cast("np.dtype[Any]", t.dtype)
    if op.name in LOGIC:
        return np.dtype(bool), out
    if op.name in COMPARISONS or op.name in ("argmax", "argmin"):
        kinds = [
            a.attrs[0] if isinstance(a.dtype, Weak) and a.op is SCALAR else a.dtype
            for a in t.args
        ]
        return _wide(_common(kinds)), out
    if op.name == "cast":
        return out, out  # what is rounded to a half is one
    return _wide(out), _wide(out)


def _common(kinds: Sequence[Any]) -> Any:
    """The dtype that NumPy compares arrays and bare numbers in."""
    if BF16 in kinds:
        kinds = [_WIDE if k == BF16 else k for k in kinds]
    return np.result_type(*kinds)


def _wide(dtype: Any) -> Any:
    return _WIDE if dtype in HALF else dtype


def _values(terms: Sequence[Term]) -> dict[Term, Any]:
    """What is known beforehand: terms of constants."""
    values: dict[Term, Any] = {}
    for t in postorder(terms):
        leaf = t.op in (SCALAR, CONSTANT)
        values[t] = _leaf(t) if leaf else _value(t, [values[a] for a in t.args])
    return values


def _leaf(t: Term) -> Any:
    if t.op is SCALAR:
        return t.attrs[0]
    return t.graph.arrays[cast(int, t.attrs[0])]


def _value(t: Term, given: Sequence[Any]) -> Any:
    """The value of a term by the reference of its op."""
    op = cast(Op, t.op)
    with np.errstate(all="ignore"):
        return op.reference(*given, **op.attr_dict(t))


def _plain(name: str) -> str:
    return name if name.isidentifier() else "program"


def _type(onnx: Any, dtype: np.dtype[Any]) -> int:
    """The number of a dtype in ONNX."""
    if dtype == BF16:
        return int(onnx.TensorProto.BFLOAT16)
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _tensor(onnx: Any, name: str, value: np.ndarray[Any, Any]) -> Any:
    data = np.ascontiguousarray(value).tobytes()
    kind = _type(onnx, value.dtype)
    return onnx.helper.make_tensor(name, kind, list(value.shape), data, raw=True)
