"""How long a matrix multiplication takes on a healthy device: its best rate, cut by tiles that do not fill the device.

A product is computed in tiles, one per streaming multiprocessor at a time; the last wave of tiles is rarely full, edges
are padded, and each tile pays a prologue and an epilogue. Memory traffic bounds thin products. The best rate of a
device is measured (MAMF), not its peak. Rows that are not aligned to 16 bytes fall back to the vector units (NVIDIA,
Matrix Multiplication Background: tensor cores need 16-byte alignment to be efficient).
"""

from __future__ import annotations

from math import ceil

TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.8))
"""Tile shapes of the vendor libraries and their rate relative to the largest: a smaller tile reads more per FLOP."""
EPILOGUE_K = 128
"""Prologue and epilogue of a tile, in units of its inner dimension: two 64-wide steps."""
SPLITS = (1, 2, 4, 8)
MEMORY_SHARE = 0.8
"""Share of the memory bandwidth that streaming kernels reach."""
GAP_S = 2e-6
"""From one kernel's end to the next one's start on a full queue."""


def matmul_s(
    shape: tuple[int, int, int],
    rate: float,
    sms: int,
    hbm: float,
    element_bytes: float = 2.0,
    batch: int = 1,
    *,
    overlapped_store: bool = False,
) -> float:
    """Seconds of `batch` products (m x k) x (k x n), shape = (m, n, k); rate in FLOP/s, hbm in bytes/s.

    Kernels before Hopper store a finished tile before the next one starts; later ones overlap it (`overlapped_store`).
    """
    m, n, k = shape
    best = float("inf")
    for tile_m, tile_n, share in TILES:
        tiles = ceil(m / tile_m) * ceil(n / tile_n) * batch
        area = 2.0 * tile_m * tile_n * sms / (rate * share)
        store = 0.0 if overlapped_store else tile_m * tile_n * 2.0 * sms / (hbm * MEMORY_SHARE)
        for split in SPLITS if tiles < sms else (1,):
            seconds = ceil(tiles * split / sms) * (area * (k / split + EPILOGUE_K) + store)
            best = min(best, seconds)
    memory = batch * element_bytes * (m * k + k * n + m * n) / (hbm * MEMORY_SHARE)
    return max(best, memory) + GAP_S


def stream_s(size_bytes: float, hbm: float) -> float:
    """Seconds to move bytes through device memory with element-wise kernels."""
    return size_bytes / (hbm * MEMORY_SHARE)
