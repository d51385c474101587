/*
title = "Traffic between nodes runs over TCP sockets"
severity = "critical"
needs = ["links", "transports"]
summary = "NCCL uses network Socket on {shown_hosts}: {why_so}"
why = """
Without InfiniBand, RoCE or a plug-in of the cloud (EFA, gIB), NCCL falls back to TCP through the kernel and host memory:
a few GB/s per node instead of tens or hundreds. Two nodes are then often slower than one."""
fix = """
NCCL_IB_DISABLE=1 turns RoCE off as well as InfiniBand: unset it (it usually came with a copied workaround). In containers give
access to the devices (--device=/dev/infiniband, --cap-add=IPC_LOCK, ulimit memlock unlimited, --network=host) and install
libibverbs / rdma-core; on clouds install the network plug-in (aws-ofi-nccl, gIB) and put libnccl-net.so on LD_LIBRARY_PATH.
NCCL_NET=IB makes NCCL fail loudly instead. Until then keep traffic off the wire: Megatron-LM TP and EP inside the node,
FSDP2 / torchtitan hybrid sharding (HSDP), DDP gradient accumulation with no_sync."""
quiet_when = "all ranks are on one node, or NCCL uses InfiniBand, RoCE or a plug-in"
collect = "an NCCL log of all ranks (NCCL_DEBUG=INFO)"
sources = [
  "https://github.com/NVIDIA/nccl/issues/226",
  "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL_IB_DISABLE, NCCL_NET)",
]
*/
SELECT
  0 AS lost_ns,
  CASE WHEN LEN(hosts) = 0 THEN 'unnamed hosts' WHEN LEN(hosts) <= 4 THEN ARRAY_TO_STRING(hosts, ', ') ELSE LEN(hosts) || ' hosts' END AS shown_hosts,
  CASE
    WHEN cause LIKE 'NCCL_IB_DISABLE=%' THEN cause || ' is set in the environment, which turns off InfiniBand and RoCE'
    WHEN cause IS NOT NULL THEN cause
    ELSE 'the log does not say why'
  END AS why_so,
  hosts,
  ranks,
  kind,
  cause,
  value AS message,
  affected_count,
  all_count,
  CASE WHEN affected_count IS NULL THEN 0.85 ELSE 0.95 END AS confidence_ratio
FROM links
WHERE kind = 'socket_fallback'
