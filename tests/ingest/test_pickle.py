"""No pickle runs anything, takes the machine down, or is believed beyond plain data."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.errors import InputError
from diagnose.ingest import Source, _pickle

DATA = {
    "version": "2.10",
    "entries": [{"n": 1, "t": ("a", None), "f": 1.5, "big": 1 << 70, "neg": -3, "ok": True, "raw": b"\0\xff"}] * 3,
    7: ["é\ud800", 65536, 255, -(1 << 31)],
}


class Calls:
    """An object whose pickle calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def padded(body: bytes) -> bytes:
    """`body` (a protocol 2 pickle) behind enough harmless bytes to be read as a large document."""
    filler = b"B" + struct.pack("<I", _pickle.SMALL_BYTES) + bytes(_pickle.SMALL_BYTES) + b"0"
    return body[:2] + filler + body[2:]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("large", [False, True])
def test_plain_data_of_every_protocol(protocol: int, large: bool) -> None:
    value = DATA if protocol > 2 else {**DATA, "entries": [1, "a"]}  # protocol 2 has no bytes: it calls for them
    data = pickle.dumps(value, protocol)
    assert _pickle.load(padded(data) if large and protocol < 4 else data, "x") == value


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@given(nested, st.sampled_from([2, 3, 4, 5]))
def test_reads_what_python_wrote(value: Any, protocol: int) -> None:
    if protocol == 2 and "b'" in repr(value) + repr(value).replace('b"', "b'"):
        return  # protocol 2 writes bytes by calling a function
    assert _pickle.load(pickle.dumps(value, protocol), "x") == value


@given(st.binary(max_size=200), st.sampled_from([2, 3, 4, 5]))
def test_random_bytes_give_data_or_one_error(body: bytes, protocol: int) -> None:
    with contextlib.suppress(InputError):
        _pickle.load(bytes([0x80, protocol]) + body, "x")


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_changed_byte_gives_data_or_one_error(place: int, byte: int) -> None:
    data = bytearray(pickle.dumps(DATA, 4))
    data[2 + place % (len(data) - 2)] = byte
    with contextlib.suppress(InputError):
        _pickle.load(bytes(data), "x")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("large", [False, True])
def test_nothing_runs(protocol: int, large: bool, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for call in (Calls(os.system, f"touch {mark}"), Calls(exec, f"open({str(mark)!r}, 'w')"), Calls(open, mark, "w")):
        data = pickle.dumps({"entries": [call]}, protocol)
        with pytest.raises(
            InputError, match=r"global (posix|nt|builtins|__builtin__|io|_io|pathlib)\.\w+.*byte [\d,]+"
        ):
            _pickle.load(padded(data) if large and protocol < 4 else data, "evil.pickle")
    assert not mark.exists()


ATTACKS = {
    "old global": b"\x80\x02cos\nsystem\n(S'true'\ntR.",
    "instance": b"\x80\x02(S'true'\nios\nsystem\n.",
    "instance without text": b"\x80\x02(X\x04\x00\x00\x00trueios\nsystem\n.",
    "persistent id": b"\x80\x02Pfoo\n.",
    "binary persistent id": b"\x80\x02K\x01Q.",
    "extension": b"\x80\x02\x82\x01.",
    "state": b"\x80\x02]}b.",
    "object": b"\x80\x02(X\x01\x00\x00\x00ao.",
    "call of text": b"\x80\x02X\x01\x00\x00\x00a)R.",
    "new object": b"\x80\x02X\x01\x00\x00\x00a)\x81.",
    "buffer": b"\x80\x05\x97.",
    "set": b"\x80\x04\x8f.",
    "memo bomb": b"\x80\x02K\x01r\xff\xff\xff\x7f.",
    "huge text": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7fabc.",
    "huge bytes": b"\x80\x05\x96" + b"\xff" * 7 + b"\x7fabc.",
    "negative long": b"\x80\x02\x8b\xff\xff\xff\xff.",
    "deep lists": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "deep tuples": b"\x80\x02)" + b"\x85" * 100_000 + b".",
    "deep tuple as key": b"\x80\x02})" + b"\x85" * 100_000 + b"K\x01s.",
    "doubling tuple as key": b"\x80\x02})" + b"2\x86" * 100 + b"K\x01s.",
    "stack underrun": b"\x80\x02K\x01a.",
    "mark underrun": b"\x80\x02t.",
    "nothing": b"\x80\x02.",
    "cut": b"\x80\x02}",
    "no protocol": b"(dp0\n.",
    "future protocol": b"\x80\x06N.",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_one_error(name: str) -> None:
    with pytest.raises(InputError) as caught:
        _pickle.load(ATTACKS[name], "evil.pickle")
    assert "evil.pickle" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["old global", "persistent id", "memo bomb", "deep tuples", "doubling tuple as key", "cut"]
)
def test_attacks_in_large_documents_only_end_the_reader(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pickle, "_TIME_LIMIT_S", 5)
    with pytest.raises(InputError):
        _pickle.load(padded(ATTACKS[name]), "evil.pickle")


def test_a_document_that_holds_itself_is_read() -> None:
    value = _pickle.load(b"\x80\x02]q\x00h\x00a.", "x")
    assert value[0] is value


def test_size_cap_and_source(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_bytes(pickle.dumps(DATA, 2 + 2))
    assert _pickle.read(Source(str(path))) == DATA
    with pytest.raises(InputError, match="more than"):
        _pickle.read(Source(str(path)), max_bytes=10)
