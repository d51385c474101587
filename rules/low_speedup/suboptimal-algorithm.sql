/*
title = "NCCL does not take the best way it could"
severity = "warning"
needs = ["links"]
summary = "{what}{shown_hosts}{why_so}"
why = """
NCCL measures nothing: it takes the way that topology, tuner and environment leave it. A forced protocol holds for every size:
LL reaches half of the bandwidth at best, and only small messages gain by it. GPUs of one node that go through shared memory
share the host's memory bandwidth instead of NVLink or PCIe peer access. GPUs that share one card share its bandwidth while the
others are idle."""
fix = """
Unset NCCL_PROTO and NCCL_ALGO, or force them per operation (NCCL_ALGO="allreduce:tree" since 2.24) after measuring with nccl-tests.
Peer access: unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL=LOC; else turn off ACS and IOMMU translation (nvidia-smi topo -p2p r shows
who may), in virtual machines pass the topology through; consumer cards have none. Network cards: NCCL_TOPO_FILE of the provider,
the same order of GPUs and cards (CUDA_VISIBLE_DEVICES), NCCL_IB_HCA, NCCL_CROSS_NIC. Kernel names with RING_LL are no evidence
(NCCL 2.19 and later). Megatron-LM --nccl-communicator-config-path and torch.distributed ProcessGroupNCCL.Options set limits per group."""
quiet_when = """
nothing is forced, GPUs of a node reach each other directly, and cards are shared fairly; a name of a kernel alone never counts"""
collect = "an NCCL log of all ranks (NCCL_DEBUG=INFO)"
sources = [
  "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL_PROTO: users are discouraged from setting it)",
  "https://github.com/NVIDIA/nccl/issues/1304",
  "https://github.com/NVIDIA/nccl/issues/489",
  "https://github.com/NVIDIA/nccl/issues/820",
]
[params]
max_used_ratio = { default = 0.5, doc = "of the network cards on a host: shared cards count where a smaller share than this is in use; a guess, to be fitted" }
*/
WITH found AS (
  SELECT
    *,
    CASE
      WHEN kind = 'forced_protocol' AND value = 'LL' THEN 'warning'
      WHEN kind IN ('forced_protocol', 'forced_algorithm') THEN 'info'
      ELSE 'warning'
    END AS severity,
    CASE kind
      WHEN 'forced_protocol' THEN 'the environment forces the protocol: '
      WHEN 'forced_algorithm' THEN 'the environment forces the algorithm: '
      WHEN 'p2p_disabled' THEN 'all ' || affected_count || ' channels between GPUs of a node go through shared host memory (SHM), peer access is off'
      WHEN 'nic_unbalanced' THEN value || ': ' || affected_count || ' of ' || all_count || ' network cards are used, ' || devices
    END AS what
  FROM links
  WHERE kind IN ('forced_protocol', 'forced_algorithm', 'p2p_disabled')
    OR (kind = 'nic_unbalanced' AND affected_count < $max_used_ratio * all_count)
)
SELECT
  0 AS lost_ns,
  what,
  CASE WHEN LEN(hosts) = 0 THEN '' WHEN LEN(hosts) <= 4 THEN ' on ' || ARRAY_TO_STRING(hosts, ', ') ELSE ' on ' || LEN(hosts) || ' hosts' END AS shown_hosts,
  CASE
    WHEN kind IN ('forced_protocol', 'forced_algorithm') THEN COALESCE(cause, '')
      || CASE WHEN value = 'LL' THEN ', which halves the bandwidth of large messages' ELSE ', whatever the message size' END
    WHEN cause IS NOT NULL THEN ': ' || cause
    WHEN kind = 'p2p_disabled' THEN ': ACS, IOMMU or cards without peer access are the candidates'
    ELSE ''
  END AS why_so,
  hosts,
  ranks,
  kind,
  cause,
  value,
  devices,
  affected_count,
  all_count,
  severity,
  CASE WHEN cause IS NOT NULL THEN 0.9 WHEN kind = 'p2p_disabled' THEN 0.6 ELSE 0.7 END AS confidence_ratio,
  NULL AS undecided
FROM found
UNION ALL BY NAME
SELECT 0 AS lost_ns, 'only the environment is known, not which way NCCL took' AS undecided
FROM links
WHERE kind = 'not_recorded'
