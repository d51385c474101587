"""Global rank from the name of a file or folder. A false rank is worse than none, so only the word "rank" counts.

`rank3.`, `rank-34.Jul...`, `rank_0`, `host1_rank-2.1700...`, `traceRank3` are global ranks. `tp_rank1`, `local_rank0`,
`mp_rank_00` are ranks inside something else; `worker_77`, `gpu3`, `node1`, pids, timestamps and steps are no ranks; a
name with two different ranks gives none. A folder must be called after the rank and nothing else (`rank3/`), because
folders are named after experiments, too (`lora_rank16_lr3/`). The patterns are those that writers of traces use
(torchtitan, Megatron-LM, HolisticTraceAnalysis, vLLM, the flight recorder).
"""

from __future__ import annotations

import re

_RANK = re.compile(r"(?P<word>rank|Rank|RANK)[_\-.=: \[(]{0,2}(?P<number>\d{1,6})(?!\d)(?P<after>[A-Za-z]*)")
_FOLDER = re.compile(r"(?:global[_-]?)?rank[_\-=]?(\d{1,6})(?:\.(?:tar|tgz|zip)(?:\.\w+)?)?", re.IGNORECASE)
# a rank inside a part of the job, or of something else
_PARTIAL = re.compile(
    r"(?:^|[^a-z])(?:local|intra|inner|node|host|machine|group|device|tp|pp|dp|ep|cp|sp|vp|mp|etp|edp|fsdp|hsdp|zero|"
    r"shard|replicate|model|tensor|pipeline|pipe|data|expert|context|sequence|parallel|stage|peer|src|dst|from|to|lora|"
    r"low|num|n|page)$"
)


def rank_in_name(name: str) -> int | None:
    """Global rank that a file name states; None where it states none, or two."""
    found = set()
    for match in _RANK.finditer(name):
        before = name[: match.start()]
        if not _begins_a_word(before, match["word"]) or match["after"].lower() not in ("", "of"):
            continue
        if not _PARTIAL.search(_in_front(before)):
            found.add(int(match["number"]))
    return found.pop() if len(found) == 1 else None


def rank_in_folders(folders: list[str]) -> int | None:
    """Global rank that a folder's (or archive's) name states, the innermost first."""
    for folder in folders:
        match = _FOLDER.fullmatch(folder)
        if match:
            return int(match[1])
    return None


def _begins_a_word(before: str, word: str) -> bool:
    """Whether "rank" begins a word: at the start, after a non-letter, or in camel case (`traceRank3`)."""
    last = before[-1:]
    return not (last.isascii() and last.isalpha()) or (last.islower() and word == "Rank")


def _in_front(before: str) -> str:
    """What stands in front of "rank", in lower case, camel case split, without the separator."""
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", before.rstrip("_-. ")).lower()
