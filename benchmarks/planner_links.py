"""The bandwidth model against measured collectives, and how long predictions and a search take."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.validation_cells import number
from benchmarks.validation_rows import table
from diagnose.formulas.bandwidth import busbw_factor
from diagnose.formulas.links import Fabric, Placement, collective_s
from diagnose.planner import Job, predict, search
from diagnose.planner.devices import find_device

OPERATIONS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter"}
LOW, HIGH = 2**20, 2**34
XGMI_LINK_BYTES_PER_S = 0.8 * 64e9
"""Two MI300X share one xGMI link of the mesh (64 GB/s)."""


def link_errors() -> list[tuple[str, float]]:
    """(fabric, relative error of bus bandwidth) of every measured sweep point from 1 MiB to 16 GiB."""
    found = []
    for row in table("nccl_busbw"):
        size, true = number(row["size_bytes"]), number(row["busbw_GBps"])
        op = next((name for name in OPERATIONS if row["collective"].startswith(name)), None)
        if row["quantity"] != "measured" or op is None or not size or not true or not LOW <= size <= HIGH:
            continue
        device = find_device(row["gpu"])
        assert device is not None, row["gpu"]
        ranks = int(number(row["gpus"]) or 0)
        no_switch_reduction = row["algo"].startswith("Ring")
        intra = XGMI_LINK_BYTES_PER_S if "xGMI" in row["fabric"] and ranks == 2 else device.ring_bytes_per_s
        network = 400e9 / 8 / 8 if "EFA v1" in row["fabric"] else 50e9  # per node of 8, or per GPU
        fabric = Fabric(intra, network, 8, 0 if no_switch_reduction else device.generation)
        seconds = collective_s(op, size, Placement(ranks, min(ranks, 8)), fabric)
        said = size / seconds * (busbw_factor(op, ranks) or 1) / 1e9
        found.append((f"{row['gpu']} x {ranks}, {row['fabric']}", said / true - 1))
    return found


def print_links() -> None:
    found = link_errors()
    middle = median(abs(error) for _, error in found)
    print(f"\nbandwidth model: {len(found)} points from 1 MiB to 16 GiB, median error {middle:.1%} (bar 10 %)")


def print_speed() -> None:
    model = {
        "layers": 126,
        "hidden": 16384,
        "heads": 128,
        "kv_heads": 8,
        "ffn": 53248,
        "vocab": 128256,
        "seq_len": 8192,
    }
    job = Job.from_dict(
        {
            "model": model,
            "train": {"micro_batch": 1, "global_batch": 1536},
            "layout": {"tp": 8, "pp": 8},
            "cluster": {"gpus": 1024, "gpu": "H100"},
            "search": {"framework": "torchtitan"},
        }
    )
    start = time.perf_counter()
    result = search(job)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(200):
        predict(job)
    each = (time.perf_counter() - start) / 200
    print(f"\nspeed: search on 1,024 GPUs {seconds:.2f} s for {result.tried_count:,} layouts (bar 5 s), ", end="")
    print(f"predict {each * 1e3:.2f} ms (bar 1 ms)")
