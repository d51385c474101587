"""Variants of a trace that say the same thing in another way, so that a test holds the kind of fault and not the file.

A variant renumbers ranks, steps, processes, threads, streams and correlations, moves and scales time, writes the kernel
names of another NCCL version, or shuffles events and keys; it also moves the right answer along (`ns`, `rank`, `step`).
Edits work on the text, so that damaged files stay damaged in the same place; only shuffles need valid JSON.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

_TIME = re.compile(r'("(ts|dur)":\s*"?)(-?\d+(?:\.\d+)?)')
_ID = re.compile(r'("(pid|tid|stream)":\s*"?(?:stream )?)(\d+)')
_LINK = re.compile(r'("(?:correlation|External id|external id)":\s*)(\d+)')
_STEP = re.compile(r"(ProfilerStep#)(\d+)")
_OWN_RANK = re.compile(r'("rank":\s*)(\d+)(,\s*"world_size":\s*)(\d+)')
_PEER_RANK = re.compile(r'("(?:Src Rank|Dst Rank|Root Rank)":\s*)(\d+)')
_NEW_NCCL = re.compile(r"ncclDevKernel_(\w+?)((?:_Sum_)(\w+?))?_RING_LL\([^()]*\)")
_OLD_NCCL = re.compile(r"ncclKernel_(\w+?)_RING_LL_Sum_(\w+)\(ncclWorkElem\)")


@dataclass(frozen=True)
class Variant:
    """One way to say the same: how the text changes and how the answer moves with it."""

    name: str
    scale: Decimal = Decimal(1)
    shift_us: int = 0
    renumber: bool = False
    other_nccl: bool = False
    layout: str = ""
    """"" keeps the text as it is; `shuffled` or `compact` write it anew and need valid JSON."""

    def ns(self, us: float) -> int:
        """Where `us` microseconds of the original stand in this variant, in exact nanoseconds."""
        moved = Decimal(str(us)) * self.scale * 1000
        assert moved == int(moved), f"{us} us is no whole number of nanoseconds in {self.name}"
        return int(moved)

    def rank(self, rank: int, world_size: int) -> int:
        """The rank that plays `rank`'s part here: mirrored within the world."""
        return world_size - 1 - rank if self.renumber else rank

    def step(self, step: int) -> int:
        """The number of `step` here."""
        return step + 17 if self.renumber else step

    def edit(self, text: str, seed: int = 1) -> str:
        """`text` of a trace as this variant writes it."""
        if self.renumber:
            text = _renumbered(text)
        if self.other_nccl:
            text = _renamed(text)
        if self.scale != 1 or self.shift_us:
            text = _TIME.sub(lambda m: m[1] + self._time(m[2], m[3]), text)
        return _LAYOUTS[self.layout](text, seed)

    def _time(self, key: str, value: str) -> str:
        moved = Decimal(value) * self.scale + (self.shift_us if key == "ts" else 0)
        return f"{moved:f}"


ORIGINAL = Variant("original")
RENUMBERED = Variant("renumbered", renumber=True)
MOVED = Variant("moved", scale=Decimal("1.37"), shift_us=7 * 3_600_000_000 + 123_457)
SLOWER = Variant("slower", scale=Decimal(3))
OTHER_NCCL = Variant("other_nccl", other_nccl=True)
SHUFFLED = Variant("shuffled", layout="shuffled")
ALL_AT_ONCE = Variant(
    "all_at_once", scale=Decimal("1.7"), shift_us=3_600_000_001, renumber=True, other_nccl=True, layout="compact"
)
TEXTUAL = (ORIGINAL, RENUMBERED, MOVED, OTHER_NCCL)
"""For files that are not valid JSON."""
ALL = (*TEXTUAL, SHUFFLED, ALL_AT_ONCE)


def write(source: Path, target: Path, variant: Variant, rename: Callable[[str], str] = str) -> list[Path]:
    """Write `variant` of every input under `source` (all files but case.json) to `target`; paths in name order."""
    written = []
    for path in sorted(p for p in source.rglob("*") if p.is_file() and p.name not in {"case.json", "make_big.py"}):
        out = target / path.relative_to(source).parent / rename(path.name)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(_edited(path.read_bytes(), variant))
        written.append(out)
    return written


def _edited(data: bytes, variant: Variant) -> bytes:
    if data[:2] == b"\x1f\x8b":
        text = variant.edit(gzip.decompress(data).decode("utf-8", "surrogateescape"))
        return _members(text.encode("utf-8", "surrogateescape"))
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return variant.edit(data.decode("utf-16")).encode("utf-16")
    return variant.edit(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _members(data: bytes) -> bytes:
    """Gzip as a parallel compressor writes it: several members, an empty one, zero padding."""
    third = max(1, len(data) // 3)
    pieces = [data[i : i + third] for i in range(0, len(data), third)]
    return b"".join(map(gzip.compress, [pieces[0], b"", *pieces[1:]])) + bytes(512)


def _renumbered(text: str) -> str:
    def identity(match: re.Match[str]) -> str:
        number = int(match[3])
        if number == 0 or (match[2] == "pid" and number < 1000):
            return match[0]  # a device index, or the default stream
        return f"{match[1]}{number + (31 if number < 1000 else 7113)}"

    def own(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[4]) - 1 - int(match[2])}{match[3]}{match[4]}"

    worlds = [int(m[4]) for m in _OWN_RANK.finditer(text)]
    text = _OWN_RANK.sub(own, text)
    if worlds:
        text = _PEER_RANK.sub(lambda m: f"{m[1]}{max(0, worlds[0] - 1 - int(m[2]))}", text)
    text = _ID.sub(identity, text)
    text = _LINK.sub(lambda m: m[0] if m[2] == "0" else f"{m[1]}{int(m[2]) + 500_000}", text)
    return _STEP.sub(lambda m: f"{m[1]}{int(m[2]) + 17}", text)


def _renamed(text: str) -> str:
    """Kernel names before NCCL 2.19 become those after it, and the other way round."""

    def newer(match: re.Match[str]) -> str:
        return f"ncclDevKernel_{match[1]}_Sum_{match[2]}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

    def older(match: re.Match[str]) -> str:
        return f"ncclKernel_{match[1]}_RING_LL_Sum_{match[3] or 'int8_t'}(ncclWorkElem)"

    pieces, last = [], 0
    for match in re.finditer(f"{_NEW_NCCL.pattern}|{_OLD_NCCL.pattern}", text):
        old = _OLD_NCCL.fullmatch(match[0])
        new = _NEW_NCCL.fullmatch(match[0])
        pieces += [text[last : match.start()], newer(old) if old else older(new) if new else match[0]]
        last = match.end()
    return "".join([*pieces, text[last:]])


def _shuffled(text: str, seed: int) -> str:
    return _rewritten(text, seed, {"indent": 1})


def _compact(text: str, seed: int) -> str:
    return _rewritten(text, seed, {"separators": (",", ":")})


def _rewritten(text: str, seed: int, style: dict[str, object]) -> str:
    """Events in another order, keys of every object in another order; text that is no JSON object stays as it is."""
    start = "\ufeff" if text.startswith("\ufeff") else ""
    try:
        document = json.loads(text.removeprefix("\ufeff"), parse_float=_Number, parse_constant=_refuse)
    except ValueError:
        return text
    if not isinstance(document, dict):
        return text
    rng = random.Random(seed)
    if isinstance(document.get("traceEvents"), list):
        rng.shuffle(document["traceEvents"])
    encoded = json.dumps(_reordered(document, rng), ensure_ascii=False, default=_mark, **style)  # type: ignore[arg-type]
    return start + _MARKED.sub(lambda m: m[1], encoded)


class _Number:
    """A number that keeps the digits it was written with."""

    def __init__(self, digits: str) -> None:
        self.digits = digits


_MARKED = re.compile(r'"\\u0000number:(-?[\d.eE+-]+)"')


def _mark(number: _Number) -> str:
    return f"\x00number:{number.digits}"


def _refuse(word: str) -> float:
    raise ValueError(word)


def _reordered(value: object, rng: random.Random) -> object:
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: _reordered(value[key], rng) for key in keys}
    return [_reordered(v, rng) for v in value] if isinstance(value, list) else value


_LAYOUTS: dict[str, Callable[[str, int], str]] = {"": lambda text, _: text, "shuffled": _shuffled, "compact": _compact}


def names(variants: Iterable[Variant]) -> list[str]:
    """Test ids."""
    return [v.name for v in variants]
