"""The search: only legal layouts that fit, constraints honoured, refusals with reasons, quick."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.planner import Job, search, why_illegal, why_too_large
from diagnose.planner.feasibility import warnings_of
from diagnose.planner.search import changes, enumerate_jobs
from diagnose.planner.written import plan_dict

LLAMA_8B = {
    **{"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256, "seq_len": 8192},
}


def job(gpus: int = 64, model: dict[str, Any] = LLAMA_8B, **tables: Any) -> Job:
    train = {"micro_batch": 1, "global_batch": 256} | tables.pop("train", {})
    cluster = {"gpus": gpus, "gpu": "H100-80GB"}
    return Job.from_dict({"model": dict(model), "train": train, "cluster": cluster, **tables})


def test_candidates_are_legal_fit_and_keep_the_batch_and_the_gpus() -> None:
    result = search(job(layout={"tp": 8}), top=8)
    assert len(result.candidates) == 8
    for each in result.candidates:
        found = each.prediction.job
        assert why_illegal(found) == []
        assert why_too_large(found) is None
        assert found.layout.world_size == 64
        assert found.train.global_batch == 256
        assert each.speedup_low_ratio < each.speedup_ratio < each.speedup_high_ratio
    speeds = [each.speedup_ratio for each in result.candidates]
    assert speeds == sorted(speeds, reverse=True)


def test_allowed_degrees_are_honoured() -> None:
    narrow = job(layout={"tp": 8}, search={"allowed_tp": [2, 8], "allowed_pp": [1, 2], "allowed_micro_batch": [1]})
    for trial in enumerate_jobs(narrow):
        assert trial.layout.tp in (2, 8)
        assert trial.layout.pp in (1, 2)
        assert trial.train.micro_batch == 1


def test_gpus_and_most_gpus() -> None:
    assert all(trial.layout.world_size == 32 for trial in enumerate_jobs(job(search={"gpus": 32})))
    assert all(trial.layout.world_size == 16 for trial in enumerate_jobs(job(search={"max_gpus": 16})))


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "deepspeed", "fsdp"])
def test_a_framework_is_never_asked_for_what_it_refuses(framework: str) -> None:
    for each in search(job(train={"zero": 3}, search={"framework": framework})).candidates:
        found = each.prediction.job
        if framework in ("deepspeed", "megatron"):
            assert not (found.train.zero >= 2 and found.layout.pp > 1)
        if framework == "fsdp":
            assert found.layout.tp == found.layout.pp == found.layout.cp == 1
        if framework == "deepspeed":
            assert found.layout.cp == found.layout.vpp == 1


def test_deepspeed_refuses_zero_2_and_3_with_a_pipeline() -> None:
    for zero in (2, 3):
        both = job(layout={"pp": 2}, train={"zero": zero}, search={"framework": "deepspeed"})
        assert f"DeepSpeed refuses ZeRO-{zero} with a pipeline" in why_illegal(both)


def test_tensor_parallel_stays_in_the_fast_domain_unless_the_job_already_leaves_it() -> None:
    assert all(trial.layout.tp <= 8 for trial in enumerate_jobs(job(layout={"tp": 8})))
    wide = job(layout={"tp": 16}, model={**LLAMA_8B, "kv_heads": 32})
    assert "leaves the fast domain" in " ".join(warnings_of(wide))


def test_experts_divide_and_fold() -> None:
    model = {**LLAMA_8B, "experts": 60, "topk": 4, "expert_ffn": 2048}
    assert any("60 experts" in reason for reason in why_illegal(job(model=model, layout={"ep": 8})))
    assert "EP 4 without experts" in why_illegal(job(layout={"ep": 4}))
    assert any(
        trial.layout.ep == 4 and trial.layout.world_size == 64 for trial in enumerate_jobs(job(model=model, layout={}))
    )


def test_refusals_are_counted_with_their_reason() -> None:
    giant = {**LLAMA_8B, "layers": 96, "hidden": 16384, "heads": 128, "ffn": 53248}
    result = search(job(8, giant))
    assert result.candidates == ()
    assert any(reason.startswith("needs") for reason, _ in result.refused)
    assert sum(count for _, count in result.refused) == result.tried_count


def test_one_change_at_a_time_has_its_own_list() -> None:
    base = job(layout={"tp": 4, "pp": 2})
    near = search(base).one_change
    assert near
    for each in near:
        assert len(changes(base, each.prediction.job)) == 1


def test_the_plan_says_why_and_what_would_prove_it_wrong() -> None:
    plan = plan_dict(search(job(layout={"tp": 8}), top=2))
    first = plan["candidates"][0]
    assert first["why"]
    assert first["trades"]
    assert first["refutation"].startswith("wrong if")
    assert set(first["flags"]) == {"megatron", "torchtitan", "deepspeed"}
    assert plan["steps"][0]["question"].startswith("Do parameters")
    assert len(plan["steps"]) == 5
    parts = plan["current"]["parts"]
    assert sum(part["dur_ns"] for part in parts) == pytest.approx(plan["current"]["step_ns"], abs=len(parts))
