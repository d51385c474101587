"""Sources: every byte that can be read is read, whatever wraps it, and what was wrong with the wrapping is said."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import random
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from diagnose import pipeline
from diagnose.errors import InputError
from diagnose.ingest import Source, golden_values, pairs
from diagnose.ingest._compression import decompressed
from diagnose.ingest._encoding import encoding_of, to_utf8

TEXT = b'{"traceEvents": [{"name": "aten::mm", "ts": 1}]}' * 40


def source(tmp_path: Path, content: bytes, name: str = "trace.json") -> Source:
    path = tmp_path / name
    path.write_bytes(content)
    return Source(str(path), size_bytes=len(content))


def everything(document: Source, size: int = 1 << 20) -> bytes:
    return b"".join(document.chunks(size))


def problems(document: Source) -> list[str]:
    return [row["problem"] for row in document.quality]


def member(data: bytes, extra: bytes = b"", name: bytes = b"", comment: bytes = b"", crc: bool = False) -> bytes:
    """One gzip member with the optional header fields of RFC 1952."""
    flags = (4 if extra else 0) | (8 if name else 0) | (16 if comment else 0) | (2 if crc else 0)
    header = struct.pack("<2sBBIBB", b"\x1f\x8b", 8, flags, 0, 0, 255)
    header += struct.pack("<H", len(extra)) + extra if extra else b""
    header += (name + b"\0" if name else b"") + (comment + b"\0" if comment else b"")
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF) if crc else b""
    body = zlib.compressobj(6, zlib.DEFLATED, -15)
    return header + body.compress(data) + body.flush() + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


members = st.builds(
    member,
    st.binary(max_size=300) | st.builds(lambda b, n: b * n, st.binary(min_size=1, max_size=40), st.integers(1, 400)),
    extra=st.binary(max_size=20),
    name=st.sampled_from([b"", b"rank0.json"]),
    comment=st.sampled_from([b"", b"pigz"]),
    crc=st.booleans(),
)


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def gunzip(data: bytes, size: int) -> tuple[bytes, list[tuple[str, int | None, str]]]:
    notes: list[tuple[str, int | None, str]] = []
    out = decompressed("gzip", lambda: iter(in_pieces(data, size)), lambda *note: notes.append(note))
    return b"".join(out), notes


def zlib_reads(data: bytes) -> bytes:
    """Brute force: what zlib gives of a gzip stream fed byte by byte, until it fails."""
    out, inflate = bytearray(), zlib.decompressobj(31)
    for at in range(len(data)):
        if inflate.eof:
            if data[at] == 0:
                continue
            inflate = zlib.decompressobj(31)
        try:
            out += inflate.decompress(data[at : at + 1])
        except zlib.error:
            break
    return bytes(out)


@given(st.lists(members, min_size=1, max_size=4), st.integers(0, 40), st.integers(1, 2000))
def test_gzip_members_in_any_layout(parts: list[bytes], padding: int, size: int) -> None:
    data = b"".join(parts) + b"\0" * padding
    assert gunzip(data, size) == (gzip.decompress(data), [])


@given(st.lists(members, min_size=1, max_size=3), st.data(), st.integers(1, 500))
def test_cut_gzip_gives_everything_before_the_cut(parts: list[bytes], data: st.DataObject, size: int) -> None:
    whole = b"".join(parts)
    ends = {sum(map(len, parts[:n])) for n in range(len(parts) + 1)}
    cut = data.draw(st.integers(3, len(whole) - 1))
    out, notes = gunzip(whole[:cut], size)
    assert out == zlib_reads(whole[:cut])
    assert [note[0] for note in notes] == ([] if cut in ends else ["damaged_compression"])
    if notes:
        assert notes[0][1] == len(out)


@given(st.lists(members, min_size=1, max_size=2), st.data(), st.integers(1, 500))
def test_damaged_gzip_never_loses_what_zlib_can_read(parts: list[bytes], data: st.DataObject, size: int) -> None:
    whole = bytearray(b"".join(parts))
    at = data.draw(st.integers(10, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    out, notes = gunzip(bytes(whole), size)
    reference = zlib_reads(bytes(whole))
    assert out.startswith(reference[: len(out)]) and len(out) >= len(reference) - 8
    if out != gzip.decompress(b"".join(parts)):
        assert [note[0] for note in notes] == ["damaged_compression"]


def test_what_follows_a_gzip_stream_is_said() -> None:
    out, notes = gunzip(gzip.compress(b"abc") + b"trailing words", 7)
    assert out == b"abc"
    assert notes[0][0] == "damaged_compression" and "not gzip" in notes[0][2]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trace.json", TEXT),
        ("trace.json.gz", gzip.compress(TEXT, mtime=0)),
        ("trace.json.bz2", bz2.compress(TEXT[:500]) + bz2.compress(TEXT[500:])),
        ("trace.json.xz", lzma.compress(TEXT)),
        ("trace.json.zst", pa.compress(TEXT, "zstd", asbytes=True)),
        ("trace.json.zst", pa.compress(TEXT[:99], "zstd", asbytes=True) + pa.compress(TEXT[99:], "zstd", asbytes=True)),
        ("trace.json.gz", gzip.compress(gzip.compress(TEXT, mtime=0), mtime=0)),
    ],
)
@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_every_compression(tmp_path: Path, name: str, content: bytes, size: int) -> None:
    document = source(tmp_path, content, name)
    assert document.head(10) == TEXT[:10]
    assert everything(document, size) == TEXT
    assert everything(document) == TEXT  # a second pass starts again
    assert document.quality == []


@pytest.mark.parametrize(
    ("name", "content"), [("t.json.gz", TEXT), ("t.json", gzip.compress(TEXT, mtime=0)), ("t.gz", bz2.compress(TEXT))]
)
def test_a_name_that_promises_another_compression(tmp_path: Path, name: str, content: bytes) -> None:
    document = source(tmp_path, content, name)
    assert everything(document) == TEXT
    assert problems(document) == ["misnamed_compression"]


@pytest.mark.parametrize("name", ["e.json", "e.json.gz"])
def test_an_empty_file_is_empty_and_not_misnamed(tmp_path: Path, name: str) -> None:
    document = source(tmp_path, b"", name)
    assert document.head() == b"" and everything(document) == b"" and document.quality == []


def test_damage_has_its_byte_offset_once(tmp_path: Path) -> None:
    whole = gzip.compress(bytes(range(256)) * 4000, mtime=0)
    document = source(tmp_path, whole[:-3000], "t.json.gz")
    first = everything(document)
    assert everything(document) == first and 0 < len(first) < 256 * 4000
    assert [(r["problem"], r["byte_offset"]) for r in document.quality] == [("damaged_compression", len(first))]


def test_progress_sums_to_the_bytes_on_disk(tmp_path: Path) -> None:
    document = source(tmp_path, gzip.compress(TEXT, mtime=0), "t.json.gz")
    steps: list[int] = []
    document.progress = steps.append
    everything(document)
    assert sum(steps) == document.size_bytes


ENCODINGS = ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le"]


@given(st.text(max_size=400), st.sampled_from(ENCODINGS), st.integers(1, 64))
@example("a real \ufffd is valid text", "utf-16-le", 1)
def test_marked_text_of_any_encoding(text: str, encoding: str, size: int) -> None:
    text = text.replace("\0", "")
    notes: list[tuple[str, int | None, str]] = []
    data = ("\ufeff" + text).encode(encoding)
    assert b"".join(to_utf8(iter(in_pieces(data, size)), lambda *note: notes.append(note))).decode() == text
    assert [note[0] for note in notes] == ["byte_order_mark", *(["utf16"] if encoding != "utf-8" else [])]


@given(st.sampled_from(ENCODINGS[:3]), st.integers(1, 64), st.text(st.characters(exclude_categories=["C"]), max_size=8))
def test_unmarked_text(encoding: str, size: int, name: str) -> None:
    text = '{"schemaVersion": 1, "deviceProperties": [], "traceName": "' + name.replace("\0", "") + '"}'
    assert encoding_of(text.encode(encoding)) == (encoding, 0)
    assert b"".join(to_utf8(iter(in_pieces(text.encode(encoding), size)), lambda *_: None)).decode() == text


@pytest.mark.parametrize(
    "binary", [bytes(64), b"\x80\x04\x95\0\0\0\0\0\0\0}", struct.pack("<8q", *range(8)), b"\0\x01" * 50, b"{"]
)
def test_binary_is_not_taken_for_utf16(binary: bytes) -> None:
    assert encoding_of(binary) == ("utf-8", 0)


def test_half_a_utf16_character_is_replaced_and_said(tmp_path: Path) -> None:
    document = source(tmp_path, '{"a": "\U0001f600"}'.encode("utf-16")[:-7])
    assert everything(document).decode() == '{"a": "�'
    assert problems(document) == ["byte_order_mark", "utf16", "invalid_utf8"]
    assert document.quality[-1]["byte_offset"] == 7


def test_travels_to_another_process(tmp_path: Path) -> None:
    document = source(tmp_path, gzip.compress(TEXT, mtime=0), "t.json.gz")
    document.head()
    again = pickle.loads(pickle.dumps(document))
    assert (again.label, again.size_bytes, everything(again)) == (document.label, document.size_bytes, TEXT)


def test_unreadable_files_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        Source(str(tmp_path / "gone.json")).head()


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        (pairs, "pairs.csv", "a,b,bw_gbs\nhost1,host2,12.5\n"),
        (golden_values, "golden.json", '{"loss": {"start_step": 1, "step_interval": 1, "values": {"1": 2.0}}}'),
    ],
)
def test_what_is_larger_than_its_reader_holds_is_refused_and_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert pipeline.read([str(path)])["files"]["status"].to_pylist() == ["ok"]

    monkeypatch.setattr(module, "_MAX_BYTES", len(text) - 1)

    refused = pipeline.read([str(path)])["files"].to_pylist()[0]
    assert refused["status"] == "unusable" and "more than" in refused["detail"]


def test_a_bomb_is_streamed(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(64 << 20), 9)
    document = source(tmp_path, b"".join([gzip.compress(b"{"), bomb]), "t.json.gz")
    assert len(document.head(1000)) == 1000
    assert max(len(chunk) for chunk in document.chunks(1 << 20)) <= 16 << 20


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            item = tarfile.TarInfo(name)
            item.size = len(content)
            archive.addfile(item, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


FILES = {
    "run/rank0.json": TEXT,
    "run/rank1.json.gz": gzip.compress(TEXT[:-48]),
    "run/rank10.json": b"{}",
    "run/rank2.json": b"[]",
}
ARCHIVES = {
    "a.tar": tar_of(FILES),
    "a.tar.gz": tar_of(FILES, "w:gz"),
    "a.tgz": tar_of(FILES, "w:gz"),
    "a.tar.xz": tar_of(FILES, "w:xz"),
    "a.zip": zip_of(FILES),
    "misnamed.json": tar_of(FILES, "w:gz"),
    "outer.tar": tar_of({"inner.tar.gz": tar_of(FILES, "w:gz")}),
    "outer.zip": zip_of({"inner.tar": tar_of(FILES)}),
}


@pytest.mark.parametrize("name", ARCHIVES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8, deadline=None)
@given(order=st.permutations(range(4)), look_first=st.booleans())
def test_archive_members_in_any_order(tmp_path: Path, name: str, order: list[int], look_first: bool) -> None:
    from diagnose.ingest import expand

    path = tmp_path / name
    path.write_bytes(ARCHIVES[name])
    documents, unusable = expand([str(path)])
    assert unusable == []
    found = {d.name: d for d in documents}
    expected = {"rank0.json": TEXT, "rank1.json.gz": TEXT[:-48], "rank10.json": b"{}", "rank2.json": b"[]"}
    assert found.keys() == expected.keys()
    for at in order:
        key = list(expected)[at]
        document = pickle.loads(pickle.dumps(found[key]))
        if look_first:
            assert document.head() == expected[key]
        assert everything(document, 64) == expected[key]
        assert document.label.startswith(f"{path}!") and document.label.endswith(f"run/{key}")


def test_a_cut_archive_gives_what_it_still_holds(tmp_path: Path) -> None:
    from diagnose.ingest import expand

    noise = random.Random(0).randbytes(60_000)
    path = tmp_path / "a.tar.gz"
    path.write_bytes(tar_of({"rank0.json": noise, "rank1.json": noise}, "w:gz")[:90_000])
    documents, unusable = expand([str(path)])
    assert [d.name for d in documents] == ["rank0.json", "rank1.json"]
    assert "damaged_compression" in [row["problem"] for row in unusable]
    assert everything(documents[0]) == noise
    rest = everything(documents[1])
    assert noise.startswith(rest) and 0 < len(rest) < len(noise)
    assert "truncated" in problems(documents[1])
