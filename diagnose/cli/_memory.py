"""What the allocator does with the large arrays of a command that reads inputs."""

from __future__ import annotations

import ctypes
import sys

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's malloc.h
_LARGE_BYTES = 1 << 20


def return_freed() -> None:
    """Let glibc map each large array on its own, so that freeing it gives the memory back.

    Left alone it raises that threshold to 32 MiB as such arrays are freed, and keeps them: a tenth of the peak.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
