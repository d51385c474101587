"""`job.toml` -> Job: types, ranges, defaults, and the identities that make a layout possible at all.

One line per nonsense: the first problem found is raised as UsageError with the way out. What was not given is either
computed (dp from the world size, head_dim from hidden/heads) or a default, and then named in `Job.assumed`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from diagnose.planner.devices import device_names, find_device
from diagnose.planner.job import Cluster, Job, Layout, Model, Search, Train, nonsense

_T = TypeVar("_T")

SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb1p", "zbv", "dualpipe")
FRAMEWORKS = ("megatron", "torchtitan", "deepspeed", "nanotron", "fsdp")
CHOICES = {
    "model.attention": ("flash", "full", "mla"),
    "train.grad_dtype": ("fp32", "bf16", "fp16"),
    "train.optimizer": ("adam", "adamw", "sgd", "adam8bit", "muon"),
    "train.routing": ("dropless", "capacity"),
    "train.attention_kernel": ("", "unfused", "flash1", "flash2", "flash3", "cudnn"),
    "train.fusion": ("none", "norms", "all"),
    "train.loss": ("", "fused", "torch", "parallel"),
    "train.dispatcher": ("", "alltoall"),
    "train.gather_dtype": ("bf16", "fp16", "fp8"),
    "train.graph_scope": ("all", "dense"),
    "layout.schedule": SCHEDULES,
    "search.framework": FRAMEWORKS,
}
PRECISIONS = {"fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "mxfp8": 8, "nvfp4": 4, "mxfp4": 4}
MODULES = {
    "none",
    "selective",
    "full",
    "core_attn",
    "mlp",
    "moe",
    "moe_act",
    "layernorm",
    "mla_up_proj",
    "every_other_product",
}
TABLES = {"model": Model, "train": Train, "layout": Layout, "cluster": Cluster, "search": Search}
EXTRA_KEYS = {"cluster": {"nodes"}, "search": set()}
MAY_BE_ZERO = {
    *(
        [
            "experts",
            "topk",
            "expert_ffn",
            "shared_ffn",
            "dense_layers",
            "capacity_factor",
            "q_lora",
            "kv_lora",
            "rope_dim",
            "kv_heads",
            "head_dim",
        ]
    ),
    *(["zero", "shard_group", "offload_ratio", "gpus", "max_gpus", "racks", "intra_latency_ns", "inter_latency_ns"]),
}


def read_job(tables: Mapping[str, Any]) -> Job:
    """Job from nested mappings; see the module. UsageError on the first nonsense."""
    for name, keys in tables.items():
        _known(name, keys)
    assumed: list[str] = []
    given = {name: dict(tables.get(name, {})) for name in TABLES}
    for name, keys in given.items():
        for key, value in keys.items():
            _sane(f"{name}.{key}", key, value)
    model = _model(given["model"], assumed)
    cluster_gpus = _gpus(given["cluster"], given["layout"])
    layout = _layout(given["layout"], cluster_gpus, assumed)
    cluster = _cluster(given["cluster"], cluster_gpus or layout.world_size, assumed)
    train = _train(given["train"], layout, assumed)
    return Job(model, train, layout, cluster, _search(given["search"]), tuple(assumed))


def _known(name: str, keys: Any) -> None:
    if name not in TABLES:
        raise nonsense(f"[{name}] is not a table of job.toml", f"known: {', '.join(TABLES)}")
    if not isinstance(keys, Mapping):
        raise nonsense(f"{name} is {type(keys).__name__}", f"expected a table [{name}]")
    fields = {field.name for field in dataclasses.fields(TABLES[name])} - {"allowed"} | EXTRA_KEYS.get(name, set())
    for key in keys:
        if key not in fields and not (name == "search" and key.startswith("allowed_")):
            raise nonsense(f"{name}.{key} is not known", f"keys of [{name}]: {', '.join(sorted(fields))}")


def _sane(where: str, key: str, value: Any) -> None:
    if where in CHOICES:
        if value not in CHOICES[where]:
            raise nonsense(f"{where} = {value!r}", f"expected one of {', '.join(c for c in CHOICES[where] if c)}")
    elif where == "train.precision":
        if not isinstance(value, str) or value not in PRECISIONS:
            raise nonsense(f"{where} = {value!r}", f"expected one of {', '.join(PRECISIONS)}")
    elif where == "train.zero" and value not in (0, 1, 2, 3):
        raise nonsense(f"{where} = {value!r}", "ZeRO stages are 0, 1, 2 and 3")
    else:
        _typed(where, key, value)


def _typed(where: str, key: str, value: Any) -> None:
    """The type that the field wants, and a number above zero where zero means nothing."""
    table = where.split(".", maxsplit=1)[0]
    if key in ("stage_layers", "recompute") or key.startswith("allowed_"):
        _listed(where, key, value)
        return
    fields = {field.name: str(field.type) for field in dataclasses.fields(TABLES[table])}
    wanted = fields.get(key, "int")
    kinds = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}[wanted]
    if not isinstance(value, kinds) or (isinstance(value, bool) and wanted != "bool"):
        names = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
        raise nonsense(f"{where} = {value!r}", f"expected {names[wanted]}")
    if wanted in ("int", "float"):
        amount = float(value)
        if not 0 <= amount < float("inf") or (amount == 0 and key not in MAY_BE_ZERO):
            raise nonsense(f"{where} = {value}", "it must be above zero")


def _listed(where: str, key: str, value: Any) -> None:
    """A list of counts, or of module names for recompute (which may also be one name)."""
    kind = str if key == "recompute" else int
    if key == "recompute" and isinstance(value, str):
        return
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(each, kind) for each in value):
        raise nonsense(f"{where} = {value!r}", f"expected a list of {'names' if kind is str else 'counts'}")
    if kind is int and min(value) < (1 if key.startswith("allowed_") and key != "allowed_zero" else 0):
        raise nonsense(f"{where} = {value!r}", "degrees start at 1")


def _need(table: Mapping[str, Any], where: str, key: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise nonsense(f"{where}.{key} is missing" if value is None else f"{where}.{key} = {value!r}", "give a count")
    return value


def _model(given: dict[str, Any], assumed: list[str]) -> Model:
    layers, hidden, heads = (_need(given, "model", key) for key in ("layers", "hidden", "heads"))
    _fill(given, assumed, "model", "seq_len", 4096)
    _fill(given, assumed, "model", "vocab", 128256)
    given.setdefault("kv_heads", heads)
    if not given.get("head_dim"):
        if hidden % heads:
            raise nonsense(f"{heads} heads do not divide hidden {hidden}", "give model.head_dim")
        given["head_dim"] = hidden // heads
    if heads % given["kv_heads"]:
        raise nonsense(f"{heads} heads are not a multiple of {given['kv_heads']} kv_heads", "correct one of them")
    gated = given.setdefault("gated", True)
    if (
        "ffn" not in given
    ):  # 4h for two matrices; 8/3 h keeps the parameters with three (Shazeer 2020), rounded up to 256
        width = 4 * hidden if not gated else -(-8 * hidden // 3 // 256) * 256
        given["ffn"] = _default(assumed, "model.ffn", width)
    if given.get("experts"):
        _moe(given, assumed)
    if given.get("attention") == "mla" and not given.get("kv_lora"):
        raise nonsense("model.attention = mla without kv_lora", "give kv_lora, q_lora and rope_dim")
    return Model(**{**given, "layers": layers})


def _moe(given: dict[str, Any], assumed: list[str]) -> None:
    _fill(given, assumed, "model", "topk", 2)
    given.setdefault("expert_ffn", given["ffn"])
    if given["topk"] > given["experts"]:
        raise nonsense(f"topk {given['topk']} of {given['experts']} experts", "topk cannot exceed the experts")
    if given.get("dense_layers", 0) > given["layers"]:
        raise nonsense(f"{given['dense_layers']} dense_layers of {given['layers']} layers", "correct one of them")


def _gpus(cluster: Mapping[str, Any], layout: Mapping[str, Any]) -> int:
    """GPUs of the cluster (nodes * gpus_per_node, or given); 0 when only the layout says."""
    if "gpus" in cluster:
        return int(cluster["gpus"])
    if "nodes" in cluster:
        return int(cluster["nodes"]) * int(cluster.get("gpus_per_node", 8))
    return 0


def _layout(given: dict[str, Any], gpus: int, assumed: list[str]) -> Layout:
    parts = {key: int(given.get(key, 1)) for key in ("tp", "pp", "cp")}
    product = parts["tp"] * parts["pp"] * parts["cp"]
    if "dp" not in given:
        if gpus % product:
            raise nonsense(f"{gpus} GPUs are not a multiple of tp*cp*pp = {product}", "change the degrees or the GPUs")
        given["dp"] = max(1, gpus // product)
        assumed.append(f"dp = {given['dp']}: GPUs / (tp*cp*pp)")
    if gpus and given["dp"] * product != gpus:
        raise nonsense(
            f"dp*tp*pp*cp = {given['dp'] * product} is not the {gpus} GPUs", "EP folds into dp, correct a degree"
        )
    if "stage_layers" in given:
        given["stage_layers"] = tuple(int(count) for count in given["stage_layers"])
    if int(given.get("vpp", 1)) > 1:
        given.setdefault("schedule", "interleaved")
    return Layout(**given)


def _cluster(given: dict[str, Any], gpus: int, assumed: list[str]) -> Cluster:
    given.pop("nodes", None)
    name = _fill(given, assumed, "cluster", "gpu", "H100-80GB")
    device = find_device(name)
    if device is None:
        raise nonsense(f"cluster.gpu = {name!r} is not known", f"known: {', '.join(device_names())}")
    per_node = int(given.setdefault("gpus_per_node", 8))
    given.setdefault("fast_domain", max(device.fast_domain, per_node) if device.fast_domain > 1 else 1)
    given.setdefault("gpu_memory_bytes", device.memory_bytes)
    for key, value in (("intra_bytes_per_s", device.ring_bytes_per_s), ("inter_bytes_per_s", device.nic_bytes_per_s)):
        if key not in given:
            given[key] = value
            assumed.append(f"cluster.{key} = {value:.3g}: usual for {device.name}")
    return Cluster(**{**given, "gpus": gpus})


def _train(given: dict[str, Any], layout: Layout, assumed: list[str]) -> Train:
    micro = _fill(given, assumed, "train", "micro_batch", 1)
    if "global_batch" not in given:  # m = 4p is where the bubble stops mattering (GPipe)
        given["global_batch"] = _default(assumed, "train.global_batch", layout.dp * micro * 4 * layout.pp)
    if given["global_batch"] % (layout.dp * micro):
        raise nonsense(
            f"global_batch {given['global_batch']} is not a multiple of dp*micro_batch = {layout.dp * micro}",
            "the framework would stop on it: change one of the three",
        )
    recompute = given.get("recompute", ())
    modules = tuple(recompute) if not isinstance(recompute, str) else (recompute,)
    if unknown := set(modules) - MODULES:
        raise nonsense(f"train.recompute names {', '.join(sorted(unknown))}", f"known: {', '.join(sorted(MODULES))}")
    given["recompute"] = tuple(module for module in modules if module != "none")
    for key in ("precision", "zero"):
        if key not in given:
            given[key] = _default(assumed, f"train.{key}", {"precision": "bf16", "zero": 1}[key])
    return Train(**given)


def _search(given: dict[str, Any]) -> Search:
    allowed = {key.removeprefix("allowed_"): given.pop(key) for key in list(given) if key.startswith("allowed_")}
    return Search(**given, allowed=tuple((name, tuple(sorted(degrees))) for name, degrees in sorted(allowed.items())))


def _fill(given: dict[str, Any], assumed: list[str], table: str, key: str, value: _T) -> Any:
    """The given value, or the default, which is then named."""
    if key not in given:
        given[key] = _default(assumed, f"{table}.{key}", value)
    return given[key]


def _default(assumed: list[str], name: str, value: _T) -> _T:
    assumed.append(f"{name} = {value}: not given")
    return value
