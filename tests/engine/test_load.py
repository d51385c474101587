"""Rule files: what is refused, and whether the message says which file and what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose import engine
from diagnose.engine import load
from diagnose.errors import RuleError, UsageError

HEADER = """
title = "Too slow"
severity = "warning"
needs = ["spans"]
summary = "{lost_ns}"
why = "w"
fix = "f"
quiet_when = "q"
sources = ["https://example.org"]
[params]
min_share_ratio = { default = 0.5, doc = "a guess, to be fitted" }
"""
SQL = "SELECT dur_ns AS lost_ns FROM spans WHERE dur_ns > $min_share_ratio"


def write(
    folder: Path, header: str = HEADER, sql: str = SQL, name: str = "too-slow", symptom: str = "low_speedup"
) -> Path:
    path = folder / symptom / f"{name}.sql"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"/*{header}*/\n{sql}\n")
    return path


def test_a_rule_is_named_after_its_file_and_its_folder(tmp_path: Path) -> None:
    rule = load.load(write(tmp_path))

    assert (rule.id, rule.symptom, rule.severity, rule.decides) == ("too-slow", "low_speedup", "warning", False)
    assert rule.params["min_share_ratio"]["default"] == 0.5


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "Too slow"', 'titel = "Too slow"', "did you mean 'title'"),
        ('why = "w"', "", 'add why = "..."'),
        ('severity = "warning"', 'severity = "bad"', "use one of info, warning, critical"),
        ('needs = ["spans"]', 'needs = "spans"', "needs must be a list"),
        ('needs = ["spans"]', "needs = []", "needs must be a list"),
        ('fix = "f"', 'fix = "f"\ndecides = 1', "decides must be a bool"),
        ('fix = "f"', 'fix = "f"\nneeds_values = ["kernels.dur_ns"]', "the table listed in needs"),
        ('fix = "f"', "fix = f", "the header is not TOML"),
        (', doc = "a guess, to be fitted"', "", "doc ="),
        ('"a guess, to be fitted"', '""', "has no doc"),
        ("default = 0.5", "default = [1]", "a number, a text or a boolean"),
    ],
)
def test_a_bad_header_names_the_file_and_the_way_out(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in HEADER
    path = write(tmp_path, HEADER.replace(old, new))

    with pytest.raises(RuleError) as error:
        load.load(path)

    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC 1", "syntax error"),
        ("", "found nothing"),
        ("SELECT 1; SELECT 2", "found SELECT, SELECT"),
        ("COPY (SELECT 1) TO 'x'", "found COPY"),
        ("CREATE TABLE t(a INT)", "found CREATE"),
        ("SELECT 1 AS lost_ns", "$min_share_ratio is not used"),
        (SQL + " AND dur_ns > $min_share_rato + $min_share_ratio", "did you mean 'min_share_ratio'"),
    ],
)
def test_only_one_select_with_its_parameters(tmp_path: Path, sql: str, words: str) -> None:
    with pytest.raises(RuleError, match="low_speedup") as error:
        load.load(write(tmp_path, sql=sql))

    assert words in str(error.value)


def test_files_in_the_wrong_place(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="is no symptom"):
        load.load(write(tmp_path, symptom="slow"))
    with pytest.raises(RuleError, match="lower-case words"):
        load.load(write(tmp_path, name="Too_Slow"))


def test_a_file_without_header_or_of_another_encoding(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(SQL)
    with pytest.raises(RuleError, match="begin the file with"):
        load.load(path)
    path.write_bytes(b"/* \xff */ SELECT 1")
    with pytest.raises(RuleError, match="save it as UTF-8"):
        load.load(path)


def test_folders_that_hold_no_rule(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        engine.load_rules([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match="holds no rule"):
        engine.load_rules([tmp_path])


def test_an_id_is_replaced_only_on_purpose(tmp_path: Path) -> None:
    write(tmp_path / "ours")
    write(tmp_path / "theirs", HEADER.replace("Too slow", "Mine"))
    with pytest.raises(RuleError, match="overrides = true"):
        engine.load_rules([tmp_path / "ours", tmp_path / "theirs"])

    write(tmp_path / "theirs", HEADER.replace('title = "Too slow"', 'title = "Mine"\noverrides = true'))
    (rule,) = engine.load_rules([tmp_path / "ours", tmp_path / "theirs"])

    assert rule.title == "Mine"
