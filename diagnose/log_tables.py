"""Ingested tables that logs and flight recorders fill: links, choices of NCCL, messages, and how far a rank got.

A rank here is the global one where the log tells it: of the largest communicator of its process, never the number in
`[brackets]`, which is a CUDA device. Ranks of `transports` are ranks in the communicator.
"""

from __future__ import annotations

from diagnose.tables import BOOL, INT32, INT64, LABEL, TEXT, TableSchema, table

LOGS: dict[str, TableSchema] = {
    "enqueued": table(
        "process group of one rank, as its flight recorder was dumped",
        ("rank", INT32, "global rank"),
        ("file", INT32, "index in files"),
        ("group", LABEL, "process group name"),
        ("enqueued_seq", INT64, "sequence number of the last call enqueued, of whichever kind; 0: none yet"),
        ("started_seq", INT64, "of the last call seen to start; null unless timing is on"),
        ("completed_seq", INT64, "of the last call that the watchdog saw complete; 0: none yet"),
    ),
    "communicators": table(
        "communicator of one process, as an NCCL log tells it",
        ("rank", INT32, "global rank of the process, where it can be told"),
        ("file", INT32, "index in files"),
        ("host", LABEL, "host name"),
        ("process", INT64, "OS pid"),
        ("device", INT32, "CUDA device"),
        ("comm", LABEL, "name of the communicator: commId, else host:pid:address"),
        ("comm_rank", INT32, "rank in the communicator"),
        ("size", INT32, "ranks in the communicator"),
        ("node_count", INT32, "nodes it spans, where printed"),
        ("state", LABEL, "started | complete; one that only started is stuck in initialisation, or the log ends there"),
        ("line", INT64, "first line that names it"),
    ),
    "transports": table(
        "channel between two ranks and how it is carried",
        ("rank", INT32, "global rank of the process that says so, where it can be told"),
        ("file", INT32, "index in files"),
        ("host", LABEL, "host name"),
        ("process", INT64, "OS pid"),
        ("device", INT32, "CUDA device"),
        ("channel", INT32, "channel number"),
        ("from", INT32, "sending rank in the communicator"),
        ("to", INT32, "receiving rank in the communicator"),
        ("transport", LABEL, "P2P | SHM | NET | COLLNET"),
        ("detail", LABEL, "as printed: CUMEM, IPC, direct/direct, IB, Socket, AWS Libfabric, ..."),
        ("net_device", INT32, "index of the network device"),
        ("gpudirect", BOOL, "whether the network reads GPU memory directly; null where that does not apply"),
        ("direction", LABEL, "send | receive, where printed"),
        ("count", INT64, "lines that say the same"),
        ("line", INT64, "the first of them"),
    ),
    "tunings": table(
        "choice of algorithm and protocol for one operation and size",
        ("rank", INT32, "global rank, where it can be told"),
        ("file", INT32, "index in files"),
        ("op", LABEL, "normalised operation; null before NCCL 2.23"),
        ("size_bytes", INT64, "bytes per rank"),
        ("algorithm", LABEL, "TREE | RING | COLLNET_DIRECT | COLLNET_CHAIN | NVLS | NVLS_TREE | PAT | KERNEL"),
        ("protocol", LABEL, "LL | LL128 | SIMPLE; the kernel's name where NCCL picked a kernel"),
        ("channels", INT32, "channels used, where printed"),
        ("count", INT64, "how often"),
    ),
    "log_events": table(
        "kind of message of one process in a log",
        ("rank", INT32, "global rank, where it can be told"),
        ("file", INT32, "index in files"),
        ("host", LABEL, "host name, where printed"),
        ("process", INT64, "OS pid, where printed"),
        ("device", INT32, "CUDA device of the printing thread"),
        ("ts_ns", INT64, "wall clock; null: not printed, or without a zone"),
        ("kind", LABEL, "slug: ib_completion, ib_port, socket, network, gdr_disabled, watchdog_timeout, ..."),
        ("level", LABEL, "INFO | WARN | ERROR"),
        ("detail", TEXT, "the message without its prefix"),
        ("place", LABEL, "source file:line that printed it"),
        ("count", INT64, "how many alike"),
        ("line", INT64, "line of the first, from 1"),
    ),
}
