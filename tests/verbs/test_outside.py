"""What a function reads outside of its arguments counts: when it changes, the program
is made again. Each case is run beside the function itself."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.trace import outside

X = np.arange(1.0, 5.0)
BACKENDS = ["native", "numpy", "mlx"]

CLASS = "class C:\n    a = 2.0\n    def g(self, x): return x * self.a\n"
BELOW = CLASS + "class D(C): pass\n"
OBJECT = "class C:\n    def __init__(self): self.a = 2.0\n"
METHODS = OBJECT + (
    "    def g(self, x): return self.h(x)\n"
    "    def h(self, x): return x * self.a + k\n"
    "    def __call__(self, x): return [x * v for v in [self.a]][0]\n"
    "    @property\n    def twice(self): return 2 * self.a\n"
    "    @classmethod\n    def c(cls, x): return x * cls.b\n"
    "    @staticmethod\n    def s(x): return x * k\n"
    "    b = 3.0\n"
    "k = 1.0\no = C()"
)
SLOTS = "class C:\n    __slots__ = ('a',)\no = C()\no.a = 2.0"
DATA = "@dataclass\nclass C:\n    a: float = 2.0\no = C()"
CLOSURE = (
    "def make():\n    a = 2.0\n"
    "    def put(v):\n        nonlocal a\n        a = v\n"
    "    def g(x): return x * a\n    return g, put\n"
    "g, put = make()"
)
WRAPPED = (
    "def twice(f):\n    @functools.wraps(f)\n"
    "    def g(x): return f(x) * 2\n    return g\n"
    "@twice\ndef h(x): return x * k\nk = 2.0"
)
BIG = "w = np.zeros((300, 300))"
"""What is defined, what the function returns, and changes one after the other."""
CASES: dict[str, tuple[str, str, list[str]]] = {
    "number": ("k = 2.0", "x * k", ["k = 3.0", "k = 3", "k = -0.0", "k = 0.0"]),
    "choice": ("k = True", "x if k else -x", ["k = False", "k = 0.5"]),
    "text": ("k = 'a'", "x if k == 'a' else -x", ["k = 'b'"]),
    "tuple": ("k = 1.0, 2.0", "x * k[1]", ["k = 1.0, 3.0"]),
    "list": (
        "k = [1.0, 2.0]",
        "x * k[1]",
        ["k[1] = 3.0", "k = [0, 9]", "k.insert(0, 4)"],
    ),
    "dict": ("k = {'a': 1.0}", "x * k['a']", ["k['a'] = 3.0", "k = {'a': 5.0}"]),
    "nested": ("k = {'a': [{'b': 1.0}]}", "x * k['a'][0]['b']", ["k['a'][0]['b'] = 7"]),
    "set": ("k = {1, 2}", "x * len(k)", ["k.add(3)", "k.clear()"]),
    "bytes": ("k = bytearray(b'a')", "x * k[0]", ["k[0] = 7"]),
    "deque": ("k = collections.deque([1.0])", "x * k[0]", ["k[0] = 7"]),
    "numpy": ("k = np.float32(2)", "x * k", ["k = np.float32(3)"]),
    "dtype": ("k = 'f4'", "x.astype(k)", ["k = np.dtype('f8')", "k = np.int32"]),
    "new global": ("def k(): return 'a' in globals()", "-x if k() else x", ["k = dir"]),
    "alias": ("k = [2.0]\nl = {'k': k}", "x * l['k'][0]", ["k[0] = 4.0"]),
    "class": (CLASS, "x * C.a", ["C.a = 3.0", "C.a = [4.0][0]"]),
    "base": (BELOW, "x * D.a", ["C.a = 3.0", "D.a = 4.0", "del D.a"]),
    "local class": (CLASS, "(lambda c: x * c.a)(C)", ["C.a = 3.0"]),
    "made inside": (CLASS, "C().g(x)", ["C.a = 3.0", "C.g = lambda self, x: -x"]),
    "object": (OBJECT + "o = C()", "x * o.a", ["o.a = 3.0", "o = C()"]),
    "hides class": (CLASS + "o = C()", "x * o.a", ["o.a = 3.0", "C.a = 5", "del o.a"]),
    "getattr": (OBJECT + "o = C()", "x * getattr(o, 'a')", ["o.a = 3.0"]),
    "vars": (OBJECT + "o = C()", "x * vars(o)['a']", ["o.a = 3.0"]),
    "enum": (
        "class E(enum.Enum):\n    a = 2.0\n    b = 3.0\nk = E.a",
        "x * k.value * (-1 if k is E.b else 1)",
        ["k = E.b"],
    ),
    "named tuple": (
        "T = collections.namedtuple('T', 'a w')\nk = T(2.0, [3.0])",
        "x * k.a * k.w[0]",
        ["k = T(4.0, [5.0])", "k.w[0] = 6.0"],
    ),
    "slots": (SLOTS, "x * o.a", ["o.a = 3.0"]),
    "dataclass": (DATA, "x * o.a", ["o.a = 3.0", "o = C(4.0)"]),
    "namespace": ("o = SimpleNamespace(a=2.0)", "x * o.a", ["o.a = 3.0"]),
    "method": (METHODS, "o.g(x)", ["o.a = 3.0", "k = 5.0", "C.h = lambda s, x: x"]),
    "called": (METHODS, "o(x)", ["o.a = 3.0", "C.__call__ = lambda s, x: -x"]),
    "property": (METHODS, "x * o.twice", ["o.a = 3.0", "C.twice = 4.0"]),
    "classmethod": (METHODS, "C.c(x)", ["C.b = 5.0"]),
    "of object": (METHODS, "o.c(x) + o.s(x)", ["C.b = 5.0", "k = 7.0"]),
    "bound": (METHODS + "\nm = o.g", "m(x)", ["o.a = 3.0", "k = 2.0", "m = C().g"]),
    "closure": (CLOSURE, "g(x)", ["put(3.0)", "g, put = make()"]),
    "default": (
        "def g(x, k=[2.0]): return x * k[0]",
        "g(x)",
        ["g.__defaults__[0][0] = 4.0", "g.__defaults__ = ([5.0],)"],
    ),
    "keyword": (
        "def g(x, *, k=2.0): return x * k",
        "g(x)",
        ["g.__kwdefaults__['k'] = 4.0", "g.__kwdefaults__ = {'k': 6.0}"],
    ),
    "module": ("import outside_case as m", "x * m.a", ["m.a = 3.0"]),
    "module's": ("import outside_case as m", "m.g(x)", ["m.a = 4.0", "m.g = abs"]),
    "whole module": ("import outside_case as m", "x * getattr(m, 'a')", ["m.a = 3.0"]),
    "array": ("w = np.ones(4)", "x + w", ["w[2] = 5", "w = np.zeros(4)", "w *= -0.0"]),
    "one of many": (BIG, "x.sum() + w", ["w[173, 211] = 1", "w.flat[-1] = 2"]),
    "steps": (
        BIG + "\nv = w[::3, 1::2]",
        "x.sum() + v",
        ["w[3, 5] = 1", "v[0, 0] = 9"],
    ),
    "element": (BIG, "x * float(w[7, 9])", ["w[7, 9] = 1"]),
    "in a dict": ("k = {'w': [np.ones(4)]}", "x + k['w'][0]", ["k['w'][0][1] = 3"]),
    "of an object": (OBJECT + "o = C()\no.w = np.ones(4)", "x + o.w", ["o.w[3] = 9"]),
    "helper": (
        "def h(x): return x * k\nk = 2.0",
        "h(x)",
        ["k = 3.0", "def h(x): return x + k", "k = 4.0"],
    ),
    "its code": (
        "def h(x): return x",
        "h(x)",
        ["h.__code__ = (lambda x: -x).__code__"],
    ),
    "two deep": (
        "def g(x): return x * k\ndef h(x): return g(x)\nk = 2.0",
        "h(x)",
        ["k = 3.0", "g = np.sin"],
    ),
    "decorated": (WRAPPED, "h(x)", ["k = 3.0"]),
    "cached": (
        "@functools.lru_cache\ndef h(n): return n\nk = 2.0",
        "x * h(2) * k",
        ["k = 3.0"],
    ),
    "partial": (
        "def g(k, x): return x * k * l\nl = 1.0\nh = functools.partial(g, 2.0)",
        "h(x)",
        ["l = 3.0", "h = functools.partial(g, 4.0)"],
    ),
    "table": (
        "k = 2.0\nt = {'h': lambda x: x * k}",
        "t['h'](x)",
        ["k = 3.0", "t['h'] = abs"],
    ),
    "inner": ("k = 2.0", "(lambda y: [y * k for _ in range(1)][0])(x)", ["k = 3.0"]),
    "jitted": ("k = 2.0\nh = eq.jit(lambda x: x * k)", "h(x)", ["k = 3.0"]),
    "gradient": ("k = 2.0\nh = eq.grad(lambda x: (x * k).sum())", "h(x)", ["k = 3.0"]),
    "callback": (
        "k = 2.0\ndef h(x): return x * k",
        "np.apply_along_axis(h, 0, x) if type(x) is np.ndarray else h(x)",
        ["k = 3.0"],
    ),
}

SUPER = (
    "class A:\n    a = 2.0\n    def g(self, x): return x * 2\n"
    "    @property\n    def p(self): return k\n"
    "    @classmethod\n    def c(cls): return k\n"
    "class B:\n    a = 3.0\n"
    "class C(A):\n"
    "    a = 4.0\n"
    "    def g(self, x): return super().g(x) * 3\n"
    "    def h(self, x): return x * super().a\n"
    "    @property\n    def p(self): return super().p * 2\n"
    "    @classmethod\n    def c(cls): return super().c() * 2\n"
    "class D(C, B): pass\n"
    "k = 2.0\no = D()"
)
KINDS = (
    "@functools.singledispatch\ndef g(v): return k\nk = 2.0\n"
    "class C:\n    @functools.singledispatchmethod\n    def g(self, v): return k\n"
    "o = C()"
)
KEPT = (
    "{how}\ndef g(n=1): return [k * n]\nk = 2.0\n"
    "class C:\n    {how}\n    def g(self, n): return k * n\n"
    "o = C()"
)
REFILLED = "k += 1\ng.cache_clear()", "k += 1\ng.cache_clear()\ng(1)\ng()\ng(n=1)"
ASKED: dict[str, tuple[str, str, list[str]]] = {
    "class has": (CLASS, "-x if hasattr(C, 'b') else x", ["C.b = 1", "del C.b"]),
    "base has": (BELOW, "x * getattr(D, 'b', 3.0)", ["C.b = 4.0", "D.b = 5.0"]),
    "class of object has": (
        BELOW + "o = D()",
        "x * getattr(o, 'b', 3.0)",
        ["C.b = 4.0", "D.b = 5.0", "o.b = 6.0"],
    ),
    "class of object lacks": (
        BELOW + "o = D()\ndef g():\n    try: return o.b\n    except AttributeError: 0\n"
        "    return 2.0",
        "x * g()",
        ["C.b = 4.0", "del C.b", "o.b = 5.0"],
    ),
    "object in an object has": (
        OBJECT + "o = C()\no.o = C()",
        "x * getattr(o.o, 'b', 3.0)",
        ["C.b = 4.0", "o.o.b = 5.0", "o.o = C()"],
    ),
    "itself has": (
        "class C:\n    def g(self, x): return -x if hasattr(self, 'b') else x\no = C()",
        "o.g(x)",
        ["C.b = 1", "del C.b", "o.b = 1"],
    ),
    "module has": (
        "import outside_case as m",
        "x * getattr(m, 'b', 3.0) * (2 if hasattr(m, 'c') else 1)",
        ["m.b = 4.0", "m.c = 1", "del m.b"],
    ),
    "module has a function": (
        "import outside_case as m",
        "getattr(m, 'h', abs)(x)",
        ["m.h = lambda x: -x", "m.h = np.exp"],
    ),
    "function has": (
        "def g(): pass\nh = lambda: 0",
        "x * getattr(g, 'b', 3.0) * (2 if hasattr(h, 'b') else 1)",
        ["g.b = 4.0", "h.b = 1", "del g.b"],
    ),
    "metaclass": (
        "class M(type): a = 2.0\nclass C(metaclass=M): pass",
        "x * C.a",
        ["M.a = 3.0", "C.a = 4.0"],
    ),
    "above": (
        SUPER,
        "o.g(x)",
        ["A.g = lambda self, x: x - k", "k = 3.0", "B.g = A.g", "del A.g"],
    ),
    "value above": (SUPER, "o.h(x)", ["A.a = 5.0", "del A.a", "B.a = 6.0"]),
    "property above": (SUPER, "x * o.p", ["k = 3.0", "A.p = 4.0"]),
    "class method above": (SUPER, "x * o.c()", ["k = 3.0", "A.c = lambda: 4.0"]),
    "class changed": (
        BELOW + "class E(C): a = 3.0\no = D()\nl = [D()]",
        "x * (2 if isinstance(o, E) else 1) * l[0].a",
        ["o.__class__ = E", "l[0].__class__ = E", "o.__class__ = D"],
    ),
    "class changed, of which a is": (
        BELOW + "class E: a = 3.0\no = D()",
        "x * o.a",
        ["o.__class__ = E", "o.__class__ = C"],
    ),
    "registered": (
        KINDS,
        "x * g(1.5)",
        ["g.register(float)(lambda v: v * k)", "k = 3.0",
         "g.register(float)(lambda v: v - k)", "g.register(object, lambda v: 9.0)"],
    ),
    "registered method": (
        KINDS,
        "x * o.g(1.5)",
        ["vars(C)['g'].register(float, lambda self, v: v * k)", "k = 3.0"],
    ),
    "cleared": (
        KEPT.format(how="@functools.lru_cache"), "x * g()[0]", ["k = 3.0", *REFILLED]
    ),
    "cleared and filled": (
        KEPT.format(how="@functools.cache"), "x * g(n=1)[0] * g()[0]", [*REFILLED]
    ),
    "cleared method": (
        KEPT.format(how="@functools.cache"),
        "x * o.g(2)",
        ["k = 3.0", "C.g.cache_clear()", "k = 4.0\nC.g.cache_clear()\no.g(2)"],
    ),
}  # fmt: skip

PROXY = "k = {'a': [2.0]}\nm = types.MappingProxyType(k)"
REFERRED = OBJECT + "o = C()\n"
RECORDS = "w = np.zeros(3, [('a', 'f8'), ('b', 'O')])\nw['b'] = [[1.0], 2, 3]\n"
STRUCTURE = (
    "class S(ctypes.Structure):\n    _fields_ = [('a', ctypes.c_double)]\n"
    "    def g(self, x): return x * self.a * k\n"
    "k = 1.0\nb = S(2.0)"
)
CONTEXT = "k = contextvars.ContextVar('k', default=[2.0])"
PARSER = "k = configparser.ConfigParser()\nk['a'] = {'b': '2'}\nl = k['a']"
VIEWS: dict[str, tuple[str, str, list[str]]] = {
    "proxy": (PROXY, "x * m['a'][0]", ["k['a'] = [3.0]", "k['a'][0] = 4.0"]),
    "length of a proxy": (PROXY, "x * len(m)", ["k['b'] = 1"]),
    "proxy in a list": (PROXY + "\nl = [m]", "x * l[0]['a'][0]", ["k['a'] = [3.0]"]),
    "proxy of a class": (CLASS + "m = vars(C)", "x * m['a']", ["C.a = 3.0"]),
    "values": ("k = {'a': 2.0}\nv = k.values()", "x * sum(v)", ["k['b'] = 3.0"]),
    "keys": ("k = {2.0: 1}\nv = k.keys()", "x * sum(v)", ["k[4.0] = 1"]),
    "items": ("k = {1: 2.0}\nv = k.items()", "x * [*v][0][1]", ["k[1] = 3.0"]),
    "ordered": (
        "k = collections.OrderedDict(a=2.0, b=3.0)\nv = k.values()",
        "x * [*v][0]",
        ["k['a'] = 5.0", "k.move_to_end('a')"],
    ),
    "factory": (
        "k = collections.defaultdict(lambda: 2.0, a=1.0)",
        "x * k.default_factory() * k['a']",
        ["k.default_factory = lambda: 3.0", "k['a'] = 4.0"],
    ),
    "counter": ("k = collections.Counter('aab')", "x * k['a']", ["k['a'] += 1"]),
    "chain": (
        "k = {'a': 2.0}\nm = collections.ChainMap({}, k)",
        "x * m['a']",
        ["k['a'] = 3.0", "m['a'] = 4.0"],
    ),
    "user dict": (
        "k = collections.UserDict(a=2.0)\nv = k.values()",
        "x * k['a'] * sum(v)",
        ["k['a'] = 3.0"],
    ),
    "user list": ("k = collections.UserList([2.0])", "x * k[0]", ["k[0] = 3.0"]),
    "in a deque": (
        OBJECT + "k = collections.deque([[2.0], C()])",
        "x * k[0][0] * k[1].a",
        ["k[0][0] = 3.0", "k[1].a = 4.0", "k.rotate()\nk.rotate()\nk[0] = [5.0]"],
    ),
    "empty deque": ("k = collections.deque()", "x * (1 + len(k))", ["k.append(3)"]),
    "in a set": (OBJECT + "k = {C()}", "x * [*k][0].a", ["[*k][0].a = 3.0"]),
    "own set": ("class S(set): pass\nk = S()", "x * (1 + len(k))", ["k.add(3)"]),
    "own deque": (
        "class D(collections.deque): pass\nk = D()",
        "x * (1 + len(k))",
        ["k.append(3)"],
    ),
    "beside items": (
        "class D(dict): pass\nk = [D(a=1.0)]\nk[0].b = 2.0",
        "x * k[0].b",
        ["k[0].b = 3.0"],
    ),
    "queue": ("k = queue.Queue()\nk.put(2.0)", "x * k.queue[0]", ["k.queue[0] = 3.0"]),
    "parser": (PARSER, "x * float(l['b'])", ["k['a']['b'] = '3'"]),
    "parsed": ("k = argparse.Namespace(a=2.0)", "x * k.a", ["k.a = 3.0"]),
    "local": (
        "k = threading.local()\nk.a = 2.0\nk.w = np.ones(4)",
        "x * k.a * float(k.w[0])",
        ["k.a = 3.0", "k.w[0] = 4.0"],
    ),
    "context": (CONTEXT, "x * k.get()[0]", ["k.get()[0] = 3.0", "k.set([4.0])"]),
    "cell": (
        "def outer():\n    a = 2.0\n    return lambda: a\nc = outer().__closure__[0]",
        "x * c.cell_contents",
        ["c.cell_contents = 3.0"],
    ),
    "weak": (
        REFERRED + "r = weakref.ref(o)",
        "x * (1 if r() is None else r().a)",
        ["o.a = 3.0", "del o"],
    ),
    "class of weak": (CLASS + "o = C()\nr = weakref.ref(o)", "r().g(x)", ["C.a = 3.0"]),
    "weak proxy": (REFERRED + "p = weakref.proxy(o)", "x * p.a", ["o.a = 3.0"]),
    "weak values": (
        REFERRED + "m = weakref.WeakValueDictionary(a=o)",
        "x * sum(v.a for v in m.values())",
        ["o.a = 3.0", "l = C()\nm['b'] = l", "del l"],
    ),
    "weak keys": (
        REFERRED + "m = weakref.WeakKeyDictionary({o: 2.0})",
        "x * sum(k.a * v for k, v in m.items())",
        ["m[o] = 3.0", "o.a = 4.0"],
    ),
    "weak set": (
        REFERRED + "m = weakref.WeakSet([o])",
        "x * len(m) * [*m][0].a",
        ["l = C()\nm.add(l)", "del l", "o.a = 5.0"],
    ),
    "array.array": (
        "k = array.array('d', [2.0])",
        "x * k[0] * len(k)",
        ["k[0] = 3.0", "k.append(1.0)"],
    ),
    "ctypes": ("k = (ctypes.c_double * 2)(2.0)", "x * k[0]", ["k[0] = 3.0"]),
    "number of C": ("k = ctypes.c_double(2.0)", "x * k.value", ["k.value = 3.0"]),
    "structure": (STRUCTURE, "b.g(x)", ["b.a = 3.0", "k = 2.0"]),
    "structures": (STRUCTURE + "\nl = [b]", "x * l[0].a", ["b.a = 3.0"]),
    "bytearray": (
        "k = bytearray(b'ab')\nm = memoryview(k)[1:]",
        "x * k[0] * m[0]",
        ["k[0] = 7", "k[1] = 9"],
    ),
    "memory of an array": (
        "w = np.ones((3, 4))\nm = memoryview(w).toreadonly()[::2]",
        "x * m[0, 0]",
        ["w[0] = 3"],
    ),
    "much memory": (
        "k = bytearray(300_000)\nm = memoryview(k)",
        "x * m[200_000]",
        ["k[200_000] = 3"],
    ),
    "mapped": ("k = mmap.mmap(-1, 16)", "x * k[0]", ["k[0] = 3"]),
    "text file": (
        "k = io.StringIO('ab')",
        "x * len(k.getvalue())",
        ["k.write('abcd')"],
    ),
    "record": (
        RECORDS + "k = w[0]\nl = [k]",
        "x * k['a'] * l[0]['b'][0]",
        ["w['a'][0] = 3", "w['b'][0][0] = 4.0"],
    ),
    "record alone": (
        "k = np.zeros((), [('a', 'f8')])[()]",
        "x * float(k['a'])",
        ["k['a'] = 3"],
    ),
    "flat": ("w = np.ones(4)\nv = w.flat", "x * v[0]", ["w[0] = 3"]),
    "iterated": ("w = np.ones(4)\nv = np.nditer(w)", "x * float(v[0])", ["w[0] = 3"]),
    "objects": (
        "w = np.array([[2.0], 3], object)",
        "x * w[0][0]",
        ["w[0][0] = 4.0", "w[0] = [5.0]"],
    ),
    "masked": (
        "w = np.ma.array([1.0, 2.0], mask=[False, True])",
        "x * float(w.mask[0])",
        ["w.mask[0] = True"],
    ),
    "method of a dict": ("k = {1: 2.0}\nget = k.get", "x * get(1)", ["k[1] = 3.0"]),
    "method of an array": ("w = np.ones(4)\ns = w.sum", "x * float(s())", ["w[0] = 3"]),
    "writeable": (
        "w = np.ones(4)",
        "x if w.flags.writeable else -x",
        ["w.flags.writeable = False", "w.flags.writeable = True"],
    ),
    "form": (
        "w = np.ones(4)",
        "x * w",
        ["w.shape = 4, 1", "w.shape = 1, 4", "w.dtype = 'i8'"],
    ),
    "form of bytes": (
        "w = np.frombuffer(bytes(range(32)))",
        "x * w",
        ["w.dtype = 'i8'", "w.shape = 4, 1"],
    ),
    "length": ("w = np.ones(4)", "x * len(w)", ["w.shape = 2, 2", "w.shape = 1, 4"]),
}
CASES |= VIEWS | ASKED


def case(setup: str, returned: str) -> dict[str, Any]:
    """Names after ``setup``, and the function ``f``."""
    names: dict[str, Any] = {"__name__": "outside_cases", "eq": eq, "np": np}
    before = (
        "import argparse, array, collections, configparser, contextvars, ctypes, enum\n"
        "import functools, io, mmap, queue, threading, types, weakref\n"
        "from dataclasses import dataclass\n"
        "from types import SimpleNamespace"
    )
    exec(f"{before}\n{setup}\ndef f(x): return {returned}\n", names)
    return names


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("outside_case")
    exec("a = 2.0\ndef g(x): return x * a", vars(made))
    monkeypatch.setitem(sys.modules, "outside_case", made)
    monkeypatch.setitem(sys.modules, "outside_cases", ModuleType("outside_cases"))


def same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_a_change_outside_is_seen(name: str, backend: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core")
    setup, returned, changes = CASES[name]
    names = case(setup, returned)
    jitted = eq.jit(names["f"], backend=backend, options=eq.Options(numerics="exact"))
    for change in ["", *changes]:
        exec(change, names)
        for _ in range(3):  # by Python, and by machine code
            assert same(jitted(X), names["f"](X)), change


@pytest.mark.parametrize(
    "name", ["number", "dict", "class", "object", "array", "helper"]
)
def test_methods_and_what_is_called_read_names_too(name: str) -> None:
    setup, returned, changes = CASES[name]
    names = case(setup, returned)
    exec("class M:\n    def __call__(self, x): return f(x)\n    m = __call__", names)
    one = names["M"]()
    for jitted in (eq.jit(one), eq.jit(one.m), eq.jit(lambda x, g: g(x))):
        fn = () if jitted.name != "<lambda>" else (names["f"],)
        for change in ["", *changes]:
            exec(change, names)
            for _ in range(2):
                assert same(jitted(X, *fn), names["f"](X)), change


@pytest.mark.parametrize(
    "setup, returned, change",
    [
        ("k = 2.0\nn = 1", "x * k", "n = 2"),
        ("k = 2.0", "x * k", "k = float('2')"),
        ("k = float('nan')", "x * k", "k = float('nan')"),
        (CLASS, "x * C.a", "C.unread = 3"),
        (OBJECT + "o = C()", "x * o.a", "o.step = 1"),
        ("w = np.ones(4)", "x + w", "w[1] = 1"),
        ("log = []", "(log.append(1), x)[1]", "log.append(2)"),
        ("k = {'a': 2.0}", "x * k['a']", "k['a'] = float('2')"),
    ],
)
def test_what_is_not_read_makes_no_program(
    setup: str, returned: str, change: str
) -> None:
    names = case(setup, returned)
    jitted = eq.jit(names["f"])
    jitted(X)
    before = jitted.lower(X)
    exec(change, names)
    assert jitted.lower(X) is before


CONSTANT = {
    "numbers": "k = 2, 2.5, 1j, True, None",
    "texts": "k = 'a', b'a', re.compile('a')",
    "containers": "k = frozenset({1, 'a'}), range(3), slice(2), (), {}, [], set()",
    "exact": "k = Decimal(1), Fraction(1, 2), date(2020, 1, 1), timedelta(1)",
    "paths": "k = Path('a') / 'b', uuid.UUID(int=3), ip_network('10.0.0.0/8')",
    "enum": "class E(enum.Enum):\n    a = 2.0\nk = E.a, E",
    "named tuple": "k = collections.namedtuple('T', 'a b')(1, 'c')",
    "numpy": "k = np.float32(2), np.dtype('f8'), np.datetime64('2020'), np.float64",
    "frozen": "k = memoryview(b'ab'), np.frombuffer(bytes(8))",
    "functions": "k = math.sin, len, np.sum, np.add.reduce, operator.itemgetter(1)",
    "of C": "k = ctypes.CDLL(None).abs, ctypes.c_double",
    "log": "import logging\nk = logging.getLogger('outside')",
    "empty": "k = {}.values(), collections.ChainMap(), types.MappingProxyType({})",
    "views": "k = {1: 2}.items(), weakref.ref(int), array.array('d', [1]), deque([1])",
    "own": "k = threading.local(), contextvars.ContextVar('k'), bytearray(3)",
}


@pytest.mark.parametrize("name", CONSTANT)
def test_what_stays_makes_no_program_and_no_warning(name: str) -> None:
    """Warnings are errors here."""
    before = (
        "import math, operator, re, uuid\nfrom collections import deque\n"
        "from datetime import date, timedelta\nfrom decimal import Decimal\n"
        "from fractions import Fraction\nfrom ipaddress import ip_network\n"
        "from pathlib import Path\n"
    )
    names = case(before + CONSTANT[name], "x if repr(k) and str(k) else -x")
    jitted = eq.jit(names["f"])
    assert same(jitted(X), X)
    made = jitted.lower(X)
    for _ in range(3):
        assert same(jitted(X), X)
        assert jitted.lower(X) is made


def test_memory_is_let_go_between_calls() -> None:
    """Nothing can be appended to an object whose memory is held."""
    names = case("k = bytearray(b'a')\nr = []", "x * k[0]")
    jitted = eq.jit(names["f"])
    for _ in range(3):
        names["k"].append(1)
        assert same(jitted(X), names["f"](X))


def test_what_a_weak_reference_stands_for_is_not_kept() -> None:
    names = case(OBJECT + "o = C()\nr = weakref.ref(o)", "x if r() is None else -x")
    jitted = eq.jit(names["f"])
    assert same(jitted(X), -X)
    del names["o"]
    assert names["r"]() is None
    assert same(jitted(X), X)


def test_what_a_function_changes_itself_is_right_and_told() -> None:
    names = case("n = [0.0]\ndef g(x):\n    n[0] += 1\n    return x * n[0]", "g(x)")
    jitted = eq.jit(names["f"])
    with pytest.warns(eq.RecompileWarning, match="made again|since n changed"):
        for i in range(1, 12):
            assert same(jitted(X), X * i)


@pytest.mark.parametrize(
    "setup, returned, name",
    [
        ("import os", "x * len(os.environ['PATH'])", "os.environ"),
        ("import os", "x * len(os.getenv('PATH'))", "os.environ"),
        ("import os", "x * len(os.environ)", "os.environ"),
        ("import os", "x * ('PATH' in os.environ)", "os.environ"),
        ("import os", "x * len(os.getcwd())", "os.getcwd()"),
        ("import os", "x * os.path.exists('a')", "os.stat()"),
        ("import os", "x * len(os.listdir())", "os.listdir()"),
        ("import pathlib", "x * pathlib.Path('a').is_dir()", "os.stat()"),
        ("import numpy", "x * len(numpy.geterr())", "np.geterr()"),
        ("import numpy", "x * len(numpy.get_printoptions())", "np.get_printoptions()"),
        ("import decimal", "x * decimal.getcontext().prec", "decimal.getcontext()"),
        ("k = ctypes.pointer(ctypes.c_double(2.0))", "x * k[0]", "k"),
        ("k = [(ctypes.POINTER(ctypes.c_int) * 2)()]", "x * len(k[0])", "k"),
        ("class D:\n    def __get__(s, o, c): return 2.0\n    def __set__(s, o, v): 0\n"
         "class C:\n    a = D()\no = C()", "x * o.a", "o.a"),
        ("class C:\n    def __getattribute__(s, n): return 2.0\no = C()", "x * o.a",
         "o.a"),
        ("class M(type):\n    @property\n    def a(cls): return 2.0\n"
         "class C(metaclass=M): pass", "x * C.a", "C.a"),
    ],
)  # fmt: skip
def test_what_nothing_can_watch_is_named(setup: str, returned: str, name: str) -> None:
    names = case(setup, returned)
    said = rf"'f' reads {re.escape(name)}, and nothing tells"
    with pytest.warns(eq.StaleWarning, match=said):
        eq.jit(names["f"])(X)


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_packages_of_other_environments_are_libraries(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a user, of the system, and on ``PYTHONPATH``."""
    place = tmp_path / folder
    place.mkdir()
    text = "import os\n\ndef twice(x):\n    return x * (2 + 0 * len(os.environ))\n"
    (place / f"lent_{folder[:4]}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(place)
    lent = importlib.import_module(f"lent_{folder[:4]}")
    assert same(eq.jit(lambda x: lent.twice(x) + 1)(X), X * 2 + 1)


@pytest.mark.parametrize(
    ("op", "read", "names"),
    [
        ("LOAD_FAST", "o", ["o"]),
        ("LOAD_FAST", "cell", []),  # what a function inside closes over
        ("LOAD_FAST_LOAD_FAST", ("x", "o"), ["x", "o"]),
        ("STORE_FAST_LOAD_FAST", ("x", "o"), ["o"]),
        ("STORE_FAST_STORE_FAST", ("x", "o"), []),
        ("LOAD_FAST_BORROW_LOAD_FAST_BORROW", ("x", "o"), ["x", "o"]),
        ("LOAD_DEREF", "cell", ["cell"]),
        ("LOAD_CONST", "o", []),
    ],
)
def test_what_a_step_of_any_python_reads(op: str, read: Any, names: Any) -> None:
    step: Any = SimpleNamespace(opname=op, argval=read)
    assert [n for _, n in outside._roots(step, frozenset({"cell"}))] == names
