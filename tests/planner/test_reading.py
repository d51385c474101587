"""job.toml: what is nonsense is one clear line, what is missing is assumed aloud."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.errors import UsageError
from diagnose.planner import Job, predict, why_illegal

JOBS = sorted((Path(__file__).parents[2] / "docs" / "jobs").glob("*.toml"))
MODEL = {"layers": 32, "hidden": 4096, "heads": 32}


def job(**tables: Any) -> Job:
    return Job.from_dict({"model": MODEL, **tables})


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"model": {**MODEL, "layers": 0}}, "model.layers = 0"),
        ({"model": {**MODEL, "heads": 7}}, "7 heads do not divide hidden 4096"),
        ({"model": {"hidden": 4096, "heads": 32}}, "model.layers is missing"),
        ({"model": {**MODEL, "kv_heads": 5}}, "32 heads are not a multiple of 5 kv_heads"),
        ({"model": {**MODEL, "experts": 8, "topk": 9}}, "topk 9 of 8 experts"),
        ({"model": {**MODEL, "attention": "mla"}}, "kv_lora"),
        ({"model": {**MODEL, "attention": "linear"}}, "model.attention = 'linear'"),
        ({"layout": {"tp": 8}, "cluster": {"gpus": 10}}, "10 GPUs are not a multiple of tp*cp*pp = 8"),
        ({"layout": {"tp": 8, "pp": 8, "dp": 8}, "cluster": {"nodes": 512}}, "512 is not the 4096 GPUs"),
        ({"layout": {"dp": 3}, "train": {"global_batch": 32}, "cluster": {"gpus": 3}}, "global_batch 32"),
        ({"cluster": {"gpu": "Voodoo2"}}, "cluster.gpu = 'Voodoo2' is not known"),
        ({"train": {"zero": 4}}, "train.zero = 4"),
        ({"train": {"precision": "int3"}}, "train.precision = 'int3'"),
        ({"train": {"micro_batch": -1}}, "train.micro_batch = -1"),
        ({"train": {"recompute": "everything"}}, "recompute names everything"),
        ({"trian": {}}, "[trian] is not a table"),
        ({"train": {"mirco_batch": 1}}, "train.mirco_batch is not known"),
        ({"layout": {"schedule": "2f2b"}}, "layout.schedule = '2f2b'"),
        ({"model": 3}, "expected a table"),
        ({"layout": {"tp": "8"}}, "layout.tp = '8'; expected a whole number"),
        ({"train": {"micro_batch": 1.5}}, "train.micro_batch = 1.5; expected a whole number"),
        ({"layout": {"sp": 1}}, "layout.sp = 1; expected true or false"),
        ({"cluster": {"inter_bytes_per_s": float("nan")}}, "inter_bytes_per_s = nan"),
        ({"search": {"allowed_tp": [0, 2]}}, "degrees start at 1"),
        ({"search": {"allowed_tp": 4}}, "expected a list of counts"),
    ],
)
def test_nonsense_is_one_line_that_names_it(tables: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(**tables)
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_seven_heads_on_tp_four_is_refused_with_the_figures() -> None:
    odd = job(model={"layers": 4, "hidden": 448, "heads": 7}, layout={"tp": 4}, cluster={"gpus": 4})
    assert "7 heads are not a multiple of TP 4" in why_illegal(odd)


def test_what_is_not_given_is_listed() -> None:
    assumed = " ".join(job(cluster={"gpus": 8}).assumed)
    for name in ("model.seq_len", "model.ffn", "train.micro_batch", "train.global_batch", "cluster.gpu", "dp = 8"):
        assert name in assumed
    full = job(model={**MODEL, "seq_len": 2048, "vocab": 32000, "ffn": 11008}, cluster={"gpus": 8, "gpu": "A100"})
    assert "model.seq_len" not in " ".join(full.assumed)


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_example_jobs_are_legal_and_not_out_of_memory(path: Path) -> None:
    example = Job.from_dict(tomllib.loads(path.read_text()))
    assert why_illegal(example) == []
    assert predict(example).fits is not False


def test_device_names_as_runtimes_print_them() -> None:
    for name, part in {
        "NVIDIA H100 80GB HBM3": "H100-80GB",
        "NVIDIA A100-SXM4-40GB": "A100-40GB",
        "NVIDIA A100 80GB PCIe": "A100-PCIE",
        "gb200": "GB200-186GB",
        "H200": "H200-141GB",
    }.items():
        from diagnose.planner.devices import find_device

        device = find_device(name)
        assert device is not None
        assert device.name == part


SCRAPS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.floats(allow_nan=True),
    st.text(max_size=3),
    st.lists(st.integers(-1, 3), max_size=2),
)


@given(
    table=st.sampled_from(["model", "train", "layout", "cluster", "search"]),
    key=st.sampled_from(
        [
            "layers",
            "heads",
            "seq_len",
            "experts",
            "micro_batch",
            "zero",
            "recompute",
            "tp",
            "dp",
            "stage_layers",
            "nodes",
            "precision",
            "attention",
            "gpu",
            "gpus",
        ]
    ),
    value=SCRAPS,
)
def test_whatever_stands_in_a_key_is_a_job_or_one_line(table: str, key: str, value: Any) -> None:
    tables: dict[str, Any] = {"model": dict(MODEL)}
    tables[table] = tables.get(table, {}) | {key: value}
    try:
        found = Job.from_dict(tables)
    except UsageError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert predict(found).step_s > 0 or why_illegal(found)
