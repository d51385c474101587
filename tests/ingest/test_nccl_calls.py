"""Calls of an NCCL log by the places of their words say what the pattern says, whatever stands between."""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.ingest.text import _nccl_lines as like
from diagnose.ingest.text import nccl
from diagnose.ingest.text._lines import _lines
from diagnose.ingest.text._nccl_calls import calls

PATTERN = re.compile(like.CALL)
_TAIL = "count {n} datatype {t} op 0 root -1 comm {c} [nranks={s}] stream 0x1"
OLD = "{op}: opCount {seq} sendbuff {a} recvbuff {b} " + _TAIL
NEW = "{op}: opCount {seq} sendbuff {a} recvbuff {b} acc (nil) " + _TAIL

values = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["AllReduce", "AllGather", "Send", "SomethingThatIsQuiteLong_ButAWord", "Odd-Name"]),
        "seq": st.one_of(st.integers(0, 1 << 50).map(lambda v: f"{v:x}"), st.sampled_from(["", "xyz", "f" * 20])),
        "a": st.sampled_from(["0x7f00", "0x7fffffffffff"]),
        "b": st.sampled_from(["0x7f01", "(nil)"]),
        "n": st.one_of(st.integers(0, 10**18 - 1).map(str), st.sampled_from(["-5", "9" * 25, "12.5"])),
        "t": st.sampled_from(["0", "7", "9999", "99999"]),
        "c": st.sampled_from(["0x55aa", "0x55bb", "(nil)", "é" * 4, "c" * 70]),
        "s": st.sampled_from(["1", "64", "999999999", "9999999999", "x"]),
    }
)
line = st.one_of(
    st.tuples(st.sampled_from([NEW, OLD]), values).map(lambda pair: pair[0].format(**pair[1])),
    st.sampled_from(["", "AllReduce: opCount 1", "Trees [0] 1/-1/-1->0->-1", "a  b   c"]),
)


@given(st.lists(line, max_size=12), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_places_and_pattern_agree(lines: list[str], skipped: int) -> None:
    found = calls(pa.array(["lead"] * skipped + lines, pa.string()).slice(skipped))  # an array with an offset

    for i, text in enumerate(lines):
        match = PATTERN.match(text)
        if not found.known[i]:
            continue  # left to the pattern
        assert match is not None, text
        said = {name: getattr(found, name)[i] for name in ("seq", "elements", "type", "size")}
        assert {name: int(value) for name, value in said.items()} == {
            "seq": int(match["count_hex"], 16),
            "elements": int(match["elements"]),
            "type": int(match["type"]),
            "size": int(match["size"]),
        }
        assert (found.op[i].as_py(), found.comm[i].as_py()) == (match["op"], match["comm"])


def test_lines_that_look_alike_are_read_together() -> None:
    given_ = {"op": "AllReduce", "a": "0x1", "b": "0x2", "n": "4096", "t": "7", "c": "0x5", "s": "8"}
    lines = [NEW.format(seq=f"{i:x}", **given_) for i in range(50)] + [OLD.format(seq="3", **given_)]
    assert calls(pa.array(lines, pa.string())).known.all()


def test_a_pattern_reads_what_places_do_not() -> None:
    """A first line with a word too many must not hide the rest."""
    good = NEW.format(op="AllReduce", seq="1f", a="0x1", b="0x2", n="5", t="7", c="0x5", s="2")
    odd = good.replace("opCount", "opcount", 1)  # as many words, another name
    reader = nccl.Reader()
    text = "".join(f"h:1:2 [0] NCCL INFO {message}\n" for message in (odd, good, good))
    assert reader.feed(_lines(text.encode(), 1)[0]) == 3
    (part,) = reader.calls
    assert part["seq"].to_pylist() == [31, 31] and part["group"].cast(pa.string()).to_pylist() == ["h:1:0x5"] * 2
