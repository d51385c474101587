"""How lines of NCCL and RCCL look, 2.4 to 2.30: the prefix, and each kind of message that is read.

`host:pid:tid [device] NCCL INFO text`; warnings have `file:line` (and since 2.30 the function) before `NCCL`, since
2.26 a time in front. `[device]` is the CUDA device of the printing thread, never a rank. Source: src/debug.cc and the
INFO / WARN calls of the release tags.
"""

from __future__ import annotations

import re

HEAD = re.compile(
    r"(?:(?P<process>[^\s:\[\]|>()]+:\d{1,10}):\d+ )?(?:\[(?P<device>\d{1,4})\] )?"
    r"(?:\d+\.\d+ )?(?:(?P<place>[^\s:]+\.\w+:\d+) (?:\([^)]*\) )?)?$"
)
"""What stands in front of `NCCL INFO`; nothing of it where somebody cut it off."""
GLUED = re.compile(r"[^\s:\[\]|>()]+:\d+:\d+ \[\d+\] (?:[^\s:]+:\d+ )?(?:\([^)]*\) )?NCCL (?:INFO|WARN|TRACE) ")
RECORD = r"NCCL (?:INFO|WARN|TRACE|CALL) |^\W*(?:NCCL|RCCL) version|\d(?:NCCL|RCCL) version"
CHANNEL = (
    r"^(?:Channel|CollNet|Coll) (?P<channel>\d{1,6})(?:/\d+)? : "
    r"(?P<from>\d{1,9})\[[0-9a-f]+\] -> (?P<to>\d{1,9})\[[0-9a-f]+\]"
    r"(?: \[(?P<direction>send|receive)\])? via (?P<via>.+)$"
)
COLLNET = (
    r"^Coll(?:Net)? (?P<channel>\d{1,6})(?:/\d+)? : (?P<from>\d{1,9}) \[(?P<direction>send|receive)\] "
    r"via (?P<via>COLLNET/.+)$"
)
CALL = (
    r"^(?P<op>\w+): opCount (?P<count_hex>[0-9a-f]{1,15}) sendbuff \S+ recvbuff \S+ (?:acc \S+ )?"
    r"count (?P<elements>\d{1,18}) datatype (?P<type>\d{1,4}) op \d+ root -?\d+ comm (?P<comm>\S+) "
    r"\[nranks=(?P<size>\d{1,9})\]"
)
CALL_HEAD = re.compile(rb"\w{1,7}:|\w{8}")
"""The first 8 bytes of such a message."""
COMM_LINE = r"comm (?:0x[0-9a-f]+|\(nil\)) rank \d+ n[rR]anks"
TUNING = re.compile(
    r"(?:(?P<op>\w+)(?: \[[\w ]+\])?: )?(?P<bytes>\d{1,18}) Bytes -> "
    r"(?:Algo (?P<algo>\w+) proto (?P<proto>\w+)|Kernel (?P<kernel>\S+))"
    r"(?:.*?channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,6})\.\.(?P<high>\d{1,6})\}| nchannels (?P<channels>\d{1,6}))?"
)
COMM = re.compile(
    r"comm (?P<comm>0x[0-9a-f]+|\(nil\)) rank (?P<rank>\d{1,9}) n[rR]anks (?P<size>\d{1,9})"
    r"(?: nNodes (?P<nodes>\d{1,9}))?"
    r"(?: localRanks \d+ localRank \d+)?(?: MNNVL \d+)?(?: cudaDev (?P<device>\d{1,4}))?.*?"
    r"(?: commId (?P<id>0x[0-9a-f]+))?(?: ?- (?P<phase>Init START|Init COMPLETE|\w+ COMPLETE))?\s*$"
)
ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOCOLS = ("LL", "LL128", "SIMPLE")
OPERATIONS = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter", "Broadcast": "broadcast",
    "Reduce": "reduce", "AlltoAll": "all_to_all", "AllToAll": "all_to_all", "Send": "send", "Recv": "recv",
    "SendRecv": "p2p", "Gather": "gather", "Scatter": "scatter",
}  # fmt: skip
DTYPES = (
    ("int8", 1), ("uint8", 1), ("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8), ("float16", 2), ("float32", 4),
    ("float64", 8), ("bfloat16", 2), ("float8_e4m3", 1), ("float8_e5m2", 1),
)  # fmt: skip
"""By NCCL's number."""

VIA = re.compile(
    r"(?P<transport>NET|COLLNET)/(?P<net>.+?)/(?P<device>\d{1,6})(?:\(\d+\))?(?P<gdr>/GDRDMA(?:\(PCI\))?)?(?P<rest>/Shared)?\s*$"
    r"|(?P<local>P2P|SHM)(?:/(?P<how>.+?))?\s*$|(?P<direct>direct shared memory)\s*$"
)
VERSION = re.compile(r"(?:^|(?:NCCL|RCCL) )version ?:? ?(?P<version>\d+\.\d+\.\d+)[^\s+]*(?:\+cuda(?P<cuda>\d+\.\d+))?")
SETTING = re.compile(
    r"^(?P<key>(?:NCCL|RCCL)_\w+) set (?:by environment )?to (?P<value>.*?)\.?\s*$"
    r"|^Comm config \w+ reset to (?P<key2>NCCL_\w+)=(?P<value2>\S+)"
)

EVENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("network", re.compile(r"^Using network |^Assigned NET plugin ")),
    ("nics", re.compile(r"^NET/IB : Using(?: \[\d+\]|.*OOB)")),
    ("no_ib", re.compile(r"^NET/IB : No device found|Failed to open libibverbs|NET/OFI No available provider")),
    ("gdr_enabled", re.compile(r"^NET/\S+ : GPU Direct RDMA Enabled|^DMA-BUF is available")),
    ("gdr_disabled", re.compile(r"^NET/\S+ : GPU Direct RDMA Disabled")),
    ("gdr_too_far", re.compile(r"^GPU Direct RDMA Disabled for ")),
    ("ib_completion", re.compile(r"NET/IB ?(?:/GIN)?: .*Got completion .*(?:error|status)")),
    ("ib_port", re.compile(r"async (?:fatal )?event.*: .*(?:port (?:error|active)|GID|LID|link)", re.IGNORECASE)),
    ("ib_async", re.compile(r"NET/IB : .*async (?:fatal )?event")),
    ("duplicate_gpu", re.compile(r"^Duplicate GPU detected")),
    ("shared_memory", re.compile(r"Error while .* shared memory segment")),
    ("out_of_memory", re.compile(r"Failed to (?:CUDA |HIP )?(?:host )?(?:malloc|calloc|alloc)|out of memory")),
    ("nvls", re.compile(r"Failed to bind NVLink SHARP")),
    ("p2p_disabled", re.compile(r"^P2P is disabled between")),
    ("mismatch", re.compile(r"collective mismatch|[Mm]essage truncated|Mismatched NCCL version|mismatch in ")),
    ("cuda", re.compile(r"(?:Cuda|HIP) failure")),
    ("socket", re.compile(
        r"Connection closed by remote|Connect to \S+ failed|Call to (?:recv|connect|accept|send)"
        r"|exceeded (?:retries|timeouts)"
        r"|[Cc]onnection (?:reset|refused)"
    )),
    ("fatal", re.compile(r"communicator encountered a fatal error")),
)  # fmt: skip
"""(kind, pattern on the message), first match wins; other warnings are `warning`, other lines are not kept."""
KEPT = (
    r"_\w+ set (?:by environment )?to |reset to NCCL_|Using network|Assigned NET|NET/IB ?: (?:Using|No)"
    r"|NET/OFI No"
    r"|GPU Direct RDMA|DMA-BUF is|P2P is disabled between|(?:NCCL|RCCL) version|^version| Bytes -> "
)
"""Lines worth a look one by one, after equal ones are counted."""
