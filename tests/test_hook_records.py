"""The layout of the live hook's records: what is written is read, what is damaged is never read as something else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose import hook_records as layout

HEADER = layout.header({"rank": 3, "world_size": 8})
BODY = b"".join(layout.pack(n, [n * 10 + i for i in range(len(layout.FIELDS))]) for n in range(1, 9))


def test_what_is_packed_is_decoded() -> None:
    found = layout.decode(layout.parse_header(HEADER), BODY)

    assert found.seq.tolist() == list(range(1, 9))
    assert found.values["step"].tolist() == [n * 10 for n in range(1, 9)]
    assert found.torn_count == 0


@given(place=st.integers(0, len(BODY) - 1), bit=st.integers(0, 7))
def test_one_flipped_bit_costs_one_record(place: int, bit: int) -> None:
    damaged = bytearray(BODY)
    damaged[place] ^= 1 << bit

    found = layout.decode(layout.parse_header(HEADER), bytes(damaged))

    assert (len(found.seq), found.torn_count) == (7, 1)


@given(size=st.integers(0, len(BODY)))
def test_a_cut_file_keeps_its_whole_records(size: int) -> None:
    found = layout.decode(layout.parse_header(HEADER), BODY[:size])

    assert len(found.seq) == size // layout.SLOT.size


@given(st.binary(max_size=3 * layout.SLOT.size))
def test_noise_is_no_record(noise: bytes) -> None:
    assert len(layout.decode(layout.parse_header(HEADER), noise).seq) == 0


def test_extreme_values_survive() -> None:
    values = [random.Random(5).randrange(-(1 << 63), 1 << 63) for _ in layout.FIELDS]

    found = layout.decode(layout.parse_header(HEADER), layout.pack((1 << 62) + 1, values))

    assert [int(found.values[f.name][0]) for f in layout.FIELDS] == values


def test_a_reader_finds_fields_of_another_version_by_name() -> None:
    """A later writer may have other fields: the header names its own."""
    text = HEADER.replace(b'"input_time_ns"', b'"other_time_ns"')

    found = layout.decode(layout.parse_header(text), BODY)

    assert "other_time_ns" in found.values
    assert "input_time_ns" not in found.values


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"", "no header"),
        (b"PK\x03\x04" + bytes(5000), "no header"),
        (HEADER[:100], "cut inside its header"),
        (HEADER[:8] + b"\xff\x00\x00\x00" + HEADER[12:], "version 255"),
        (HEADER[:12] + b"\xff\xff\xff\xff" + HEADER[16:], "contradict"),
        (HEADER[:20] + b"\xff\xff\xff\x7f" + HEADER[24:], "contradict"),
        (HEADER.replace(b'"fields"', b'"fiends"'), "does not parse"),
        (HEADER.replace(b'"step"', b'"stop"'), "name its fields"),
        (HEADER.replace(b'{"writer":{', b'{"writer":[').replace(b'"world_size":8}', b'"world_size":8]'), "parse"),
    ],
)
def test_a_bad_header_is_one_line(head: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        layout.parse_header(head)

    assert "\n" not in str(caught.value)


def test_every_field_is_documented_and_has_a_unit_or_counts() -> None:
    for field in layout.FIELDS:
        plain = ("step", "profiler_step", "flags")
        assert field.doc
        assert field.name in plain or field.name.endswith(("_ns", "_bytes", "_count"))
