"""NCCL lines of many releases, processes that print over each other, and ranks that only communicators tell."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose.ingest import Source, read
from diagnose.ingest.text import _lines
from diagnose.schema import Tables

HEAD = "node-a:100:200 [3] NCCL INFO "


def of(tmp_path: Path, *lines: str, name: str = "run.log") -> Tables:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return read(Source(str(path)))


def rows(tables: Tables, name: str, *columns: str) -> list[Any]:
    found = tables[name].to_pylist()
    return [tuple(row[c] for c in columns) if len(columns) > 1 else row[columns[0]] for row in found]


COMM_LINES = (
    "comm 0x14b1 rank 28 nranks 32 cudaDev 4 busId 88000 - Init COMPLETE",  # 2.8
    "comm 0x14b1 rank 28 nranks 32 cudaDev 4 busId 88000 commId 0xabc - Init COMPLETE",  # 2.16
    "comm 0x14b1 rank 28 nranks 32 cudaDev 4 nvmlDev 4 busId 88000 commId 0xabc - Init START",  # 2.18
    "ncclCommInitRank comm 0x14b1 rank 28 nranks 32 cudaDev 4 nvmlDev 4 busId 88000 commId 0xabc - Init START",  # 2.21
    "ncclCommSplit comm 0x14b1 rank 28 nranks 32 cudaDev 4 nvmlDev 4 busId 88000 parent 0x1 color 0 key 1- Init START",
    "ncclCommSplit comm 0x14b1 rank 28 nranks 32 cudaDev 4 nvmlDev 4 busId 88000 parent 0x1 splitCount 2 color 0 key 1"
    "- Init START",  # 2.24
    "[Rank 28] ncclCommInitRankConfig comm 0x14b1 rank 28 nranks 32 cudaDev 4 nvmlDev 4 busId 88000 commId 0xabc "
    "- Init START",  # 2.29
    "comm 0x14b1 rank 28 nRanks 32 nNodes 4 localRanks 8 localRank 4 MNNVL 0",
)


@pytest.mark.parametrize("line", COMM_LINES)
def test_communicators_of_every_release(line: str, tmp_path: Path) -> None:
    (row,) = of(tmp_path, HEAD + line)["communicators"].to_pylist()
    assert (row["comm_rank"], row["size"], row["device"]) == (28, 32, 4 if "cudaDev" in line else 3)
    assert row["state"] == ("started" if "START" in line else "complete")
    assert row["comm"] == ("0xabc" if "commId" in line else "node-a:100:0x14b1")


CHANNELS = {
    "Channel 00/0 : 1[1] -> 2[2] via P2P/CUMEM/read": ("P2P", "CUMEM/read", None, None),
    "Channel 00 : 0[1a000] -> 3[8a000] via P2P/IPC": ("P2P", "IPC", None, None),
    "Channel 00/0 : 1[1] -> 2[2] via P2P/direct pointer": ("P2P", "direct pointer", None, None),
    "Channel 00/0 : 1[1] -> 2[2] via P2P/indirect/5[a]": ("P2P", "indirect/5[a]", None, None),
    "Channel 00 : 0[7000] -> 1[b000] via SHM/direct/direct": ("SHM", "direct/direct", None, None),
    "Channel 00 : 0[7000] -> 1[b000] via direct shared memory": ("SHM", "direct shared memory", None, None),
    "Channel 00 : 14[88000] -> 13[88000] [send] via NET/IB/3": ("NET", "IB", 3, False),
    "Channel 01/1 : 3[3] -> 4[0] [send] via NET/IB/1(2)/GDRDMA/Shared": ("NET", "IB", 1, True),
    "Channel 01/1 : 3[3] -> 4[0] [receive] via NET/IB/1/GDRDMA(PCI)": ("NET", "IB", 1, True),
    "Channel 01/1 : 3[3] -> 4[0] [receive] via NET/Socket/0": ("NET", "Socket", 0, False),
    "Channel 05/0 : 11[3] -> 2[2] [send] via NET/AWS Libfabric/1/GDRDMA": ("NET", "AWS Libfabric", 1, True),
}


@pytest.mark.parametrize("line", CHANNELS)
def test_channels_of_every_release(line: str, tmp_path: Path) -> None:
    (row,) = rows(of(tmp_path, HEAD + line), "transports", "transport", "detail", "net_device", "gpudirect")
    assert row == CHANNELS[line]


CALL = (
    "AllReduce: opCount 1f sendbuff 0x1 recvbuff 0x2 count 1024 datatype 9 op 0 root 0 comm 0x55 [nranks=8] stream 0x6"
)


@pytest.mark.parametrize("line", [
    CALL, CALL.replace("count 1024", "acc (nil) count 1024"), CALL + " task 0 globalrank 3",
])  # fmt: skip
def test_calls_of_nccl_and_rccl(line: str, tmp_path: Path) -> None:
    (row,) = of(tmp_path, HEAD + line)["calls"].to_pylist()
    assert (row["op"], row["seq"], row["size_bytes"], row["dtype"]) == ("all_reduce", 31, 2048, "bfloat16")
    assert (row["group_size"], row["group"], row["source"]) == (8, "node-a:100:0x55", "nccl_log")


def test_calls_of_several_forms_in_one_block(tmp_path: Path) -> None:
    lines = [CALL, CALL + " task 0 globalrank 3", CALL.replace("AllReduce", "Send").replace("1f", "20"), CALL + "!"]
    found = of(tmp_path, *(HEAD + line for line in lines))
    assert sorted(rows(found, "calls", "op")) == ["all_reduce", "all_reduce", "all_reduce", "send"]
    assert None in rows(found, "calls", "seq"), "a send counts on its own"


TUNINGS = {
    "33554432 Bytes -> Algo 1 proto 2 time 1234.567890": (None, "RING", "SIMPLE", None),
    "AllReduce: 33554432 Bytes -> Algo 4 proto 0 time 12.5": ("all_reduce", "NVLS", "LL", None),
    "Broadcast: 33554432 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..7}": ("broadcast", "RING", "LL", 8),
    "AllGather [Symmetric]: 33554432 Bytes -> Kernel AllGather_LL nchannels 8 nthreads 512 nWorks 1": (
        "all_gather", "KERNEL", "AllGather_LL", 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", TUNINGS)
def test_choices_of_every_release(line: str, tmp_path: Path) -> None:
    (row,) = rows(of(tmp_path, HEAD + line), "tunings", "op", "algorithm", "protocol", "channels", "size_bytes")
    assert row == (*TUNINGS[line], 33554432)


WARNINGS = {
    "node-a:1:2 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : port error": "ib_port",
    "[2026-01-02 03:04:05] node-a:1:2 [0] net_ib.cc:94 (ncclIbAsync) NCCL WARN NET/IB : mlx5_0:1 Got async event : "
    "port error": "ib_port",
    "node-a:1:2 [0] net_ib.cc:1 NCCL WARN NET/IB : mlx5_0:1 async fatal event on QP (0x1): local work queue "
    "catastrophic error": "ib_async",
    "node-a:1:2 [0] net_ib.cc:1 NCCL WARN NET/IB: Got completion from peer 10.0.0.1<0> with status=12 opcode=32 len=0 "
    "vendor err 129": "ib_completion",
    "node-a:1:2 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 7000": (
        "duplicate_gpu"
    ),
    "node-a:1:2 [0] shm.cc:1 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)": (
        "shared_memory"
    ),
    "node-a:1:2 [0] socket.cc:1 NCCL WARN Connection closed by remote peer b<33>": "socket",
    "node-a:1:2 [0] NCCL INFO NET/IB : No device found.": "no_ib",
    "node-a:1:2 [0] enqueue.cc:1 NCCL WARN Cuda failure 719 'unspecified launch failure'": "cuda",
    "node-a:1:2 [0] x.cc:1 NCCL WARN something else entirely": "warning",
}


@pytest.mark.parametrize("line", WARNINGS)
def test_messages_worth_keeping(line: str, tmp_path: Path) -> None:
    found = of(tmp_path, line, line)
    assert rows(found, "log_events", "kind", "count", "host", "process") == [(WARNINGS[line], 2, "node-a", 1)]


def test_settings_are_one_row_unless_ranks_differ(tmp_path: Path) -> None:
    def process(rank: int, algo: str) -> list[str]:
        head = f"node-a:{100 + rank}:1 [{rank}] NCCL INFO "
        return [
            head + f"comm 0x1 rank {rank} nranks 2 cudaDev {rank} busId 1 commId 0xa - Init COMPLETE",
            head + "NCCL_NTHREADS set by environment to 512.",
            head + f"NCCL_ALGO set by environment to {algo}",
        ]

    found = of(tmp_path, *process(0, "Ring"), *process(1, "Tree"))
    assert sorted(rows(found, "settings", "key", "value", "rank"), key=str) == [
        ("NCCL_ALGO", "Ring", 0), ("NCCL_ALGO", "Tree", 1), ("NCCL_NTHREADS", "512", None),
    ]  # fmt: skip


def comm(process: int, device: int, rank: int, size: int, host: str = "a", identity: str = "0xa") -> str:
    return (
        f"{host}:{process}:9 [{device}] NCCL INFO comm 0x1 rank {rank} nranks {size} cudaDev {device} busId 1 "
        f"commId {identity} - Init COMPLETE"
    )


def test_no_rank_where_the_largest_communicators_are_not_the_whole_job(tmp_path: Path) -> None:
    found = of(tmp_path, *(comm(10 + i, i, i % 2, 2, identity=f"0x{i // 2}") for i in range(4)))
    assert rows(found, "communicators", "rank") == [None] * 4
    assert "log_without_ranks" in rows(found, "quality", "problem")


def test_a_restart_may_claim_a_rank_again(tmp_path: Path) -> None:
    found = of(tmp_path, *(comm(10 + i, i % 2, i % 2, 2, identity=f"0x{i // 2}") for i in range(4)))
    assert rows(found, "communicators", "rank") == [0, 1, 0, 1]


def test_messages_of_a_thread_without_a_device_belong_to_the_only_rank_of_the_process(tmp_path: Path) -> None:
    found = of(tmp_path, comm(10, 5, 5, 8), "a:10:11 [0] net.cc:1 NCCL WARN NET/IB : Got async event : port error")
    assert rows(found, "log_events", "rank") == [5]


def test_lost_colours_and_redrawn_lines_keep_line_numbers(tmp_path: Path) -> None:
    bar = "  1%|#  | 1/90\r  2%|#  | 2/90\r"
    found = of(tmp_path, "[32mstart[0m", bar + "[31m" + HEAD + "Using network IB[0m", HEAD + "Using network IB")
    assert rows(found, "log_events", "detail", "count", "line") == [("Using network IB", 2, 2)]


def test_a_log_without_known_lines_is_one_line(tmp_path: Path) -> None:
    (row,) = of(tmp_path, "pip install torch", "done")["files"].to_pylist()
    assert (row["status"], "NCCL_DEBUG=INFO" in row["detail"]) == ("unusable", True)


@settings(max_examples=30)
@given(st.lists(st.sampled_from([HEAD + CALL, HEAD + next(iter(CHANNELS)), "noise", "", "é\x1b[1mx"]), max_size=40),
       st.integers(1, 400), st.sampled_from(["\n", "\r\n"]))  # fmt: skip
def test_any_block_size_gives_the_same_lines(lines: list[str], size: int, end: str) -> None:
    data = end.join([*lines, "last"]).encode()
    whole = [(n, t) for n, t in _read(data, len(data) + 1)]
    assert _read(data, size) == whole
    assert [t for _, t in whole] == [t for line in lines if (t := line.replace("\x1b[1m", ""))] + ["last"]
    assert [n for n, _ in whole] == [i + 1 for i, line in enumerate([*lines, "last"]) if line]


def _read(data: bytes, size: int) -> list[tuple[int, str]]:
    class Document:
        def head(self, size: int) -> bytes:
            return data[:size]

        def chunks(self, _: int) -> Any:
            return (data[i : i + size] for i in range(0, len(data), size))

    return [row for block in _lines.blocks(Document()) for row in block.rows()]  # type: ignore[arg-type]


EVERYTHING = "\n".join(
    [
        *(HEAD + line for line in (*COMM_LINES, *CHANNELS, *TUNINGS, CALL)),
        *WARNINGS,
        "NCCL version 2.19.3+cuda12.3NCCL version 2.19.3+cuda12.3",
        "[rank3]:[E105 01:02:03.1 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600081 milliseconds",
    ]
).encode()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(EVERYTHING)), st.integers(0, 12), st.binary(max_size=6)), max_size=8))
def test_damaged_lines_are_left_out_not_fatal(tmp_path: Path, cuts: list[tuple[int, int, bytes]]) -> None:
    data = EVERYTHING
    for at, length, put in cuts:
        data = data[:at] + put + data[at + length :]
    path = tmp_path / "run.log"
    path.write_bytes(data)
    found = read(Source(str(path)))
    assert found["files"].num_rows == 1


@pytest.mark.parametrize("old, new", [
    ("rank 28", "rank 99999999999999999999"), ("count 1024", "count 99999999999999999999"), ("[3]", "[99999999999]"),
    ("opCount 1f", "opCount ffffffffffffffffffffff"), ("node-a:100", "node-a:99999999999999999999"),
    ("SeqNum=4", "SeqNum=99999999999999999999"), ("Channel 00", "Channel 99999999999"), ("33554432", "9" * 30),
    ("datatype 9", "datatype 9999999"), ("NET/IB/3", "NET/IB/99999999999"), ("[Rank 3]", "[Rank 99999999999999]"),
])  # fmt: skip
def test_numbers_that_no_column_holds(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(EVERYTHING.decode().replace(old, new))
    assert read(Source(str(path)))["files"].num_rows == 1


def test_order_of_processes_does_not_matter(tmp_path: Path) -> None:
    lines = [comm(10 + i, i, i, 4) for i in range(4)]
    lines += [f"a:{10 + i}:9 [{i}] NCCL INFO {CALL}" for i in range(4)]
    random.Random(2).shuffle(lines)
    assert sorted(rows(of(tmp_path, *lines), "calls", "rank")) == [0, 1, 2, 3]
