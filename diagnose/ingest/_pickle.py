"""Pickles of plain data, read without running anything: no imports, no calls, no objects.

Flight recorder dumps and memory snapshots hold only dicts, lists, tuples, text, bytes and numbers. Everything else a
pickle can say (globals, calls, state, persistent ids, extension codes, sets, buffers) is refused with its name and
place. This does not judge whether the data make sense, only that getting at them was harmless.

Method: documents up to 1 MiB are read by a machine of our own that knows no other instructions, takes only numbers
and text as keys (hashing a nested tuple can take for ever or overflow the stack), and bounds depth and memo. Larger
ones are read by CPython's unpickler, with every lookup refused, in a process of its own with limits on memory and
time, so that an input that attacks the reader itself takes only that process down; data come back as `marshal`, which
bounds the depth. Values may be shared and even hold themselves, as pickles allow: walk only the levels that the format
has. Opcodes: CPython Lib/pickletools.py, protocols 2 to 5.
"""

from __future__ import annotations

import marshal
import pickletools
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from diagnose.errors import InputError
from diagnose.ingest._source import Source

MAX_BYTES = 2 << 30
SMALL_BYTES = 1 << 20
MAX_DEPTH = 200
_PROTOCOLS = range(2, 6)
_TIME_LIMIT_S = 300
_EXPECTED = "plain data (a flight recorder dump or memory snapshot holds nothing else)"
_DO = "it was not loaded, because unpickling it could run code; get the file from its writer again, or leave it out"
_KEYS = (str, int, float, bool, bytes, type(None))


def read(source: Source, max_bytes: int = MAX_BYTES) -> Any:
    """The data of a pickle. InputError where it is too large, cut, damaged, or more than data."""
    data = source.whole(max_bytes, f"a pickle of more than {max_bytes >> 20} MiB", "a smaller one")
    return load(data, source.label)


def load(data: bytes, path: str) -> Any:
    """The data of a pickle given as bytes; `path` is named in errors (InputError)."""
    if len(data) < 2 or data[0] != 0x80 or data[1] not in _PROTOCOLS:
        raise InputError(path, "no pickle of protocol 2 to 5", _EXPECTED, "leave it out")
    try:
        return _shallow(_Machine(data).run()) if len(data) <= SMALL_BYTES else _apart(data)
    except _RefusedError as refused:
        raise InputError(path, str(refused), _EXPECTED, _DO) from None


class _RefusedError(Exception):
    """What stands in the document and where."""


class _Machine:
    """A pickle machine whose instructions only build plain data."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Execute until STOP."""
        while True:
            offset = self.at
            code = self.take(1)
            act = _ACTIONS.get(code)
            if act is None and code != b".":
                raise _RefusedError(_said(self.data, offset, self.stack[-2:]))
            try:
                if act is None:
                    return self.pop()
                act(self)
            except (IndexError, KeyError, ValueError, struct.error) as error:
                raise _RefusedError(f"a damaged pickle (byte {offset:,}: {error})") from None

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if not 0 <= size <= len(self.data) - self.at:
            raise _RefusedError(f"a pickle that is cut or claims too much (byte {self.at:,})")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        """The next unsigned number of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def pop(self) -> Any:
        """The top of the stack, above the last mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise IndexError("nothing on the stack")
        return self.stack.pop()

    def push(self, value: Any) -> None:
        """Push a value."""
        self.stack.append(value)

    def marked(self) -> list[Any]:
        """Everything above the last mark, taken off with it."""
        start = self.marks.pop()
        items, self.stack[start:] = self.stack[start:], []
        return items

    def put(self, index: int) -> None:
        """Remember the top of the stack. A document cannot use more places than it has bytes."""
        if index > len(self.data):
            raise _RefusedError(f"a memo index of {index:,} (byte {self.at:,}), as only an attack on the reader has")
        self.memo[index] = self.stack[-1]

    def extend(self, items: list[Any]) -> None:
        """Append to the list on the stack."""
        target = self.stack[-1]
        if type(target) is not list:
            raise ValueError("no list to append to")
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        """Set items of the dict on the stack."""
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise ValueError("no dict to set items of")
        for key in items[::2]:
            if not isinstance(key, _KEYS):
                raise _RefusedError(f"a dict key that is no text or number (before byte {self.at:,})")
        target.update(zip(items[::2], items[1::2], strict=True))

    def last(self, count: int) -> list[Any]:
        """The top `count` values, in order."""
        return [self.pop() for _ in range(count)][::-1]


def _shallow(value: Any) -> Any:
    """`value`, where none of its containers lies deeper than MAX_DEPTH levels."""
    layer, seen = [value], set[int]()
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for item in layer:
            if isinstance(item, (list, tuple, dict)) and id(item) not in seen:
                seen.add(id(item))
                inner += item.values() if isinstance(item, dict) else item
        if not inner:
            return value
        layer = inner
    raise _RefusedError(f"a pickle nested deeper than {MAX_DEPTH} levels")


def _text(size: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.take(m.number(size)).decode("utf-8", "surrogatepass"))


def _old_text(size: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.take(m.number(size)).decode("latin-1"))


def _bytes(size: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.take(m.number(size)))


def _whole(size: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(int.from_bytes(m.take(m.number(size)), "little", signed=True))


def _constant(value: Any) -> Callable[[_Machine], None]:
    return lambda m: m.push(value)


_ACTIONS: dict[bytes, Callable[[_Machine], Any]] = {
    b"\x80": lambda m: m.take(1),
    b"\x95": lambda m: m.take(8),  # FRAME: where it ends does not matter here
    b"(": lambda m: m.marks.append(len(m.stack)),
    b"0": lambda m: m.pop(),
    b"1": lambda m: m.marked(),
    b"2": lambda m: m.stack.append(m.stack[-1]),
    b"N": _constant(None),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b"J": lambda m: m.push(int.from_bytes(m.take(4), "little", signed=True)),
    b"K": lambda m: m.push(m.number(1)),
    b"M": lambda m: m.push(m.number(2)),
    b"\x8a": _whole(1),
    b"\x8b": _whole(4),
    b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    b"\x8c": _text(1),
    b"X": _text(4),
    b"\x8d": _text(8),
    b"U": _old_text(1),
    b"T": _old_text(4),
    b"C": _bytes(1),
    b"B": _bytes(4),
    b"\x8e": _bytes(8),
    b"]": lambda m: m.push([]),
    b"a": lambda m: m.extend(m.last(1)),
    b"e": lambda m: m.extend(m.marked()),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.push(tuple(m.marked())),
    b"\x85": lambda m: m.push(tuple(m.last(1))),
    b"\x86": lambda m: m.push(tuple(m.last(2))),
    b"\x87": lambda m: m.push(tuple(m.last(3))),
    b"}": lambda m: m.push({}),
    b"s": lambda m: m.update(m.last(2)),
    b"u": lambda m: m.update(m.marked()),
    b"q": lambda m: m.put(m.number(1)),
    b"r": lambda m: m.put(m.number(4)),
    b"\x94": lambda m: m.put(len(m.memo)),
    b"h": lambda m: m.push(m.memo[m.number(1)]),
    b"j": lambda m: m.push(m.memo[m.number(4)]),
}


def _said(data: bytes, offset: int, stack: list[Any]) -> str:
    """An instruction that is refused, with the global it asks for."""
    code, rest = data[offset : offset + 1], data[offset + 1 : offset + 400]
    names = {o.code.encode("latin-1"): o.name for o in pickletools.opcodes}
    what = names.get(code, f"unknown instruction {code!r}")
    if code in (b"c", b"i") and rest.count(b"\n") >= 2:
        module, name = rest.split(b"\n")[:2]
        what = f"global {module.decode('ascii', 'replace')}.{name.decode('ascii', 'replace')}"
    elif code == b"\x93" and len(stack) == 2:
        what = f"global {str(stack[0])[:80]}.{str(stack[1])[:80]}"
    return f"a pickle that asks for more than data: {what} (byte {offset:,})"


_CHILD = """
import io, marshal, pickle, sys
try:
    import resource
    data = sys.stdin.buffer.read()
    limit = 40 * len(data) + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except ImportError:
    data = sys.stdin.buffer.read()
class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"global {module}.{name}")
    def persistent_load(self, key):
        raise pickle.UnpicklingError("a persistent id")
try:
    value = Reader(io.BytesIO(data)).load()
    out = b"+" + marshal.dumps(value)
except BaseException as error:
    out = b"-" + f"{type(error).__name__}: {error}"[:300].encode("utf-8", "replace")
sys.stdout.buffer.write(out)
"""


def _apart(data: bytes) -> Any:
    """The data of a large pickle, read by a process with limits."""
    command = [sys.executable, "-I", "-S", "-c", _CHILD]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=_TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise _RefusedError("a pickle that takes too long to read") from None
    if done.returncode or done.stdout[:1] not in (b"+", b"-"):
        raise _RefusedError("a pickle that takes more memory than its size explains, or breaks its reader")
    if done.stdout[:1] == b"-":
        raise _RefusedError(_located(data, done.stdout[1:].decode("utf-8", "replace")))
    return marshal.loads(done.stdout[1:])


def _located(data: bytes, said: str) -> str:
    """What the other process refused, with the place where this machine would refuse it, too."""
    if "global " not in said and "persistent" not in said:
        return f"a damaged pickle, or more than data ({said})"
    recent: list[Any] = []
    for opcode, value, place in pickletools.genops(data):
        if opcode.code.encode("latin-1") not in _ACTIONS and opcode.code != ".":
            return _said(data, place or 0, recent[-2:])
        if isinstance(value, str):
            recent = [*recent[-1:], value]
    return f"a pickle that asks for more than data: {said}"
