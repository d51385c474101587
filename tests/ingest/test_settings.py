"""KEY=VALUE text and job.toml as settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose import schema
from diagnose.ingest import Source, job_toml, read, settings_text
from diagnose.schema import INGESTED, Tables


def load(tmp_path: Path, text: str, name: str) -> Tables:
    (tmp_path / name).write_text(text)
    tables = read(Source(str(tmp_path / name)))
    for table, found in tables.items():
        schema.check(table, found, INGESTED[table])
    return tables


def pairs(tables: Tables) -> dict[str, str]:
    return dict(zip(tables["settings"]["key"].to_pylist(), tables["settings"]["value"].to_pylist(), strict=True))


def test_an_environment(tmp_path: Path) -> None:
    text = (
        "CUDA_DEVICE_MAX_CONNECTIONS=1\n# a comment\n\nexport NCCL_ALGO=Ring\ndeclare -x A=\"b c\"\nENV X='y'\n"
        "set W=1\nEMPTY=\nURL=http://h:1/?a=b\nRANK=3\nTOKENIZERS_PARALLELISM=false\n"
    )
    tables = load(tmp_path, text, "env.txt")
    assert pairs(tables) == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_ALGO": "Ring", "A": "b c", "X": "y", "W": "1", "EMPTY": "",
        "URL": "http://h:1/?a=b", "RANK": "3", "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip
    assert set(tables["settings"]["rank"].to_pylist()) == {3} and tables["quality"].num_rows == 0


def test_secrets_are_named_and_not_kept(tmp_path: Path) -> None:
    keys = ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "DB_PASSWORD", "WANDB_API_KEY", "GITHUB_TOKEN"]
    tables = load(tmp_path, "".join(f"{key}=s3cr3t\n" for key in keys), "env")
    assert pairs(tables) == dict.fromkeys(keys, "(hidden)")


def test_lines_that_are_no_assignment_are_counted(tmp_path: Path) -> None:
    tables = load(tmp_path, "A=1\nB=2\nC=3\nD=4\n  rest of a value\n", "env")
    assert pairs(tables) == {"A": "1", "B": "2", "C": "3", "D": "4"}
    assert [(r["problem"], r["count"]) for r in tables["quality"].to_pylist()] == [("unreadable_line", 1)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "a = b\n",
        "A=1\nprose\n",
        '{"A": "B"}',
        "x=1 is what\nwe found\n",
        "<a b=c>",
        "# only\n# comments\n",
    ],
)
def test_what_is_no_environment(text: str) -> None:
    assert not settings_text.sniff(text.encode(), "notes.txt")


def test_job_toml(tmp_path: Path) -> None:
    text = "[layout]\ntp = 8\nstage_layers = [16, 16]\nsp = true\n"
    text += '[train]\nprecision = "bf16"\n[search]\nallowed_tp = [1, 2]\n'
    tables = load(tmp_path, text, "any-name.txt")
    assert pairs(tables) == {
        "layout.tp": "8", "layout.stage_layers": "[16, 16]", "layout.sp": "true",
        "train.precision": "bf16", "search.allowed_tp": "[1, 2]",
    }  # fmt: skip
    assert tables["quality"].num_rows == 0 and tables["files"]["kind"].to_pylist() == ["job"]


def test_unknown_keys_are_kept_said_and_explained(tmp_path: Path) -> None:
    tables = load(tmp_path, "[layout]\ntensor = 8\n[train]\nmicro_bach = 1\n[zoo]\nx = 1\n", "job.toml")
    assert pairs(tables) == {"layout.tensor": "8", "train.micro_bach": "1", "zoo.x": "1"}
    (note,) = tables["quality"].to_pylist()
    assert (note["problem"], note["count"]) == ("unknown_setting", 3)
    assert "train.micro_bach (meant train.micro_batch?)" in note["detail"] and "zoo.x" in note["detail"]


def test_wrong_toml_is_one_line_with_its_place(tmp_path: Path) -> None:
    tables = load(tmp_path, "[layout]\ntp = \n", "job.toml")
    detail = tables["files"]["detail"][0].as_py()
    assert tables["files"]["status"].to_pylist() == ["unusable"] and "line 2" in detail and "\n" not in detail


def test_other_text_is_no_job() -> None:
    assert not job_toml.sniff(b"A=1\n", "env.txt") and not job_toml.sniff(b'{"model": 1}', "job.toml")
    assert not job_toml.sniff(b"[INFO] model\n", "log.txt") and not job_toml.sniff(b"", "job.toml")


def test_every_key_of_the_contract_is_known() -> None:
    assert {section: len(names) for section, names in job_toml.KEYS.items()} == {
        "model": 20, "train": 21, "layout": 14, "cluster": 11, "search": 4,
    }  # fmt: skip
