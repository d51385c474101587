"""The job a plan is made for: model, training recipe, layout, cluster and what the search may change.

The keys are those of `job.toml`. Every key is optional; a value that is not given is derived from others or taken
from a documented default, and the default is listed in `Job.assumed`, so that nothing is assumed in silence.
It does not mean that the job can run: legality and memory are judged in `feasibility`.
World-size identities: N = tp*cp*pp*dp = etp*ep*pp*edp (EP folds into dp*cp*tp);
global batch = dp*micro_batch*microbatches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from diagnose.errors import UsageError


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder-only transformer. `ffn` is the dense width, `expert_ffn` one expert's; sizes are counts, not bytes."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    seq_len: int
    gated: bool = True
    tied: bool = False
    experts: int = 0
    topk: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    capacity_factor: float = 0.0
    attention: str = "flash"
    q_lora: int = 0
    kv_lora: int = 0
    rope_dim: int = 0

    @property
    def moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0


@dataclass(frozen=True, slots=True)
class Train:
    """How one step is computed. `attention_kernel` and `fusion` say which kernels the software
    has: `none` is eager PyTorch, `norms` has fused norms and rotary embedding only, `all` is compiled or hand-fused.
    `loss`: `fused`, `torch` or `parallel` (planner.head); empty means the framework's own. `dispatcher` = `alltoall`
    sends a token once for each of its experts; empty means once to each node (DeepEP, HybridEP). `graph_scope` =
    `dense`: CUDA graphs end where an expert's tokens must be counted. `gather_dtype`: what sequence parallel ranks
    gather."""

    micro_batch: int
    global_batch: int
    precision: str = "bf16"
    grad_dtype: str = "fp32"
    optimizer: str = "adam"
    zero: int = 1
    shard_group: int = 0
    recompute: tuple[str, ...] = ()
    offload_ratio: float = 0.0
    trainable_ratio: float = 1.0
    dispatch_dtype: str = "bf16"
    combine_dtype: str = "bf16"
    dispatcher: str = ""
    gather_dtype: str = "bf16"
    routing: str = "dropless"
    attention_kernel: str = ""
    fusion: str = "all"
    loss: str = ""
    cuda_graphs: bool = False
    graph_scope: str = "all"
    dropout: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of each parallel dimension, and how the pipeline and its communication are scheduled."""

    dp: int
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1
    etp: int = 1
    vpp: int = 1
    sp: bool = True
    stage_layers: tuple[int, ...] = ()
    schedule: str = "1f1b"
    rank_order: str = "tp-cp-ep-dp-pp"
    overlap_grad_reduce: bool = True
    overlap_tp: bool = False
    overlap_ep: bool = False

    @property
    def world_size(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    @property
    def edp(self) -> int:
        """Replicas of one expert shard: N / (etp*ep*pp)."""
        return max(1, self.world_size // (self.etp * self.ep * self.pp))


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines. Bandwidths are one-way bytes/s per GPU; 0 means: from the device table."""

    gpus: int
    gpus_per_node: int
    gpu: str
    gpu_memory_bytes: int
    fast_domain: int
    intra_bytes_per_s: float
    inter_bytes_per_s: float
    intra_latency_ns: float = 0.0
    inter_latency_ns: float = 0.0
    racks: int = 0


@dataclass(frozen=True, slots=True)
class Search:
    """What the search may change. An empty tuple of allowed degrees means every degree that divides."""

    gpus: int = 0
    max_gpus: int = 0
    allowed: tuple[tuple[str, tuple[int, ...]], ...] = ()
    fixed_global_batch: bool = True
    framework: str = "megatron"

    def allowed_of(self, dimension: str) -> tuple[int, ...]:
        return dict(self.allowed).get(dimension, ())


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that `predict` needs. Build it with `Job.from_dict`; change it with `Job.with_layout`."""

    model: Model
    train: Train
    layout: Layout
    cluster: Cluster
    search: Search = field(default_factory=Search)
    assumed: tuple[str, ...] = ()

    @staticmethod
    def from_dict(tables: Mapping[str, Any]) -> Job:
        """The job from the tables of `job.toml`. UsageError: one line on the first thing that makes no sense."""
        from diagnose.planner.reading import read_job

        return read_job(tables)

    @property
    def microbatches(self) -> int:
        """Micro-batches per step and pipeline (gradient accumulation)."""
        return max(1, self.train.global_batch // (self.layout.dp * self.train.micro_batch))

    @property
    def tokens(self) -> int:
        """Tokens of one step, all GPUs together."""
        return self.train.global_batch * self.model.seq_len

    def with_layout(self, layout: Layout, **train: Any) -> Job:
        """The same job in another layout (and recipe); its cluster holds exactly the GPUs of the layout."""
        return replace(
            self,
            layout=layout,
            train=replace(self.train, **train) if train else self.train,
            cluster=replace(self.cluster, gpus=layout.world_size),
        )


def nonsense(problem: str, do: str) -> UsageError:
    """The one line that names a problem in a job description."""
    return UsageError(f"job: {problem}; {do}")
