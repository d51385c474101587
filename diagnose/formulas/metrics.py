"""What a metric of a training run is called, in which unit: the one list that log parsers and analyses share.

`canonical("elapsed time per iteration (ms)")` is `("step_time_ns", 1e6)`: name and factor to the unit of its suffix.
A name counts only where it says what it measures *and* its unit is printed with it or fixed by the framework; for all
others the answer is None and the value stays under its own name, its unit unknown. `gb` printed by DeepSpeed and
Megatron is 2^30 bytes (`unit="GB"` of a log line); in names of exported metrics `_gb` is 10^9 and `_gib` 2^30.
Sources: Megatron-LM training_log, DeepSpeed utils/timer.py, torchtitan components/metrics.py, nanotron trainer.py,
Composer SpeedMonitor, NeMo TimingCallback, transformers Trainer.log.
"""

from __future__ import annotations

import re
from functools import cache

_TIME = {"ns": 1.0, "us": 1e3, "ms": 1e6, "msec": 1e6, "s": 1e9, "sec": 1e9, "secs": 1e9, "seconds": 1e9, "min": 60e9}
_SIZE = {"b": 1.0, "bytes": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
_SIZE |= {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
PRINTED_SIZE = {"KB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30, "TB": 2.0**40}
"""Sizes as logs of training frameworks print them: binary, whatever the letters say."""
_UNIT = re.compile(r"_(?:in_)?(" + "|".join(sorted({*_TIME, *_SIZE}, key=len, reverse=True)) + r")$")

TIMES = {
    "step_time_ns":
    r"(?:train_|training_)?(?:step|iter|iteration|batch)(?:_?(?:time|timing|duration|dur|wall|latency))?"
    r"|elapsed_time_per_iteration|time_per_iteration|train_step_timing|end_to_end|time_metrics_end_to_end|step_elapsed",
    "input_time_ns": r"(?:time_metrics_)?(?:data|data_?load(?:ing|er)?|input|batch_generator|fetch|io)(?:_wait|_stall)?"
    r"(?:_time|_timing|_dur|_duration)?",
    "compute_time_ns": r"(?:compute|gpu_compute|kernel|forward_backward_compute)(?:_time|_dur|_duration)?",
    "comm_time_ns":
    r"(?:exposed_)?(?:comm|communication|collectives?|nccl|all_?reduce|sync_wait)(?:_time|_dur|_duration)?",
    "host_gap_time_ns": r"(?:host_gap|host_pause|cpu_gap|gap|host_idle)(?:_time|_dur|_duration)?",
    "gc_time_ns": r"(?:py_|python_)?(?:gc|garbage_collection)(?:_pause)?(?:_time|_dur|_duration)?",
    "alloc_time_ns":
    r"(?:cuda_?)?(?:alloc(?:ator|ation)?|cudamalloc|malloc)(?:_stall|_retry)?(?:_time|_dur|_duration)?",
    "checkpoint_time_ns": r"(?:save_)?(?:checkpoint|ckpt)(?:_save)?(?:_time|_dur|_duration)?",
    "elapsed_time_ns": r"elapsed(?:_time)?|time_since_start|wall_time_since_start",
    "dispatch_time_ns": r"(?:moe_)?(?:dispatch|all_?to_?all|a2a)(?:_time|_dur|_duration)?",
}  # fmt: skip
SIZES = {
    "peak_memory_allocated_bytes": r".*(?:max|peak)\w*alloc\w*|.*alloc\w*(?:max|peak)|maxmemallocated|max_ma",
    "peak_memory_reserved_bytes": r".*(?:max|peak)\w*(?:reserved|cached)\w*|max_ca",
    "memory_allocated_bytes": r"memallocated|(?:\w*mem(?:ory)?_)?alloc(?:ated)?(?:_mem(?:ory)?)?|ma",
    "memory_reserved_bytes": r"(?:\w*mem(?:ory)?_)?(?:reserved|cached)(?:_mem(?:ory)?)?|ca",
    "device_memory_used_bytes": r"total_device_memory_used|(?:gpu_|device_)?mem(?:ory)?_used|peak_gpu_memory"
    r"|(?:hip|rocm)_mem_usage",
    "host_memory_bytes": r"(?:cpu|host)(?:_\w*)?mem(?:ory)?(?:_\w*)?|rss(?:_mem(?:ory)?)?",
}  # fmt: skip
_PLAIN = {
    "tokens_per_s_per_gpu": r"tps|wps|throughput_tps|tokens_per_sec(?:ond)?_per_gpu|tokens_per_gpu.*"
    r"|(?:throughput_)?device_tokens_per_sec",
    "tokens_per_s": r"(?:throughput_)?tokens_per_sec(?:ond)?|tokens_s|tokens_sec|train_tokens_per_second",
    "samples_per_s": r"samples_per_sec(?:ond)?|samplespersec|currsamplespersec|(?:throughput_)?samples_per_sec",
    "mean_samples_per_s": r"runningavgsamplespersec",
    "steps_per_s": r"(?:throughput_)?batches_per_sec|steps_per_sec(?:ond)?|iterations_per_sec(?:ond)?",
    "tflop_per_s_per_gpu": r"tflops|throughput_per_gpu_tflop_s_gpu|model_tflops_per_gpu|tflops_per_gpu",
    "mfu_ratio": r"mfu|(?:throughput_)?device_mfu",
    "loss": r"loss|lm_loss|train_loss|reduced_train_loss|loss_train_total|global_avg_loss",
    "grad_norm": r"grad_?norm", "learning_rate": r"lr|learning_rate",
    "sm_clock_mhz": r"sm_clock(?:_mhz)?|clocks?_(?:current_)?sm(?:_mhz)?|dcgm_fi_dev_sm_clock"
    r"|gpu_clock(?:_mhz)?|clocks_gr",
    "gpu_temperature_c": r"gpu_temp(?:erature)?(?:_c)?|temperature_gpu|dcgm_fi_dev_gpu_temp",
    "gpu_power_w": r"gpu_power(?:_w)?|power_draw(?:_w)?|power_per_gpu.*|dcgm_fi_dev_power_usage",
    "throttle_reasons_count": r"clocks_(?:throttle|event)_reasons?_active|throttle(?:_reasons?)?(?:_active)?"
    r"|dcgm_fi_dev_clocks?_(?:throttle|event)_reasons",
    "throttle_thermal_ratio": r"throttle_thermal_ratio", "throttle_power_ratio": r"throttle_power_ratio",
    "throttle_hardware_ratio": r"throttle_hardware_ratio", "throttle_idle_ratio": r"throttle_idle_ratio",
    "alloc_retries_count": r"(?:memory_)?(?:num_)?alloc_retries", "ooms_count": r"(?:memory_)?num_ooms",
    "expert_imbalance_ratio": r"(?:moe_)?(?:expert_|load_|ep_|token_)?imbalance(?:_ratio)?"
    r"|(?:moe_)?max_over_mean(?:_load)?|load_max_mean",
    "router_entropy": r"(?:moe_)?router_entropy|(?:moe_)?entropy", "busbw_gb_per_s": r"bus_?bw(?:_gbs?|_gb_s)?",
    "seq_len_count": r"(?:actual_)?seq_?len(?:gth)?|sequence_length|curr_seqlen",
    "global_batch_count": r"global_batch_size|batch_size|global_bs", "loss_scale": r"loss_scale",
    "tokens_count": r"(?:num_)?tokens(?:_per_step)?|ntokens|consumed_tokens_step",
}  # fmt: skip
_SECONDS_UNSAID = re.compile(r"iteration_time|step_time|iter_time|batch_time|data_time|train_step_timing|step_timing")


@cache
def canonical(name: str, unit: str = "") -> tuple[str, float] | None:
    """Canonical name and factor of a printed name; `unit` is what stood behind the value, as in `3.96GB`."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    plain = re.sub(r"^(?:train|training|perf|performance|metrics|time_metrics|memory|system)_(?=\w+_)", "", plain)
    if printed := unit.strip(" ()[]"):
        sizes = _SIZE | {k.lower(): v for k, v in PRINTED_SIZE.items()}
        known = _plain(plain)
        if printed == "%" and known is not None and known[0].endswith("_ratio"):
            return known[0], 0.01
        return _with_unit(plain, printed, sizes) or known
    if (found := _plain(plain)) is not None:
        return found
    if match := _UNIT.search(plain):
        base = plain[: match.start()].rstrip("_")
        if (known := _with_unit(base, match[1], _SIZE)) is not None:
            return known
    # Megatron's TensorBoard `iteration-time`, NeMo's and Lightning's times are seconds though unsaid.
    return _with_unit(plain, "s", {}) if _SECONDS_UNSAID.fullmatch(plain) else None


def _with_unit(plain: str, unit: str, sizes: dict[str, float]) -> tuple[str, float] | None:
    letters = unit.lower()
    for known, factors in ((TIMES, _TIME), (SIZES, sizes)):
        if letters in factors:
            found = next((m for m, pattern in known.items() if re.fullmatch(pattern, plain)), None)
            if found:
                return found, factors[letters]
    return None


def _plain(plain: str) -> tuple[str, float] | None:
    return next(((m, 1.0) for m, pattern in _PLAIN.items() if re.fullmatch(pattern, plain)), None)


def is_canonical(name: str) -> bool:
    """Whether the name already is one of the list."""
    return name in TIMES or name in SIZES or name in _PLAIN


def names() -> tuple[str, ...]:
    """Every canonical name."""
    return (*TIMES, *SIZES, *_PLAIN)
