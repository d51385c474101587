"""Details of real traces: work, utilisation, recomputation, synchronises, attribution. Needs the corpus."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnose import pipeline
from diagnose.analyses.recompute import recompute

CHECKPOINTED = "tracelens/tests/traces/mi300/resnet_act_checkpoint.json.gz"
FLOPS_EXAMPLE = "ncompass/examples/flops_example/test_files/test_trace.pt.trace.json"
NANOGPT = (
    "modded-nanogpt/records/track_1_short/2025-10-31_AdamSyncGradientHook/"
    "modded-nanogpt-current-gpu-rank-00-chrome-trace.json.gz"
)
ORDINARY = [
    FLOPS_EXAMPLE,
    NANOGPT,
    "hta/tests/data/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "hta/tests/data/nccl_parser_config/nccl_data.json.gz",
    "hta/tests/data/timeline_analysis/sampled_rank-0.json.gz",
    "kineto/tb_plugin/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "switch-transformers/result/trace_100Kpar_4exp_8batch_128seq_1024.json",
    "tracelens/tests/traces/mi300/ddp_resnet18_no_pool/train_resnet18.json.gz",
]


@pytest.fixture(scope="module")
def derived(corpus):
    """All tables of a trace of the corpus; each is read once."""
    known = {}

    def get(path):
        if path not in known:
            if not (corpus / path).exists():
                pytest.skip(f"the corpus lacks {path}")
            known[path] = pipeline.derive(pipeline.read([str(corpus / path)]))
        return known[path]

    return get


@pytest.mark.parametrize("frames", [True, False])
def test_checkpointing_is_found_with_and_without_stacks(derived, frames):
    tables = derived(CHECKPOINTED)
    events = tables["events"]
    if not frames:
        events = events.filter(pc.not_equal(events["kind"].cast(pa.string()), "python"))

    rows = recompute(tables["kernels"], events, tables["op_args"], tables["steps"]).to_pylist()

    assert [(row["step"], row["kernels_count"]) for row in rows] == [(15, 197), (16, 197), (17, 197)]
    assert {row["evidence"] for row in rows} == {"checkpoint_frame" if frames else "forward_op_in_backward"}
    for row in rows:  # all blocks but stem and head are done again: most of the forward, not more than it
        assert 0.6 * row["forward_ns"] < row["busy_ns"] < row["forward_ns"]


@pytest.mark.parametrize("path", ORDINARY)
def test_nothing_is_recomputed_elsewhere(derived, path):
    assert derived(path)["recompute"].num_rows == 0


def test_work_of_a_small_network(derived):
    tables = derived(FLOPS_EXAMPLE)
    (row,) = tables["mfu"].to_pylist()

    # 10 iterations of 784-512-512-10 with batch 128; the first layer needs no gradient of its input
    layers = 784 * 512 + 512 * 512 + 512 * 10
    assert row["work_flop"] == 10 * 2 * 128 * (3 * layers - 784 * 512)
    assert tables["gemms"].num_rows == 80
    assert set(tables["gemms"]["dtype"].to_pylist()) == {"float32"}  # SIMT kernels, not TF32
    assert 0.002 < row["mfu_ratio"] < 0.006


def test_utilisation_with_two_formats(derived):
    tables = derived(NANOGPT)
    rows = tables["mfu"].to_pylist()

    assert [row["step"] for row in rows] == [10, 11, 12, 13]
    for row in rows:
        assert row["work_flop"] == pytest.approx(2.2512e13, rel=1e-3)
        assert 0.29 < row["mfu_ratio"] < 0.33
        assert "float8" in row["peak_source"]
        assert 989e12 < row["peak_flop_per_s"] < 1979e12
    ratios = [r for r in tables["gemms"]["efficiency_ratio"].to_pylist() if r is not None]
    assert len(ratios) == tables["gemms"].num_rows == 728
    assert 0 < min(ratios) < max(ratios) < 0.8  # the best that is measured on this device is 0.8 of its peak


def test_phases_fill_the_steps_of_a_compiled_network(derived):
    rows = derived(NANOGPT)["phases"].to_pylist()

    assert {row["phase"] for row in rows} == {"forward", "backward", "optimizer"}
    for step in (10, 11, 12, 13):
        busy = {row["phase"]: row["busy_ns"] for row in rows if row["step"] == step}
        assert 1.7 < busy["backward"] / busy["forward"] < 2


def test_item_in_every_iteration(derived):
    rows = derived(FLOPS_EXAMPLE)["syncs"].to_pylist()

    items = [row for row in rows if row["op"] == "aten::item"]
    assert len(items) == 12  # ten iterations, two after the loop
    assert {row["source"] for row in items} == {"simplenet.py(34): train_simple_network"}
    assert all(100_000 < row["idle_ns"] < 250_000 for row in items[:10])


@pytest.mark.parametrize("path", [CHECKPOINTED, NANOGPT])
def test_the_profilers_own_last_synchronise_costs_nothing(derived, path):
    last = derived(path)["syncs"].to_pylist()[-1]

    assert last["name"] in ("cudaDeviceSynchronize", "hipDeviceSynchronize")
    assert last["idle_ns"] == 0


def test_backward_kernels_know_the_module_of_their_forward(derived):
    kernels = derived(FLOPS_EXAMPLE)["kernels"]
    backward = kernels.filter(pc.equal(kernels["phase"].cast(pa.string()), "backward"))

    assert {"Linear_0", "Linear_1", "Linear_2"} <= set(backward["module"].to_pylist())
    assert backward["source"].null_count == 0


def test_no_shapes_no_figure(derived):
    rows = derived("hta/tests/data/df_index_resolver/df_index_resolver.json.gz")["mfu"].to_pylist()

    assert [row["mfu_ratio"] for row in rows] == [None] * 5
    assert all("record_shapes" in row["reason"] for row in rows)
