"""Known answers of public traces, and of recordings of our own (folder `recordings` beside the corpus)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from diagnose import ingest
from tests.analyses.drawn import MS, analysed, parts_ms

NANOGPT = (
    "modded-nanogpt/records/track_1_short/2025-10-31_AdamSyncGradientHook/"
    "modded-nanogpt-{}-gpu-rank-00-chrome-trace.json.gz"
)
RESNET = "kineto/tb_plugin/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz"
DLRM = "param/et_replay/tests/inputs/dlrm_kineto.tar.gz"


@cache
def of(path: Path):
    if not path.exists():
        pytest.skip(f"{path} is not there")
    sources, _ = ingest.expand([str(path)])
    tables = ingest.merge([ingest.read(source) for source in sources])
    return analysed(tables["events"], **{name: table for name, table in tables.items() if name != "events"})


@pytest.mark.parametrize(("variant", "exposed", "busy", "comm"), [
    ("current", 17.19, 299.1, 23.86), ("hook", 15.73, 295.9, 23.75),
])  # fmt: skip
def test_nanogpt_exposed_communication(corpus, variant, exposed, busy, comm):
    result = of(corpus / NANOGPT.format(variant))
    parts = parts_ms(result["window_time"])
    assert parts["other_comm"] == pytest.approx(exposed, rel=0.005)
    assert parts["compute"] + parts["other_comm"] == pytest.approx(busy, rel=0.005)
    rows = result["collectives"]
    assert sum(rows["dur_ns"].to_pylist()) / MS == pytest.approx(comm, rel=0.005)
    assert sum(rows["exposed_ns"].to_pylist()) / MS == pytest.approx(exposed, rel=0.005)
    assert rows.num_rows == 76 and rows["evidence"].to_pylist().count("kernel_args") == 56


def test_nanogpt_steps_run_behind_their_marks(corpus):
    result = of(corpus / NANOGPT.format("current"))
    steps = result["steps"].to_pylist()
    assert [s["step"] for s in steps] == [10, 11, 12, 13]
    assert [round(s["dur_ns"] / MS, 1) for s in steps] == [59.5, 62.4, 59.6, 62.5]
    first_work = min(result["kernels"]["ts_ns"].to_pylist())
    assert (steps[0]["ts_ns"] - first_work) / MS == pytest.approx(62.4, abs=0.05)
    assert "unclassified" not in result["kernels"]["class"].to_pylist()


def test_resnet_opens_each_step_with_a_loader_stall(corpus):
    result = of(corpus / RESNET)
    steps = {s["step"]: s for s in result["steps"].to_pylist()}
    assert sorted(steps) == [5, 6, 7, 8, 9, 10]
    for number, step in steps.items():
        mine = [r for r in result["idle"].to_pylist() if r["step"] == number and r["cause"] == "input"]
        stall = sum(r["dur_ns"] for r in mine)
        assert min(r["ts_ns"] for r in mine) - step["ts_ns"] < 1 * MS, "the stall opens the step"
        # The loader takes 63 to 74 ms of the host; what is left of older work on the device hides its beginning.
        behind = max(0, step["ts_ns"] - step["host_ts_ns"])
        assert 60 * MS <= stall + behind <= 75 * MS


@pytest.mark.parametrize(("folder", "compute", "exposed"), [("tp_w2", 66.7, 87.7), ("moe_w4", 14.6, 50.4)])
def test_waiting_inside_an_operator_is_not_computing(corpus, folder, compute, exposed):
    """Gloo on the CPU: operators without the collectives inside them compute; the rest of gloo's work is exposed."""
    parts = parts_ms(of(corpus.parent / "recordings" / folder / "trace_rank0.json.gz")["window_time"])
    assert parts["compute"] == pytest.approx(compute, rel=0.05)
    assert parts["other_comm"] == pytest.approx(exposed, rel=0.05)


def test_dlrm_ranks(corpus):
    """8 x V100, no collective arguments: five exchanges, three reductions a rank; the late rank has the short ones."""
    rows = of(corpus / DLRM)["collectives"].to_pandas()
    total = rows.groupby("rank")["dur_ns"].sum() / MS
    assert (
        rows.groupby("rank")["op"].apply(lambda o: sorted(o.astype(str))).tolist()
        == [["all_reduce"] * 3 + ["all_to_all"] * 5] * 8
    )
    assert total.idxmin() == 7 and total[7] == pytest.approx(1.75, abs=0.01)
    assert total.drop(7).between(3.45, 11.4).all()
    share = rows.groupby("rank")["exposed_ns"].sum() / rows.groupby("rank")["dur_ns"].sum()
    assert share.between(0.9, 0.995).all()


@pytest.mark.parametrize("path", [
    "hta/tests/data/timeline_analysis/sampled_rank-0.json.gz",
    "tracelens/tests/traces/mi300/resnet_act_checkpoint.json.gz",
    "hta/tests/data/nccl_parser_config/nccl_data.json.gz",
])  # fmt: skip
def test_exposed_communication_agrees_with_a_sweep(corpus, path):
    """A grid of 1 us, filled kernel by kernel, against the partition."""
    result = of(corpus / path)
    rows = result["kernels"].to_pandas()
    low, grid_ns = int(rows["ts_ns"].min()), 1_000
    high = int((rows["ts_ns"] + rows["recorded_ns"]).max())
    cells = {kind: np.zeros((high - low) // grid_ns + 1, bool) for kind in ("compute", "comm")}
    for kind, start, length in zip(rows["class"], rows["ts_ns"], rows["recorded_ns"], strict=True):
        if kind in cells:
            cells[kind][(start - low) // grid_ns : (start + length - low) // grid_ns] = True
    exposed = int((cells["comm"] & ~cells["compute"]).sum()) * grid_ns
    assert parts_ms(result["window_time"])["other_comm"] == pytest.approx(exposed / MS, rel=0.005)
