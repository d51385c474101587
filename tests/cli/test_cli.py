"""The command line as a user meets it: exit codes, one-line errors, outputs, and nothing overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "fixtures" / "modded_nanogpt_h100" / "trace.json.gz"


def run(*args: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "diagnose", *map(str, args)],
        check=False, capture_output=True, text=True, cwd=cwd, env={**os.environ, "COLUMNS": "80", **environment},
    )  # fmt: skip


def one_line(text: str) -> bool:
    return len(text.strip().splitlines()) == 1 and "Traceback" not in text


def test_run_writes_the_report_folder_and_a_screen(tmp_path: Path) -> None:
    done = run("run", TRACE, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) <= 24
    assert sorted(p.name for p in (tmp_path / "diagnose-report").iterdir()) == ["diagnosis.json", "report.html"]
    assert json.loads((tmp_path / "diagnose-report" / "diagnosis.json").read_text())["schema_version"] == 1


def test_a_second_run_replaces_our_report(tmp_path: Path) -> None:
    assert run("run", TRACE, "-o", "out", "-q", cwd=tmp_path).returncode == 0
    assert run("run", TRACE, "-o", "out", "-q", cwd=tmp_path).returncode == 0


def test_another_tools_report_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.html").write_text("<html>mine</html>")

    done = run("run", TRACE, "-o", "out", cwd=tmp_path)

    assert (tmp_path / "out" / "report.html").read_text() == "<html>mine</html>"
    assert "report of another tool" in done.stderr
    assert done.stdout.strip(), "the summary still comes"


def test_an_unwritable_folder_is_one_line_and_the_summary_still_comes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = run("run", TRACE, "-o", "file/out", cwd=tmp_path)

    assert one_line(done.stderr)
    assert done.stdout.strip()
    assert done.returncode == 2, "a place the user named: a script must notice"


def test_json_to_stdout_is_pure_json(tmp_path: Path) -> None:
    done = run("run", TRACE, "--json", "-", "-q", cwd=tmp_path)

    assert json.loads(done.stdout)["tool"]["name"] == "diagnose"
    assert not (tmp_path / "diagnose-report").exists()


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    done = run("run", TRACE, "-q", cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "nowhere.json"], "nowhere.json"),
        (["run", "TRACE", "--steps", "5:3"], "--steps"),
        (["run", "TRACE", "--ranks", "a"], "--ranks"),
        (["run", "TRACE", "--ranks", "0-99999999999"], "--ranks"),
        (["run", "TRACE", "--ranks", "77"], "hold rank 0"),
        (["run", "TRACE", "--steps", "100:200"], "hold steps 10-13"),
        (["run", "TRACE", "--json", "x", "--html", "./x"], "of its own"),
        (["run", "TRACE", "--html", "-"], "--html -"),
        (["run", "TRACE", "--set", "comm-share"], "RULE.PARAM=VALUE"),
        (["run", "TRACE", "--set", "no-such-rule.x=1"], "no-such-rule"),
        (["run", "TRACE", "--rules", "nowhere"], "nowhere"),
        (["rules", "no-such-rule"], "no-such-rule"),
        (["rules", "check", "nowhere"], "nowhere"),
        (["query", "TRACE", "SELECT nothing FROM nowhere"], "nowhere"),
        (["query", "TRACE", "COPY files TO 'stolen.csv'"], ""),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(arguments: list[str], expected: str, tmp_path: Path) -> None:
    done = run(*(str(TRACE) if a == "TRACE" else a for a in arguments), cwd=tmp_path)

    assert done.returncode == 2
    assert one_line(done.stderr), done.stderr
    assert expected in done.stderr


def test_nothing_usable_exits_2_with_one_line_per_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("")
    (tmp_path / "b.json").write_text("{}")

    done = run("run", "a.json", "b.json", cwd=tmp_path)

    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 2
    assert "a.json" in done.stderr
    assert "b.json" in done.stderr


def test_strict_exits_3_when_a_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")

    assert run("run", TRACE, "bad.json", "-q", cwd=tmp_path).returncode == 0
    assert run("run", TRACE, "bad.json", "-q", "--strict", cwd=tmp_path).returncode == 3


def test_no_colour_codes_without_a_terminal(tmp_path: Path) -> None:
    done = run("run", TRACE, cwd=tmp_path, NO_COLOR="1", TERM="xterm-256color")

    assert "\x1b" not in done.stdout


def test_works_in_the_c_locale(tmp_path: Path) -> None:
    named = tmp_path / "trace é轨.json.gz"
    named.write_bytes(TRACE.read_bytes())

    done = run("run", named, cwd=tmp_path, LANG="C", LC_ALL="C", PYTHONUTF8="0")

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["table", "csv", "json", "parquet"])
def test_query_formats(kind: str, tmp_path: Path) -> None:
    sql = "SELECT part, sum(dur_ns)::BIGINT AS dur_ns FROM step_time GROUP BY part ORDER BY part"

    done = run("query", TRACE, sql, "--format", kind, "-o", "result", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "result").stat().st_size > 0


def test_query_without_sql_lists_tables(tmp_path: Path) -> None:
    done = run("query", TRACE, cwd=tmp_path)

    assert "step_time" in done.stdout


def test_lint_says_what_was_repaired_and_where(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text(
        '{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2},{"ph":'
    )

    done = run("lint", "cut.json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "partial" in done.stdout
    assert "truncated" in done.stdout
    assert "at byte" in done.stdout


def test_rules_lists_and_explains(tmp_path: Path) -> None:
    listed = run("rules", cwd=tmp_path)
    explained = run("rules", "comm-share", cwd=tmp_path)
    checked = run("rules", "check", ROOT / "rules", cwd=tmp_path)

    assert "comm-share" in listed.stdout
    assert "fix" in explained.stdout.lower()
    assert checked.returncode == 0, checked.stderr


def test_fail_on_turns_findings_into_exit_1(tmp_path: Path) -> None:
    found = json.loads(run("run", TRACE, "--json", "-", "-q", cwd=tmp_path).stdout)["findings"]
    severe = {f["severity"] for f in found}

    assert run("run", TRACE, "-q", "--fail-on", "warning", cwd=tmp_path).returncode == int(
        bool(severe & {"warning", "critical"})
    )


def test_version_and_help_are_there(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).stdout.startswith("diagnose ")
    assert "run" in run("--help", cwd=tmp_path).stdout
    heavy = "import sys; import diagnose.cli; print([m for m in ('duckdb', 'pyarrow', 'numpy') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", heavy], check=True, capture_output=True, text=True)

    assert loaded.stdout.strip() == "[]", "--help must not pay for Arrow and DuckDB"


def test_query_derives_only_what_the_sql_reads() -> None:
    from diagnose import engine, pipeline
    from diagnose.schema import INGESTED

    empty = {name: table.empty() for name, table in INGESTED.items()}

    named = engine.tables_named("SELECT 1 FROM steps JOIN (SELECT * FROM files) USING (rank)")
    derived = set(pipeline.derive(empty, wanted=named)) - set(empty)

    assert named == {"steps", "files"}
    assert derived == {"steps"}
    assert engine.tables_named("SHOW TABLES") is None
