"""How the job's mixture of experts is set up, as settings, router records and process groups tell it: one row.

Empty where nothing says that the job has experts. A null is unknown. `dropless`: no token is dropped, whatever the load
(no capacity factor); `padded`: experts' inputs are filled up to their capacity, so counts and bytes look even whatever
the router does; `forced`: the router is overruled to balance (a benchmark), so its load says nothing about training.
Where sources differ, job.toml counts before printed settings, settings before records.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnose.analyses._columns import dictionary
from diagnose.formulas.moe import ELEMENT_BYTES
from diagnose.schema import BOOL, FLOAT, INT32, INT64, LABEL, TEXT, table
from diagnose.schema.moe import SETTING_NAMES

SCHEMA = table(
    "job with a mixture of experts (none or one)",
    ("evidence", TEXT, "what says that it has experts"),
    ("experts_count", INT64, "experts of a layer"),
    ("topk", INT32, "experts per token"),
    ("ep_size", INT32, "expert-parallel degree"),
    ("etp_size", INT32, "ranks that share each expert (expert tensor parallelism)"),
    ("tp_size", INT32, "tensor-parallel degree of the rest"),
    ("hidden", INT64, "width of a token"),
    ("tokens_count", INT64, "tokens of a rank and micro-batch, from the batch and the layout"),
    ("capacity_factor", FLOAT, "room per expert over an even share; null where dropless or unknown"),
    ("dropless", BOOL, "true: no capacity; false: there is one; null: unknown"),
    ("padded", BOOL, "inputs of experts are padded to their capacity"),
    ("balancing", LABEL, "kind of balancing as named: aux_loss, seq_aux_loss, sinkhorn, none, ..."),
    ("aux_loss_coeff", FLOAT, "coefficient of the balancing loss"),
    ("expert_bias", BOOL, "biases of experts are adjusted to balance (no loss)"),
    ("forced", BOOL, "the router is overruled to an even load"),
    ("dispatcher", LABEL, "how tokens travel, as named: alltoall, allgather, flex, deepep, ..."),
    ("groups_count", INT32, "groups of experts that routing is limited by; null: no limit, or unknown"),
    ("group_limit", INT32, "groups (nodes) a token may go to; null: no limit, or unknown"),
    ("dispatch_element_width", FLOAT, "bytes per element on the way to the experts, where given"),
    ("combine_element_width", FLOAT, "bytes per element on the way back, where given"),
)
_EXPERT_KERNEL = re.compile(r"(?i)grouped_?(?:gemm|mm)|(?<![a-z])moe|expert|topk_gating|group_gemm")
"""Kernels that only mixtures of experts run."""
_OFF = ("none", "null", "false", "", "no", "0")
_SCALE_BYTES_PER_ELEMENT = 4 / 128
"""8-bit dispatch carries a float32 scale per tile of 128 elements."""


def moe_setup(
    settings: pa.Table | None = None,
    router_calls: pa.Table | None = None,
    groups: pa.Table | None = None,
    calls_on_device: pa.Table | None = None,
    kernels: pa.Table | None = None,
) -> pa.Table:
    """One row where there is evidence of experts, else none."""
    given = _given(settings)
    evidence = _evidence(given, router_calls, groups, calls_on_device, kernels)
    if not evidence:
        return SCHEMA.empty()
    capacity = _capacity(given, router_calls)
    width = {d: _element_bytes(given.get(f"train.{d}_dtype")) for d in ("dispatch", "combine")}
    row = {
        "evidence": "; ".join(evidence),
        "experts_count": _first(given, "model.experts", "moe.experts") or _only(router_calls, "experts_count"),
        "topk": _first(given, "model.topk", "moe.topk") or _only(router_calls, "topk"),
        "ep_size": _first(given, "layout.ep") or _only(router_calls, "ep_size") or _group_size(groups, "ep"),
        "etp_size": _first(given, "layout.etp"),
        "tp_size": _first(given, "layout.tp") or _group_size(groups, "tp"),
        "hidden": _first(given, "model.hidden"),
        "tokens_count": _tokens(given),
        **capacity,
        "padded": _flag(given.get("moe.pad_to_capacity")),
        "balancing": given.get("moe.balancing"),
        "aux_loss_coeff": _number(given.get("moe.aux_loss_coeff")),
        "expert_bias": _bias(given),
        "forced": _flag(given.get("moe.force_balance")),
        "dispatcher": "deepep" if _flag(given.get("moe.deepep")) else given.get("moe.dispatcher"),
        "groups_count": _first(given, "moe.router_groups"),
        "group_limit": _first(given, "moe.router_group_topk"),
        "dispatch_element_width": width["dispatch"],
        "combine_element_width": width["combine"],
    }
    return SCHEMA.build({name: pa.array([row[name]], _plain(SCHEMA.arrow.field(name).type)) for name in row})


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind


def _given(settings: pa.Table | None) -> dict[str, str]:
    """Settings by key; of several the one from a job.toml, else the first."""
    found: dict[str, str] = {}
    rows = [] if settings is None else settings.to_pylist()
    for row in sorted(rows, key=lambda r: not str(r["source"] or "").endswith(".toml")):
        if row["key"] and row["value"] is not None:
            last = row["key"].rpartition(".")[2]
            key = f"moe.{SETTING_NAMES[last]}" if last in SETTING_NAMES else row["key"]
            found.setdefault(key, str(row["value"]).strip())
    return found


def _evidence(
    given: dict[str, str],
    records: pa.Table | None,
    groups: pa.Table | None,
    calls: pa.Table | None,
    kernels: pa.Table | None,
) -> list[str]:
    found = []
    experts = _first(given, "model.experts", "moe.experts")
    if experts is not None and experts > 1:
        found.append(f"settings name {experts} experts")
    if records is not None and records.num_rows:
        found.append("router records")
    named = [] if kernels is None else [n for n in dictionary(kernels["name"]) if _EXPERT_KERNEL.search(n)]
    size = _group_size(groups, "ep", said=not named)
    if size is not None and size > 1:
        found.append(f"an expert-parallel group of {size} ranks")
    if calls is not None and calls.num_rows:
        named = pc.is_in(calls["op"].cast(pa.string()), pa.array(["dispatch", "combine"]))
        if pc.any(named).as_py():
            found.append("kernels of an expert-parallel library")
    return found


def _capacity(given: dict[str, str], records: pa.Table | None) -> dict[str, Any]:
    """capacity_factor and dropless."""
    routing, printed = given.get("train.routing", "").lower(), given.get("moe.capacity_factor")
    factor = _number(given.get("model.capacity_factor"))
    if factor is None and printed is not None:
        factor = _number(printed)
    if factor is not None and factor > 0:
        return {"capacity_factor": factor, "dropless": False}
    if routing == "dropless" or (printed is not None and printed.lower() in _OFF):
        return {"capacity_factor": None, "dropless": True}
    if _flag(given.get("moe.drop_tokens")) is False:
        return {"capacity_factor": None, "dropless": True}
    if records is not None and records.num_rows:
        recorded = set(records["capacity_factor"].drop_null().to_pylist())
        if recorded:
            return {"capacity_factor": recorded.pop() if len(recorded) == 1 else None, "dropless": False}
        if not records["dropless"].null_count:
            return {"capacity_factor": None, "dropless": True}
    return {"capacity_factor": None, "dropless": False if routing == "capacity" else None}


def _bias(given: dict[str, str]) -> bool | None:
    """Whether biases balance: said, or a rate of their update is the only balancing (torchtitan)."""
    said = _flag(given.get("moe.expert_bias"))
    rate = _number(given.get("moe.bias_update_rate"))
    if said is None and rate is not None and "moe.balancing" not in given:
        return rate > 0
    return said


def _tokens(given: dict[str, str]) -> int | None:
    """Tokens of a rank and micro-batch: sequence parallelism divides them, which expert parallelism needs."""
    batch, length = _first(given, "train.micro_batch"), _first(given, "model.seq_len")
    if batch is None or length is None:
        return None
    shared = (_first(given, "layout.cp") or 1) * (
        1 if _flag(given.get("layout.sp")) is False else _first(given, "layout.tp") or 1
    )
    return batch * length // shared


def _element_bytes(dtype: str | None) -> float | None:
    width = ELEMENT_BYTES.get((dtype or "").strip().lower().removeprefix("torch."))
    if width is None:
        return None
    return width + _SCALE_BYTES_PER_ELEMENT if (dtype or "").lower() in ("fp8", "float8") else width


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _first(given: dict[str, str], *keys: str) -> int | None:
    for key in keys:
        value = _number(given.get(key))
        if value is not None and value == int(value) and value > 0:
            return int(value)
    return None


def _flag(text: str | None) -> bool | None:
    return None if text is None else text.lower() not in _OFF


def _only(records: pa.Table | None, column: str) -> int | None:
    """The value that all records share."""
    values = set() if records is None else set(records[column].drop_null().to_pylist())
    return values.pop() if len(values) == 1 else None


def _group_size(groups: pa.Table | None, dim: str, *, said: bool = False) -> int | None:
    """The one size of groups of a dimension; `said`: without those whose dimension only traffic tells.

    Embeddings of recommenders are exchanged in uneven all-to-alls, too.
    """
    rows = [] if groups is None else groups.select(["dim", "dim_source", "size"]).to_pylist()
    told = [row for row in rows if not said or row["dim_source"] != "inferred"]
    sizes = {row["size"] for row in told if row["dim"] == dim and row["size"]}
    return sizes.pop() if len(sizes) == 1 else None
