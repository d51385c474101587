"""From paths to sources: order, globs, folders, archives, buckets; every path that gives nothing is said."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from diagnose.ingest import Source, expand
from diagnose.ingest._places import natural_order


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


def names(sources: list[Source]) -> list[str]:
    return [source.name for source in sources]


def test_a_folder_in_natural_order_without_hidden_files(tmp_path: Path) -> None:
    touch(
        tmp_path, "rank10.json", "rank2.json", "rank0.json", ".DS_Store", ".git/config", "sub/rank1.json", "sub2/a.json"
    )
    sources, unusable = expand([str(tmp_path)])
    assert names(sources) == ["rank0.json", "rank2.json", "rank10.json", "rank1.json", "a.json"]
    assert unusable == []


def test_natural_order_of_mixed_names() -> None:
    given = ["b", "a10", "a9", "10", "9", "a", "a9b"]
    assert sorted(given, key=natural_order) == ["9", "10", "a", "a9", "a9b", "a10", "b"]


def test_a_file_reached_twice_is_one_source(tmp_path: Path) -> None:
    touch(tmp_path, "a.json", "b.json")
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    (tmp_path / "loop").symlink_to(tmp_path)
    sources, _ = expand([str(tmp_path / "a.json"), str(tmp_path), str(tmp_path / "*.json")])
    assert names(sources) == ["a.json", "b.json"]


def test_globs_and_names_that_look_like_globs(tmp_path: Path) -> None:
    touch(tmp_path, "run/x1.json", "run/deep/x2.json", "run/[odd].json")
    assert names(expand([str(tmp_path / "run" / "x?.json")])[0]) == ["x1.json"]
    assert names(expand([str(tmp_path / "**" / "x*.json")])[0]) == ["x2.json", "x1.json"]
    assert names(expand([str(tmp_path / "run" / "[odd].json")])[0]) == ["[odd].json"]
    assert names(expand([str(tmp_path / "r*")])[0]) == ["[odd].json", "x1.json", "x2.json"]


def test_paths_that_give_nothing_are_said_and_the_rest_is_read(tmp_path: Path) -> None:
    touch(tmp_path, "a.json")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04 and then nothing of a zip")
    paths = [str(tmp_path / name) for name in ("gone.json", "no*match", "empty", "bad.zip", "a.json")]
    sources, unusable = expand(paths)
    assert names(sources) == ["a.json"]
    assert [(row["problem"], row["path"]) for row in unusable] == [("unusable", path) for path in paths[:4]]
    for row in unusable:
        assert "\n" not in row["detail"] and "found" in row["detail"] and "expected" in row["detail"]


def test_our_own_report_is_not_an_input(tmp_path: Path) -> None:
    touch(tmp_path, "a.json", "diagnose-report/report.html", "diagnose-report/diagnosis.json", "other/report.html")
    assert names(expand([str(tmp_path)])[0]) == ["a.json", "report.html"]


def test_a_zip_that_is_one_document_is_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}.")
        archive.writestr("model/data/0", b"\0" * 8)
    assert names(expand([str(tmp_path)])[0]) == ["model.pt"]


def test_an_object_store_through_arrow(tmp_path: Path) -> None:
    touch(tmp_path, "run/rank10.json", "run/rank2.json", "run/x.txt")
    address = tmp_path.as_uri()
    assert names(expand([f"{address}/run/rank2.json"])[0]) == ["rank2.json"]
    sources, unusable = expand([f"{address}/run"])
    assert names(sources) == ["rank2.json", "rank10.json", "x.txt"] and unusable == []
    assert b"".join(sources[0].chunks()) == b"{}" and sources[0].label == f"{address}/run/rank2.json"
    assert names(expand([f"{address}/run/rank*.json"])[0]) == ["rank2.json", "rank10.json"]
    assert expand([f"{address}/nothing/*.json"])[1][0]["problem"] == "unusable"


@pytest.mark.parametrize("address", ["nosuch://bucket/a.json", "s3://", "gs://"])
def test_an_unusable_address_is_one_line(address: str) -> None:
    sources, unusable = expand([address])
    assert sources == [] and len(unusable) == 1
    assert "\n" not in unusable[0]["detail"] and unusable[0]["detail"].startswith("found ")


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_names_of_any_script_in_any_locale(tmp_path: Path, locale: str) -> None:
    folder = tmp_path / "轨迹 été"
    touch(folder, "rank0 (копия).json", "<b>rank1&.json")
    (folder / os.fsdecode(b"rank2 \xff\xfe.json")).write_text("{}")
    code = (
        "import sys, pyarrow; from diagnose.ingest import expand; s, u = expand(sys.argv[1:]); assert not u;"
        "assert all(b''.join(x.chunks()) == b'{}' for x in s); pyarrow.array([x.label for x in s]);"
        "sys.stdout.buffer.write('|'.join(x.name for x in s).encode())"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONUTF8"))} | {
        "LC_ALL": locale
    }
    command = [sys.executable, "-c", code, str(tmp_path)]
    shown = subprocess.run(command, env=environment, check=True, capture_output=True).stdout.decode()
    assert sorted(shown.split("|")) == ["<b>rank1&.json", "rank0 (копия).json", "rank2 ��.json"]


def test_a_row_does_not_repeat_the_path_that_stands_beside_it(tmp_path: Path) -> None:
    _, rows = expand([str(tmp_path / "absent")])
    assert rows[0]["path"] == str(tmp_path / "absent")
    assert rows[0]["detail"].startswith("found nothing there; expected ")


def test_a_folder_that_cannot_be_entered_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "a.json").write_text("{}")
    ask = Path.stat

    def refuse(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if self == closed:
            raise PermissionError(13, "Permission denied")
        return ask(self, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", refuse)
    assert [s.name for s in expand([str(tmp_path)])[0]] == ["a.json"]
