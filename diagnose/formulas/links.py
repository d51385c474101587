"""How long a collective takes on healthy links: latency, bandwidth, and the cost of cutting a message into chunks.

    t = latency + x + 2*sqrt(chunk * x),   x = size * busbw factor / bandwidth

The last term is the optimum of chunked pipelining: with chunks of c bytes a ring of n steps pays its fill (steps *
c) and a fixed cost per chunk (x / c); the best c costs twice the geometric mean. It is why bus bandwidth saturates
slowly. All constants are NCCL's own (src/graph/tuning.cc: base and per-hop latencies, per-link NVLink bandwidth,
NVLS efficiency), none is fitted. It does not include waiting for late ranks, congestion, or a slow NIC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from diagnose.formulas.bandwidth import busbw_factor

RING_BASE_S = 8.4e-6
"""NCCL base latency of the Simple protocol."""
LL_BASE_S, LL_HOP_S, LL_NET_S = 6.6e-6, 0.6e-6, 2.7e-6
SIMPLE_HOP_S, CHUNK_HOP_S = 3.4e-6, 1.9e-6
NET_HOP_S = 14e-6
NVLS_S = 25e-6
TREE_HOP_S = 4.0e-6
TREE_SHARE = 0.85
"""Tree against ring bandwidth over several nodes: 310 against 365 GB/s on four H200 nodes (stas00/ml-engineering)."""
NVLS_EFFICIENCY = {90: 0.85, 100: 0.74, 103: 0.74}
"""By compute capability; NVLink SHARP exists from Hopper on."""
WIRE_SHARE = 0.92
"""Share of a NIC's line rate that arrives: 0.96 for one RDMA link, 0.88 on large fabrics (stas00/ml-engineering)."""
SHARP_MIN_RANKS = 5
"""NCCL takes the ring for groups of four and fewer on one NVSwitch domain."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Links of one GPU: one-way bytes/s inside the fast domain (usable) and to the network, and the domain's size."""

    intra_bytes_per_s: float
    inter_bytes_per_s: float
    domain: int
    generation: int = 0
    inter_latency_s: float = NET_HOP_S


@dataclass(frozen=True, slots=True)
class Placement:
    """A group: its ranks, and how many of them share one fast domain."""

    ranks: int
    per_domain: int

    @property
    def domains(self) -> int:
        return -(-self.ranks // self.per_domain)


def place(ranks: int, stride: int, domain: int) -> Placement:
    """A group of `ranks` GPUs, each `stride` GPUs apart, on domains of `domain` GPUs.

    >>> place(8, 1, 8), place(4, 8, 8)
    (Placement(ranks=8, per_domain=8), Placement(ranks=4, per_domain=1))
    """
    return Placement(ranks, max(1, min(ranks, domain // stride)))


def collective_s(op: str, size_bytes: float, place: Placement, fabric: Fabric) -> float:
    """Seconds of one collective alone on its links. `size_bytes` as nccl-tests counts it; 0 for a group of one."""
    n = place.ranks
    if n <= 1 or size_bytes <= 0:
        return 0.0
    if op == "all_to_all":
        return _all_to_all_s(size_bytes, place, fabric)
    ring = _pipelined_s(size_bytes * (busbw_factor(op, n) or 1.0) / ring_bytes_per_s(place, fabric), *_ring(op, place))
    if op != "all_reduce":
        return ring
    return min(ring, *_other_all_reduce(size_bytes, place, fabric), _low_latency_s(size_bytes, place, fabric))


def send_s(size_bytes: float, crosses: bool, fabric: Fabric) -> float:
    """One point-to-point message inside the domain, or over one NIC."""
    bandwidth = fabric.inter_bytes_per_s * WIRE_SHARE if crosses else fabric.intra_bytes_per_s
    return (fabric.inter_latency_s if crosses else SIMPLE_HOP_S) + RING_BASE_S + size_bytes / bandwidth


def ring_bytes_per_s(place: Placement, fabric: Fabric) -> float:
    """Bus bandwidth of a large ring: the slower of the links inside and of all NICs the group has in one domain."""
    if place.domains == 1:
        return fabric.intra_bytes_per_s
    network = fabric.inter_bytes_per_s * WIRE_SHARE * place.per_domain
    return network if place.per_domain == 1 else min(fabric.intra_bytes_per_s, network)


def _ring(op: str, place: Placement) -> tuple[float, float]:
    """Latency of a ring, and the per-chunk cost that its pipelining pays."""
    steps = (2 if op == "all_reduce" else 1) * (place.ranks - 1)
    crossings = (2 if op == "all_reduce" else 1) * (place.domains - 1) if place.domains > 1 else 0
    latency = RING_BASE_S + (steps - crossings) * CHUNK_HOP_S + crossings * NET_HOP_S
    return latency, (steps - crossings) * CHUNK_HOP_S + crossings * NET_HOP_S


def _pipelined_s(transfer: float, latency: float, chunk: float) -> float:
    return latency + transfer + 2 * math.sqrt(chunk * transfer)


def _other_all_reduce(size: float, place: Placement, fabric: Fabric) -> list[float]:
    """In-switch reduction inside a domain; tree over two domains, where every byte crosses the network once each
    way."""
    n, domains = place.ranks, place.domains
    sharp = NVLS_EFFICIENCY.get(fabric.generation, 0.0) if place.per_domain >= SHARP_MIN_RANKS else 0.0
    inside = fabric.intra_bytes_per_s * sharp * place.per_domain / (place.per_domain + 1) if sharp else 0.0
    if domains == 1:
        return [_pipelined_s(size / inside, NVLS_S, RING_BASE_S)] if inside else []
    if domains > 2:
        hops = 2 * ((place.per_domain - 1) * TREE_HOP_S + math.log2(domains) * fabric.inter_latency_s)
        transfer = size * 2 * (n - 1) / n / (TREE_SHARE * ring_bytes_per_s(place, fabric))
        return [_pipelined_s(transfer, RING_BASE_S + hops, RING_BASE_S + hops)]
    inside = inside or fabric.intra_bytes_per_s * n / (2 * (n - 1))
    network = fabric.inter_bytes_per_s * WIRE_SHARE * place.per_domain
    hops = 2 * ((place.per_domain - 1) * TREE_HOP_S + fabric.inter_latency_s)
    return [_pipelined_s(size / min(inside, network), RING_BASE_S + hops, RING_BASE_S + hops)]


def _low_latency_s(size: float, place: Placement, fabric: Fabric) -> float:
    """The LL protocol: half the bandwidth, the smallest latency."""
    steps, crossings = 2 * (place.ranks - 1), 2 * (place.domains - 1)
    latency = LL_BASE_S + (steps - crossings) * LL_HOP_S + crossings * LL_NET_S
    return latency + 2 * size * (busbw_factor("all_reduce", place.ranks) or 1.0) / ring_bytes_per_s(place, fabric)


def _all_to_all_s(size: float, place: Placement, fabric: Fabric) -> float:
    """Pairwise exchange: the share that stays in the domain and the share that leaves it move side by side."""
    n, inside = place.ranks, place.per_domain
    near = size * (inside - 1) / n / fabric.intra_bytes_per_s
    away = size * (n - inside) / n
    far = away / (fabric.inter_bytes_per_s * WIRE_SHARE) if away else 0.0  # inside one domain no network is needed
    hop = fabric.inter_latency_s if place.domains > 1 else SIMPLE_HOP_S
    return _pipelined_s(max(near, far), RING_BASE_S + hop, hop)
