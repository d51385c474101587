"""What a trace says about itself outside its events: the keys before and after `traceEvents`.

A header can stand on either side of the events, or on both; a damaged one is read key by key.
"""

from __future__ import annotations

import json
import re
from typing import Any

from diagnose.ingest.kineto._faults import Faults
from diagnose.ingest.kineto._repair import repair, tidy
from diagnose.ingest.kineto._scan import LONGEST_TOKEN

Header = dict[str, Any]

_DECODER = json.JSONDecoder(strict=False)
_EVENTS = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_FIRST_EVENT = re.compile(rb'\[\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts)"\s*:)')
_KEY = re.compile(r'"([^"\\]{1,80})"\s*:\s*')
_SPLICE = re.compile(r"\}\s*(?=[{\[])")

PROFILER_FLAGS = ("with_stack", "record_shapes", "profile_memory", "with_modules", "with_flops")


def find_events(text: bytes, final: bool) -> tuple[int, int] | None:
    """End of the header and start of the events in the beginning of a document, or None where there are none.

    `final`: no more text will come, so a start without its key is better than none.
    """
    lead = len(text) - len(text.lstrip())
    if text[lead : lead + 1] == b"[":
        return lead, lead + 1
    match = _EVENTS.search(text) or (_FIRST_EVENT.search(text) if final else None)
    return (match.start(), match.end()) if match else None


def parse_head(text: bytes, offset: int, faults: Faults) -> Header:
    """Keys before the events: text from `{` to just before `"traceEvents"`."""
    plain = text.decode("latin-1").strip().rstrip(",")
    return _read(plain + "}", offset, faults) if plain[:1] == "{" else {}


def parse_tail(text: bytes, offset: int, final: bool, faults: Faults) -> tuple[Header, int] | None:
    """Keys behind the events and the length of the text up to the end of the document.

    None: the document does not end in this text, and more may come.
    """
    plain = text.decode("latin-1")
    lead = len(plain) - len(plain.lstrip(" \t\r\n,"))
    opened = "{" + plain[lead:]
    try:
        value, end = _DECODER.raw_decode(opened)
        return _clean(value), lead + end - 1
    except json.JSONDecodeError as error:
        cut = error.pos >= len(opened.rstrip()) or error.msg.startswith("Unterminated")
        if not final and (cut or error.pos >= len(opened) - LONGEST_TOKEN):
            return None
    except RecursionError:
        cut = False
    splice = _SPLICE.search(plain)
    if splice is None and not final:
        return None
    end = splice.end() if splice else len(plain)
    if cut and not splice:
        faults.add("truncated", at=offset + len(text), detail="the file ends behind its last event, inside the header")
        return _clean(_salvage(opened)), end
    return _read("{" + plain[lead:end], offset, faults), end


def _read(text: str, offset: int, faults: Faults) -> Header:
    try:
        return _clean(_DECODER.raw_decode(text)[0])
    except (ValueError, RecursionError):
        pass
    mended = repair(text)
    if mended:
        faults.add(mended[1], at=offset, detail="outside the events")
        return _clean(json.loads(mended[0]))
    faults.add("repaired_event", at=offset, detail="the header is not valid JSON and was read key by key")
    return _clean(_salvage(text))


def _salvage(text: str) -> Header:
    """The keys whose values can still be read, top level first."""
    found: Header = {}
    at = 0
    while match := _KEY.search(text, at):
        try:
            value, at = _DECODER.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            at = match.end()
        else:
            found.setdefault(match[1], value)
    return found


def _clean(value: object) -> Header:
    """Texts back from latin-1 to what the bytes meant."""
    if not isinstance(value, dict):
        return {}
    raw = json.dumps(value, ensure_ascii=False).encode("latin-1", errors="replace")
    cleaned: Header = json.loads(tidy(raw)[0])
    return cleaned


def settings_of(header: Header) -> dict[str, str]:
    """The `settings` rows of a header: profiler flags, distributed set-up, versions and the GPU."""
    found = {f"profiler.{flag}": str(header[flag]) for flag in PROFILER_FLAGS if flag in header}
    info = distributed(header)
    found |= {f"distributed.{k}": str(info[k]) for k in ("backend", "nccl_version", "world_size") if k in info}
    found |= {k: str(v) for k, v in header.items() if k.endswith("_version") and not isinstance(v, (dict, list))}
    return found


def distributed(header: Header) -> Header:
    """`distributedInfo`, which on-demand traces may write as text."""
    info = header.get("distributedInfo")
    if isinstance(info, str):
        try:
            info = json.loads(info)
        except ValueError:
            return {}
    return info if isinstance(info, dict) else {}


def devices(header: Header) -> list[Header]:
    """`deviceProperties`: the devices of the host, used or not."""
    found = header.get("deviceProperties")
    return [d for d in found if isinstance(d, dict)] if isinstance(found, list) else []


def whole(value: object) -> int | None:
    """A number that may be written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None
