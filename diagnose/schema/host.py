"""Ingested tables of the host's own record beside a job: samples of its GPUs over time, and when steps ended.

Samples know no steps and steps know no devices; both know the wall clock, which joins them (`device_series`). Clocks
are often printed without a zone: then `zoned` is false, and only tables of the same kind are joined.
"""

from __future__ import annotations

from diagnose.schema.tables import BOOL, FLOAT, INT32, INT64, LABEL, TableSchema, table

HOST: dict[str, TableSchema] = {
    "samples": table(
        "reading of one device of a host at one moment",
        ("file", INT32, "index in files"),
        ("host", LABEL, "host name, where the sampler says"),
        ("device", INT32, "GPU as the sampler numbers it (order on the bus)"),
        ("uuid", LABEL, "GPU's own id, where sampled"),
        ("ts_ns", INT64, "wall clock; null where the sampler printed none"),
        ("zoned", BOOL, "false: printed in the host's local time, its zone unknown"),
        ("metric", LABEL, "sm_clock_mhz | memory_clock_mhz | gpu_temperature_c | memory_temperature_c | gpu_power_w | "
                          "power_limit_w | gpu_utilization_ratio | gpu_memory_used_bytes | gpu_memory_total_bytes | "
                          "throttle_{thermal,power,hardware,idle,other}_ratio (1: active) | ecc_*_count | "
                          "pcie_replay_count"),
        ("value", FLOAT, "in the unit of the metric's suffix"),
    ),
    "step_ends": table(
        "moment at which a step of the job was logged",
        ("file", INT32, "index in files"),
        ("rank", INT32, "global rank that logged it"),
        ("step", INT64, "step number as printed"),
        ("segment", INT32, "stretch between restarts, as in series"),
        ("ts_ns", INT64, "wall clock"),
        ("zoned", BOOL, "false: local time, its zone unknown"),
    ),
}  # fmt: skip
