"""Faults that users found in NCCL logs and flight recorder dumps, and the right verdicts; also told in other ways."""

from __future__ import annotations

import ast
import json
import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import ask

Change = Callable[[str], str]


def renamed(text: str) -> str:
    """Other hosts, processes and threads."""
    text = re.sub(r"\bnode-([a-z])\b", r"gpu-0\1-7", text)
    return re.sub(r"(?m):(\d+):(\d+) \[", lambda m: f":{int(m[1]) + 31_000}:{int(m[2]) + 31_000} [", text)


def launched(text: str) -> str:
    """Behind torchrun's prefix, coloured, with Windows line ends."""
    lines = [f"[default{i % 4}]:\x1b[32m{line}\x1b[0m" if line else line for i, line in enumerate(text.split("\n"))]
    return "\r\n".join(lines)


def interleaved(text: str) -> str:
    """Lines of the processes mixed anew; each process keeps its order."""
    rng = random.Random(3)
    queues: dict[str, list[str]] = {}
    for line in text.split("\n"):
        if line:
            queues.setdefault(":".join(line.split(":")[:2]), []).append(line)
    out = []
    while queues:
        key = rng.choice(sorted(queues))
        out.append(queues[key].pop(0))
        if not queues[key]:
            del queues[key]
    return "\n".join(out) + "\n"


def older(text: str) -> str:
    """As NCCL before 2.16 prints it: no commId, no NVML device."""
    return re.sub(r" nvmlDev \d+|(?<=busId )(\w+) commId 0x\w+", lambda m: m[1] or "", text)


def in_docker(text: str) -> str:
    return "".join(json.dumps({"log": line + "\n", "stream": "stdout"}) + "\n" for line in text.split("\n") if line)


CHANGES: dict[str, Change] = {
    "original": str,
    "renamed": renamed,
    "launched": launched,
    "interleaved": interleaved,
    "older": older,
    "docker": in_docker,
}
each = pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))


def diagnose(case: str, folder: Path, change: Change, *names: str, encoding: str = "utf-8") -> Any:
    """The diagnosis of a case's files, its logs changed."""
    paths = []
    for path in sorted((ask.CASES / case).iterdir()):
        if path.name == "case.json" or (names and path.name not in names):
            continue
        out = folder / path.name
        text = path.read_bytes()
        out.write_bytes(change(text.decode()).encode(encoding) if path.suffix == ".log" else text)
        paths.append(out)
    return ask.run(*paths)


def host(change: Change, name: str) -> str:
    return renamed(name) if change is renamed else name


LINK_RULES = {"socket-transport", "no-gpudirect", "suboptimal-algorithm", "degrading-link"}


def only(diagnosis: Any, rule: str) -> Any:
    """The one finding about links."""
    assert set(ask.found(diagnosis)) & LINK_RULES == {rule}
    return ask.finding(diagnosis, rule)


@each
def test_e01_sockets_because_libibverbs_is_missing(change: Change, tmp_path: Path) -> None:
    found = only(diagnose("E01", tmp_path, change), "socket-transport")
    assert found.hosts == (host(change, "node-a"), host(change, "node-b"))
    assert found.ranks == (0, 1, 2, 3)
    assert "libibverbs" in found.evidence["cause"]


@each
def test_e03_the_variable_also_turns_roce_off(change: Change, tmp_path: Path) -> None:
    found = only(diagnose("E03", tmp_path, change), "socket-transport")
    assert "NCCL_IB_DISABLE=1" in found.summary
    assert "RoCE" in found.summary


def test_e03_one_node_needs_no_network(tmp_path: Path) -> None:
    text = (ask.CASES / "E03" / "nccl.log").read_text().replace("node-b", "node-a")
    path = tmp_path / "nccl.log"
    path.write_text(text)
    assert "socket-transport" not in ask.found(ask.run(path))


@each
def test_e04_gpu_direct_is_off_on_both_cards(change: Change, tmp_path: Path) -> None:
    found = only(diagnose("E04", tmp_path, change), "no-gpudirect")
    assert found.evidence["devices"] == "mlx5_0, mlx5_1"
    assert (found.evidence["affected_count"], found.evidence["all_count"]) == (4, 4)


def test_e04_quiet_where_the_channels_say_gdrdma(tmp_path: Path) -> None:
    text = (ask.CASES / "E04" / "nccl.log").read_text().replace("NET/IB/0\n", "NET/IB/0/GDRDMA\n")
    path = tmp_path / "nccl.log"
    path.write_text(text.replace("Direct RDMA Disabled", "Direct RDMA Enabled"))
    assert not set(ask.found(ask.run(path))) & LINK_RULES


@each
def test_e06_shared_memory_instead_of_peer_access(change: Change, tmp_path: Path) -> None:
    found = only(diagnose("E06", tmp_path, change), "suboptimal-algorithm")
    assert (found.evidence["kind"], found.evidence["cause"]) == ("p2p_disabled", "NCCL_P2P_LEVEL=LOC")


def test_e06_without_the_variable_the_candidates_are_named(tmp_path: Path) -> None:
    found = only(diagnose("E06", tmp_path, lambda t: re.sub(r".*NCCL_P2P_LEVEL.*\n", "", t)), "suboptimal-algorithm")
    assert "ACS" in found.summary


@each
def test_e08_one_of_four_cards_is_used(change: Change, tmp_path: Path) -> None:
    found = only(diagnose("E08", tmp_path, change), "suboptimal-algorithm")
    assert found.evidence["kind"] == "nic_unbalanced"
    assert (found.evidence["affected_count"], found.evidence["all_count"]) == (1, 4)


@each
def test_e15_a_forced_protocol_by_its_variable(change: Change, tmp_path: Path) -> None:
    diagnosis = diagnose("E15", tmp_path, change, "nccl.log", "trace.json")
    assert only(diagnosis, "suboptimal-algorithm").evidence["cause"] == "NCCL_PROTO=LL"


def test_e15_a_kernel_name_forces_nothing(tmp_path: Path) -> None:
    diagnosis = diagnose("E15", tmp_path, str, "trace_no_env.json")
    assert not set(ask.found(diagnosis)) & LINK_RULES


@each
def test_d08_the_link_flaps_on_one_host(change: Change, tmp_path: Path) -> None:
    found = only(diagnose("D08", tmp_path, change), "degrading-link")
    assert (found.hosts, found.evidence["events_count"], found.evidence["devices"]) == (
        (host(change, "node-c"),), 6, "4",
    )  # fmt: skip


def records(diagnosis: Any) -> int:
    """Records of known kinds in the logs."""
    return sum(row["events_count"] for row in ask.rows(diagnosis, "files", kind="text"))


def facts(diagnosis: Any) -> list[list[dict[str, Any]]]:
    """What a log says, without where it says it."""
    names = ("communicators", "transports", "log_events", "tunings")
    return [
        [{k: v for k, v in row.items() if k not in ("file", "line")} for row in ask.rows(diagnosis, n)] for n in names
    ]


@each
def test_g01_forms_of_the_same_facts(change: Change, tmp_path: Path) -> None:
    if change in (interleaved, older):
        pytest.skip("the case is about the lines themselves")
    diagnosis = diagnose("G01", tmp_path, change)
    assert {row["rank"] for row in ask.rows(diagnosis, "communicators")} == {0, 3, 13}
    assert {row["size"] for row in ask.rows(diagnosis, "communicators")} == {16}
    assert [r["value"] for r in ask.rows(diagnosis, "settings", key="distributed.nccl_version")] == ["2.19.3"]
    (tuning,) = ask.rows(diagnosis, "tunings")
    assert (tuning["algorithm"], tuning["protocol"], tuning["size_bytes"]) == ("RING", "SIMPLE", 1 << 32)


@each
def test_g02_warnings_and_where_they_were_printed(change: Change, tmp_path: Path) -> None:
    found = ask.rows(diagnose("G02", tmp_path, change), "log_events", level="WARN")
    assert {row["place"] for row in found} == {"transport/net_ib.cc:788", "misc/ibvwrap.cc:63"}
    assert len(found) == 2, "the call chain belongs to the warning"


@pytest.mark.parametrize("name", ["torchrun_tee", "torchrun_rank", "srun", "mpirun", "ray", "double"])
def test_g03_launcher_prefixes_change_nothing(name: str, tmp_path: Path) -> None:
    plain = diagnose("G03", tmp_path, str, "plain.log")
    other = diagnose("G03", tmp_path, str, f"{name}.log")
    assert facts(other) == facts(plain)
    assert records(other) == records(plain) == 8


@pytest.mark.parametrize("name, count", [("glued.log", 4), ("cri.log", 1), ("docker.json.log", 2), ("kubectl.log", 1)])
def test_g05_containers(name: str, count: int, tmp_path: Path) -> None:
    diagnosis = diagnose("G05", tmp_path, str, name)
    assert records(diagnosis) == count
    if name == "cri.log":
        (row,) = ask.rows(diagnosis, "transports")
        assert (row["transport"], row["detail"], row["from"], row["to"]) == ("P2P", "CUMEM", 0, 1)


def test_g09_the_rank_of_the_largest_communicator(tmp_path: Path) -> None:
    diagnosis = diagnose("G09", tmp_path, str)
    assert {Path(r["path"]).name[-4:]: r["rank"] for r in ask.rows(diagnosis, "files")} == {"4000": 2, "4001": 3}
    assert {row["rank"] for row in ask.rows(diagnosis, "communicators", process=4001)} == {3}


@each
def test_g11_one_process_with_several_gpus(change: Change, tmp_path: Path) -> None:
    found = ask.rows(diagnose("G11", tmp_path, change), "communicators")
    assert {(row["device"], row["rank"]) for row in found} == {(0, 0), (1, 1)}


@each
def test_g12_counters_are_hexadecimal_and_types_are_numbers(change: Change, tmp_path: Path) -> None:
    found = ask.rows(diagnose("G12", tmp_path, change), "calls")
    assert [row["seq"] for row in found] == [13, 14, 15, 16]
    assert [row["size_bytes"] for row in found] == [8388608, 8388608, 512, 4]
    assert [row["op"] for row in found] == ["all_gather", "reduce_scatter", "all_gather", "all_reduce"]


def with_ranks(document: Any, new: dict[int, int]) -> Any:
    """A dump in which every rank has another number."""
    for group in document["pg_config"].values():
        group["ranks"] = str([new[rank] for rank in ast.literal_eval(group["ranks"])])
    return document


@pytest.mark.parametrize("kinds", ["both", "pickle", "json"])
@pytest.mark.parametrize("turned", [False, True])
def test_g13_the_missing_rank_is_the_cause(kinds: str, turned: bool, tmp_path: Path) -> None:
    new = {rank: (rank + 1) % 4 if turned else rank for rank in range(4)}
    for path in (ask.CASES / "G13").glob("*rank_*"):
        is_json = path.suffix == ".json"
        if kinds in ("both", "json" if is_json else "pickle"):
            old = int(re.sub(r"\D", "", path.stem))
            document = with_ranks(json.loads(path.read_bytes()) if is_json else pickle.loads(path.read_bytes()), new)
            name = path.name.replace(str(old), str(new[old]))
            (tmp_path / name).write_bytes(json.dumps(document).encode() if is_json else pickle.dumps(document, 2))
    log = (ask.CASES / "G13" / "train.log").read_text()
    (tmp_path / "train.log").write_text(re.sub(r"(?i)(rank ?)(\d)", lambda m: m[1] + str(new[int(m[2])]), log))
    found = ask.finding(ask.run(tmp_path), "stuck-collective")
    assert found.ranks == (new[2],)
    assert (found.evidence["seq"], found.evidence["op"], found.evidence["enqueued_seq"]) == (4, "all_gather", 3)
    assert found.evidence["waiting_ranks"] == sorted(new[r] for r in (0, 1, 3))
    assert "out of memory" in found.summary
    assert "network" not in found.summary


def test_g13_the_log_alone_shows_who_waited(tmp_path: Path) -> None:
    diagnosis = diagnose("G13", tmp_path, str, "train.log")
    assert {(r["rank"], r["seq"], r["op"]) for r in ask.rows(diagnosis, "calls", state="timed_out")} == {
        (rank, 4, "all_gather") for rank in (0, 1, 3)
    }


def test_g15_both_entered_so_no_rank_is_at_fault(tmp_path: Path) -> None:
    found = ask.finding(diagnose("G15", tmp_path, str), "stuck-collective")
    assert (found.ranks, found.evidence["seq"], found.evidence["role"]) == ((), 905, "entered")
    assert "network" in found.summary


def test_a_log_in_utf_16(tmp_path: Path) -> None:
    found = only(diagnose("E03", tmp_path, str, encoding="utf-16"), "socket-transport")
    assert found.ranks == (0, 1, 2, 3)


@pytest.mark.parametrize("fault, culprits", [("gpu_error_1st", (12, 14)), ("lock_gil_1st", (9, 14))])
@pytest.mark.parametrize("turned", [0, 5])
def test_public_dumps_with_other_ranks(
    fault: str, culprits: tuple[int, int], turned: int, corpus: Path, tmp_path: Path
) -> None:
    new = {rank: (rank * 7 + turned) % 16 if turned else rank for rank in range(16)}
    for path in (corpus / "nvrx/tests/attribution/unit/fr_traces" / fault).glob("_dump_*"):
        document = with_ranks(pickle.loads(path.read_bytes()), new)
        name = f"host{int(path.name[6:]) // 8}_rank{new[int(path.name[6:])]}"
        (tmp_path / name).write_bytes(pickle.dumps(document, 2))
    found = [f for f in ask.run(tmp_path).findings if f.rule == "stuck-collective"]
    assert {rank for f in found for rank in f.ranks} == {new[rank] for rank in culprits}
    waited = {rank for f in found for rank in f.evidence["waiting_ranks"]}
    assert not waited & {new[rank] for rank in culprits}


@pytest.mark.parametrize("turned", [False, True])
def test_e18_the_host_in_all_slow_pairs(turned: bool, tmp_path: Path) -> None:
    text = (ask.CASES / "E18" / "pairs.csv").read_text()
    path = tmp_path / "pairs.csv"
    path.write_text(text.replace("n4", "x").replace("n1", "n4").replace("x", "n1") if turned else text)
    found = ask.finding(ask.run(path), "slow-node")
    assert found.hosts == ("n1" if turned else "n4",)
    assert "crossing switches does not explain" in found.summary
