"""Samples of GPUs: the four writers give the same figures in the same units, with what is missing left unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnose import schema
from diagnose.ingest import Source, host_samples, read
from diagnose.schema import INGESTED, Tables

QUERY = """timestamp, index, uuid, clocks.current.sm [MHz], temperature.gpu, power.draw [W], utilization.gpu [%], \
memory.used [MiB], memory.total [MiB], clocks_throttle_reasons.active
2024/01/15 10:22:33.123, 0, GPU-a, 1980 MHz, 45, 650.12 W, 99 %, 1024 MiB, 81559 MiB, 0x0000000000000000
2024/01/15 10:22:33.125, 1, GPU-b, 1410 MHz, 88, 700.00 W, 98 %, 2048 MiB, 81559 MiB, 0x0000000000000040
2024/01/15 10:22:34.123, 0, GPU-a, [N/A], [N/A], [Not Supported], 99 %, 1024 MiB, 81559 MiB, 0x0000000000000001
"""


def load(tmp_path: Path, text: str, name: str = "smi.csv") -> Tables:
    path = tmp_path / name
    path.write_text(text)
    assert host_samples.sniff(Source(str(path)).head(), name)
    tables = read(Source(str(path)))
    for table, found in tables.items():
        schema.check(table, found, INGESTED[table])
    return tables


def of(tables: Tables, metric: str) -> list[tuple[Any, ...]]:
    rows = [row for row in tables["samples"].to_pylist() if row["metric"] == metric]
    return [(row["device"], row["value"]) for row in rows]


def test_a_query_with_units(tmp_path: Path) -> None:
    tables = load(tmp_path, QUERY)

    assert of(tables, "sm_clock_mhz") == [(0, 1980.0), (1, 1410.0)], "what is not available gives no row"
    assert of(tables, "gpu_memory_used_bytes") == [(0, 2.0**30), (1, 2.0**31), (0, 2.0**30)]
    assert of(tables, "gpu_memory_total_bytes")[0] == (0, 81559 * 2.0**20)
    assert of(tables, "gpu_utilization_ratio")[1] == (1, pytest.approx(0.98))
    assert of(tables, "throttle_thermal_ratio") == [(0, 0.0), (1, 1.0), (0, 0.0)]
    assert of(tables, "throttle_idle_ratio") == [(0, 0.0), (1, 0.0), (0, 1.0)]
    first = tables["samples"].to_pylist()[0]
    assert (first["ts_ns"], first["zoned"], first["uuid"]) == (1705314153123000000, False, "GPU-a")
    assert tables["files"]["gpu_count"].to_pylist() == [2] and tables["quality"].num_rows == 0


def test_a_query_without_units_or_index_and_a_header_printed_again(tmp_path: Path) -> None:
    lines = [
        "timestamp, pci.bus_id, clocks.sm, memory.used, clocks_event_reasons.sw_power_cap",
        "2024/01/15 10:22:33.123, 00000000:1B:00.0, 1980, 1024, Not Active",
        "2024/01/15 10:22:33.123, 00000000:3D:00.0, 1755, 2048, Active",
    ]
    tables = load(tmp_path, "\n".join([*lines, *lines]) + "\n")

    assert of(tables, "sm_clock_mhz") == [(0, 1980.0), (1, 1755.0)] * 2
    assert of(tables, "gpu_memory_used_bytes")[1] == (1, 2.0**31)
    assert of(tables, "throttle_power_ratio")[:2] == [(0, 0.0), (1, 1.0)]


def test_dmon_with_and_without_times(tmp_path: Path) -> None:
    head = "gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk\n"
    units = "Idx      W      C      C      %      %    MHz    MHz\n"
    rows = [
        "    0    650     45     50     99     40   2619   1980",
        "    1    699     88      -     98     41   2619   1410",
    ]
    timed = ["20240115 10:22:33 " + row.strip() for row in rows]

    plain = load(tmp_path, "# " + head + "# " + units + "\n".join(rows) + "\n# " + head + "# " + units, "dmon.txt")
    dated = load(tmp_path, "#Date Time " + head + "#YYYYMMDD HH:MM:SS " + units + "\n".join(timed) + "\n", "dmon.txt")

    assert of(plain, "sm_clock_mhz") == of(dated, "sm_clock_mhz") == [(0, 1980.0), (1, 1410.0)]
    assert of(plain, "memory_temperature_c") == [(0, 50.0)]
    assert plain["samples"]["ts_ns"].null_count == plain["samples"].num_rows
    assert plain["quality"]["problem"].to_pylist() == ["untimed_sample"]
    assert dated["samples"]["ts_ns"][0].as_py() == 1705314153000000000 and dated["quality"].num_rows == 0


def test_dcgmi_dmon(tmp_path: Path) -> None:
    head = "#Entity   SMCLK    TMPTR    POWER     DVCCTR\nID\n"
    text = head + "GPU 0     1980     45       650.1     0\nGPU 1     1410     88       N/A       96\n"

    tables = load(tmp_path, text, "dcgm.txt")

    assert of(tables, "sm_clock_mhz") == [(0, 1980.0), (1, 1410.0)]
    assert of(tables, "gpu_power_w") == [(0, 650.1)]
    assert of(tables, "throttle_thermal_ratio") == [(0, 0.0), (1, 1.0)]


def test_the_exporter_says_the_host(tmp_path: Path) -> None:
    labels = 'UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node12"'
    text = (
        "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
        f'DCGM_FI_DEV_SM_CLOCK{{gpu="3",{labels}}} 1410\n'
        f'DCGM_FI_DEV_FB_USED{{gpu="3",{labels}}} 1024 1705314153123\n'
        f'DCGM_FI_DEV_UNHEARD_OF{{gpu="3",{labels}}} 7\n'
    )

    tables = load(tmp_path, text, "metrics.prom")

    assert of(tables, "sm_clock_mhz") == [(3, 1410.0)] and of(tables, "gpu_memory_used_bytes") == [(3, 2.0**30)]
    assert tables["files"]["host"].to_pylist() == ["node12"]
    timed = [row for row in tables["samples"].to_pylist() if row["ts_ns"] is not None]
    assert [(row["metric"], row["ts_ns"], row["zoned"]) for row in timed] == [
        ("gpu_memory_used_bytes", 1705314153123000000, True)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "timestamp,step,loss\n2024/01/15 10:22:33,1,2.5\n", "step,memory.used,loss\n1,2,3\n", "# gpu results\n1 2 3\n",
        "# sm occupancy\n0.5 0.7\n", "gpu,temperature\n0,45\n",
    ],
)  # fmt: skip
def test_other_tables_are_left_alone(text: str) -> None:
    assert not host_samples.sniff(text.encode(), "x.csv")
