"""Out-of-memory messages: every wording since PyTorch 1.0, the platforms, duplicates, the settings around them."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.ingest.text._oom_lines import OomText

GIB, MIB = 1 << 30, 1 << 20
CURRENT = (
    "torch.OutOfMemoryError: {platform} out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
    "{capacity} of 80.00 GiB of which 1.00 GiB is free. Process 77 has 8.00 GiB memory in use. Process "
    "99 has 12.00 GiB memory in use. Including non-PyTorch memory, this process has 58.00 GiB memory in "
    "use. 70.00 GiB allowed; Of the allocated memory 50.00 GiB is allocated by PyTorch, with 3.00 GiB "
    "allocated in private pools (e.g., CUDA Graphs), and 512.00 MiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 304.00 MiB (GPU 0; 8.00 GiB total capacity; "
    "142.00 MiB already allocated; 6.00 GiB free; 158.00 MiB {kept})"
)


def read(*lines: str) -> OomText:
    text = OomText()
    for number, line in enumerate(lines, 1):
        text.line(number, line)
    return text


def row(*lines: str) -> dict[str, Any]:
    (found,) = read(*lines).rows
    return found


@pytest.mark.parametrize("platform", ["CUDA", "HIP", "XPU", "NPU"])
@pytest.mark.parametrize("capacity", ["capacity", "capacty"])
def test_current_wording(platform: str, capacity: str) -> None:
    found = row("[rank5]: " + CURRENT.format(platform=platform, capacity=capacity))
    assert found["platform"] == platform.lower() and found["rank"] == 5 and found["device"] == 1
    sizes = {k: v / GIB for k, v in found.items() if k.endswith("_bytes")}
    assert sizes == {
        "tried_bytes": 2, "capacity_bytes": 80, "free_bytes": 1, "process_bytes": 58, "other_bytes": 20,
        "other_largest_bytes": 12, "allocated_bytes": 50, "reserved_bytes": 50.5, "unallocated_bytes": 0.5,
        "private_bytes": 3, "limit_bytes": 70,
    }  # fmt: skip
    assert found["other_process"] == 99


def test_old_wordings() -> None:
    total = row(OLD.format(kept="reserved in total by PyTorch"))
    assert (total["reserved_bytes"], total["unallocated_bytes"]) == (158 * MIB, 16 * MIB)
    cached = row(OLD.format(kept="cached"))
    assert (cached["reserved_bytes"], cached["unallocated_bytes"]) == (300 * MIB, 158 * MIB), (
        "cached was the unused part"
    )
    assert cached["free_bytes"] == 6 * GIB and cached["wording"] == "old"


def test_asynchronous_allocator_over_several_lines() -> None:
    lines = (
        "torch.cuda.OutOfMemoryError: Allocation on device 5 would exceed allowed memory. (out of memory)",
        "Currently allocated     : 53.20 GiB",
        "Requested               : 700.00 MiB",
        "Device limit            : 79.10 GiB",
        "Free (according to CUDA): 31.00 MiB",
        "PyTorch limit (set by user-supplied memory fraction)",
        "                        : {limit} GiB",
    )
    for limit, expected in (("17179869184.00", None), ("40.00", 40 * GIB)):
        for prefix in ("", "[rank5]: "):
            found = row(*(prefix + line.format(limit=limit) for line in lines))
            assert found["wording"] == "async" and found["limit_bytes"] == expected
            assert found["tried_bytes"] == 700 * MIB and found["free_bytes"] == 31 * MIB
    assert row(*lines[:3])["tried_bytes"] == 700 * MIB, "a message that is cut is still one"


def test_outside_the_allocator() -> None:
    nccl = row(
        "node-a:912:1203 [3] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'",
        "node-a:912:1203 [3] NCCL WARN Failed to CUDA calloc async 10485760 bytes",
    )
    assert (nccl["allocator"], nccl["device"], nccl["tried_bytes"]) == ("nccl", 3, 10485760)
    assert row("RuntimeError: CUDA error: out of memory")["wording"] == "bare"
    assert row("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling")["allocator"] == "cublas"
    assert row("RuntimeError: cuda runtime error (2) : out of memory at THC.cu:66")["allocator"] == "cuda"


def test_the_same_message_twice_is_one_and_the_launcher_knows_the_rank() -> None:
    message = "  " + CURRENT.format(platform="CUDA", capacity="capacity")
    found = row("  rank      : 4 (local_rank: 4)", message, "[rank4]:[rank4]: " + message)
    assert (found["count"], found["rank"], found["line"]) == (2, 4, 2)
    assert len(read(message, message.replace("GPU 1", "GPU 2")).rows) == 2


def test_own_process_named_like_a_stranger() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 44.50 GiB of which "
        "180.00 MiB is free. Process 88001 has 44.32 GiB memory in use. Of the allocated memory 43.60 GiB is "
        "allocated by PyTorch, and 340.00 MiB is reserved by PyTorch but unallocated."
    )
    found = row(text)
    assert "other_bytes" not in found and found["process_bytes"] == round(44.32 * GIB)
    stranger = row(text.replace("43.60 GiB", "0.10 GiB").replace("340.00 MiB", "2.00 MiB"))
    assert stranger["other_process"] == 88001, "there is room for both"


def test_settings_are_read_hints_are_not() -> None:
    assert read("+ PYTORCH_ALLOC_CONF=expandable_segments:True").settings == {
        "PYTORCH_ALLOC_CONF": "expandable_segments:True"
    }
    given = "'PYTORCH_CUDA_ALLOC_CONF': 'max_split_size_mb:128,garbage_collection_threshold:0.8'"
    assert read(given).settings["PYTORCH_CUDA_ALLOC_CONF"].startswith("max_split_size_mb:128,garbage")
    assert read(CURRENT.format(platform="CUDA", capacity="capacity")).settings == {}
    assert read("try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True").settings == {}


def test_prose_is_no_message() -> None:
    assert read("we ran out of memory once", "CUDA out of memory errors are common", "step 3 loss 2").rows == []
