"""Links that are not what they could be, as NCCL says itself: sockets, no GPU-direct, no peer access, shared network
cards, overridden choices, ports that went down.

Each row is one offence with the hosts it was seen on and, where a variable or message gives it, its cause. A log says
which way NCCL took, not how fast it is; nothing here has a time. `not_recorded` stands for a job without an NCCL log:
no link is known then, only what the environment forces. Names of kernels prove no protocol (NCCL 2.19 and later).
Source: NCCL's src/transport, src/graph/paths.cc (what each level means), its environment variables' documentation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pyarrow as pa

from diagnose.schema import INT64, LABEL, RANKS, TEXT, table

SCHEMA = table(
    "offence of links or of NCCL's choices",
    (
        "kind",
        LABEL,
        "socket_fallback | gdr_disabled | p2p_disabled | nic_unbalanced | forced_protocol | forced_algorithm | "
        "link_flap | link_lost | not_recorded",
    ),
    ("hosts", pa.list_(pa.string()), "where it was seen; empty where the source names none"),
    ("ranks", RANKS, "global ranks that say so, where known"),
    ("cause", TEXT, "variable=value or message that explains it; null where none does"),
    ("devices", TEXT, "network cards or GPUs concerned"),
    ("affected_count", INT64, "channels, events or network cards concerned"),
    ("all_count", INT64, "of how many"),
    ("hosts_count", INT64, "hosts of the job that the log shows"),
    ("value", TEXT, "what was forced, or the first message"),
)

_OFF = ("0", "false", "no", "")
_NIC = re.compile(r"\[(\d+)\](\S+?):")
_HCA = re.compile(r"HCA (\d+) '([^']*)'")
_SOCKET = re.compile(r"(?:Using network|Assigned NET plugin) Socket\b")
_COMPLETION = re.compile(r"(?:error|status=?)\D{0,30}?(\d+)")
_LINK_DEAD = 12  # IBV_WC_RETRY_EXC_ERR: the other side does not answer
Row = dict[str, Any]


def links(
    files: pa.Table,
    settings: pa.Table,
    transports: pa.Table | None = None,
    log_events: pa.Table | None = None,
    communicators: pa.Table | None = None,
) -> pa.Table:
    """Every offence that the inputs show; without NCCL lines only what the settings force, and `not_recorded`."""
    given = {str(k): str(v) for k, v in zip(settings["key"].to_pylist(), settings["value"].to_pylist(), strict=True)}
    rows = _forced(given)
    if transports is None or log_events is None or communicators is None:
        if files.num_rows:
            rows.append({"kind": "not_recorded"})
        return _built(rows)
    log = _Log(transports, log_events, communicators)
    rows += _sockets(log, given) + _gpu_direct(log, given) + _peer_access(log, given) + _cards(log) + _ports(log)
    for row in rows:
        row["hosts_count"] = len(log.hosts)
    return _built(rows)


def _built(rows: list[Row]) -> pa.Table:
    for row in rows:
        row["hosts"] = sorted(row.get("hosts") or ())
        row["ranks"] = sorted({r for r in row.get("ranks") or () if r is not None})
    return SCHEMA.of_rows(rows)


class _Log:
    """The NCCL log's rows, channels counted by what they share."""

    def __init__(self, transports: pa.Table, log_events: pa.Table, communicators: pa.Table) -> None:
        keys = ["rank", "host", "process", "transport", "detail", "net_device", "gpudirect", "direction"]
        counted = transports.select(keys).append_column("n", pa.repeat(1, transports.num_rows))
        self.channels = counted.group_by(keys).aggregate([("n", "sum")]).to_pylist()
        self.events = log_events.to_pylist()
        self.comms = communicators.to_pylist()
        self.hosts = {r["host"] for r in (*self.channels, *self.events, *self.comms) if r["host"]}

    def of(self, *kinds: str) -> list[Row]:
        """Events of these kinds."""
        return [row for row in self.events if row["kind"] in kinds]

    def spans_hosts(self) -> bool:
        """Whether a communicator holds ranks of more than one host."""
        if any((row["node_count"] or 0) > 1 for row in self.comms):
            return True
        if any(row["transport"] == "NET" for row in self.channels):
            return True
        local: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for row in self.comms:
            local[row["host"]].add((row["process"], row["device"]))
        if not self.comms:
            return len(self.hosts) > 1
        return len(self.hosts) > 1 and max(r["size"] for r in self.comms) > max(map(len, local.values()))


def _is_on(given: dict[str, str], key: str) -> bool:
    return given.get(key, "").strip().lower() not in _OFF


def _said(given: dict[str, str], *keys: str) -> str | None:
    """`KEY=value` of the first of these variables that is set."""
    return next((f"{key}={given[key]}" for key in keys if key in given), None)


def _forced(given: dict[str, str]) -> list[Row]:
    """Choices that the environment takes from NCCL's tuner."""
    rows = []
    for key, kind in (("NCCL_PROTO", "forced_protocol"), ("NCCL_ALGO", "forced_algorithm")):
        if given.get(key):
            rows.append({"kind": kind, "cause": f"{key}={given[key]}", "value": given[key].upper()})
    return rows


def _sockets(log: _Log, given: dict[str, str]) -> list[Row]:
    """TCP sockets between hosts."""
    said = [r for r in log.of("network") if _SOCKET.search(r["detail"])]
    used = [r for r in log.channels if r["transport"] == "NET" and r["detail"] == "Socket"]
    if not (said or used) or not log.spans_hosts():
        return []
    cause = "NCCL_IB_DISABLE=" + given["NCCL_IB_DISABLE"] if _is_on(given, "NCCL_IB_DISABLE") else None
    if cause is None and given.get("NCCL_NET", "").lower() == "socket":
        cause = "NCCL_NET=Socket"
    if cause is None:
        cause = next((r["detail"] for r in log.of("no_ib")), None)
    hosts = {r["host"] for r in (*said, *used) if r["host"]}
    row = {
        "kind": "socket_fallback",
        "hosts": hosts,
        "ranks": [r["rank"] for r in (*said, *used)],
        "cause": cause,
        "affected_count": sum(r["n_sum"] for r in used) or None,
        "all_count": sum(r["n_sum"] for r in log.channels if r["transport"] == "NET") or None,
        "value": next((r["detail"] for r in said), "via NET/Socket"),
    }
    return [row]


def _gpu_direct(log: _Log, given: dict[str, str]) -> list[Row]:
    """Network traffic that goes through host memory."""
    network = [r for r in log.channels if r["transport"] in ("NET", "COLLNET") and r["detail"] != "Socket"]
    without = [r for r in network if r["gpudirect"] is False]
    all_, off = sum(r["n_sum"] for r in network), sum(r["n_sum"] for r in without)
    cards = log.of("gdr_disabled")
    if 2 * off <= all_ and not (cards and not all_ and not log.of("gdr_enabled")):
        return []
    if any(_SOCKET.search(r["detail"]) for r in log.of("network")) and not network:
        return []  # nothing to be direct about
    names = sorted({match[2] for r in cards if (match := _HCA.search(r["detail"]))})
    row = {
        "kind": "gdr_disabled",
        "hosts": {r["host"] for r in (*without, *cards) if r["host"]},
        "ranks": [r["rank"] for r in (*without, *cards)],
        "cause": _said(given, "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_IB_CUDA_SUPPORT")
        or next((r["detail"] for r in (*cards, *log.of("gdr_too_far"))), None),
        "devices": ", ".join(names) or None,
        "affected_count": off or None,
        "all_count": all_ or None,
        "value": next((r["detail"] for r in without), None),
    }
    return [row]


def _peer_access(log: _Log, given: dict[str, str]) -> list[Row]:
    """Hosts on which all traffic between GPUs goes through shared host memory."""
    local: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in log.channels:
        if row["transport"] in ("P2P", "SHM"):
            local[row["host"]][row["transport"]].append(row)
    through_host = {host: kinds["SHM"] for host, kinds in local.items() if kinds["SHM"] and not kinds["P2P"]}
    if not through_host:
        return []
    rows = [r for found in through_host.values() for r in found]
    cause = "NCCL_P2P_DISABLE=" + given["NCCL_P2P_DISABLE"] if _is_on(given, "NCCL_P2P_DISABLE") else None
    if cause is None and given.get("NCCL_P2P_LEVEL", "").upper() in ("LOC", "0"):
        cause = "NCCL_P2P_LEVEL=" + given["NCCL_P2P_LEVEL"]
    return [
        {
            "kind": "p2p_disabled",
            "hosts": {h for h in through_host if h},
            "ranks": [r["rank"] for r in rows],
            "cause": cause or next((r["detail"] for r in log.of("p2p_disabled")), None),
            "affected_count": sum(r["n_sum"] for r in rows),
            "all_count": sum(r["n_sum"] for r in log.channels if r["transport"] in ("P2P", "SHM")),
            "value": rows[0]["detail"],
        }
    ]


def _cards(log: _Log) -> list[Row]:
    """Hosts whose GPUs crowd on some network cards while others are free; sending and receiving do not crowd."""
    offered: dict[str, dict[int, str]] = defaultdict(dict)
    for row in log.of("nics"):
        offered[row["host"]] |= {int(index): name for index, name in _NIC.findall(row["detail"])}
    users: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    crowd: dict[str, dict[tuple[int, str], set[int]]] = defaultdict(lambda: defaultdict(set))
    ranks: dict[str, set[int | None]] = defaultdict(set)
    for row in log.channels:
        if row["transport"] == "NET" and row["net_device"] is not None:
            users[row["host"]][row["net_device"]].add(row["process"])
            crowd[row["host"]][row["net_device"], row["direction"]].add(row["process"])
            ranks[row["host"]].add(row["rank"])
    crowded: list[str] = []
    for host, cards in users.items():
        processes = len(set().union(*cards.values()))
        fair = -(-processes // max(1, len(offered[host])))
        if len(cards) < len(offered[host]) and max(map(len, crowd[host].values())) > fair:
            crowded.append(host)
    if not crowded:
        return []
    first = sorted(crowded)[0]
    names = [f"{i} ({offered[first].get(i, '?')})" for i in sorted(users[first])]
    return [
        {
            "kind": "nic_unbalanced",
            "hosts": crowded,
            "ranks": [r for host in crowded for r in ranks[host]],
            "devices": ", ".join(names),
            "affected_count": len(users[first]),
            "all_count": len(offered[first]),
            "value": f"{max(map(len, crowd[first].values()))} GPUs share a network card",
        }
    ]


def _ports(log: _Log) -> list[Row]:
    """Hosts whose network ports went down, and connections that no longer answer."""
    flaps: dict[str, list[Row]] = defaultdict(list)
    for row in log.of("ib_port"):
        if "active" not in row["detail"]:
            flaps[row["host"]].append(row)
    lost: dict[str, list[Row]] = defaultdict(list)
    for row in log.of("ib_completion"):
        status = _COMPLETION.search(row["detail"])
        if status and int(status[1]) == _LINK_DEAD:
            lost[row["host"]].append(row)
    return [
        {
            "kind": kind,
            "hosts": [host] if host else [],
            "ranks": [r["rank"] for r in rows],
            "devices": ", ".join(str(d) for d in sorted({r["device"] for r in rows if r["device"] is not None}))
            or None,
            "affected_count": sum(r["count"] or 1 for r in rows),
            "value": rows[0]["detail"],
        }
        for kind, found in (("link_flap", flaps), ("link_lost", lost))
        for host, rows in found.items()
    ]
