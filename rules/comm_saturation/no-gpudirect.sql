/*
title = "Network traffic goes through host memory: GPUDirect RDMA is off"
severity = "warning"
needs = ["links", "transports"]
summary = "GPUDirect RDMA is off{cards} on {shown_hosts}{channels}: {why_so}"
why = """
With GPUDirect RDMA the network card reads and writes GPU memory. Without it every byte goes GPU, host memory, card: about
half the bandwidth or less, and CPU memory and PCIe traffic besides. Public reports went from 33 to 93 GB/s by enabling it."""
fix = """
Load nvidia-peermem (modprobe nvidia-peermem; it must be loaded after the RDMA driver) or use a kernel and driver with DMA-BUF
(Linux 5.12, CUDA 11.7, open kernel modules). In containers the module has to be loaded on the host. Unset NCCL_NET_GDR_LEVEL=LOC / 0 and
NCCL_NET_GDR_READ=0. Turn off ACS for PCIe switches between GPU and card. On clouds enable it in the plug-in (FI_EFA_USE_DEVICE_RDMA=1
for older EFA). Afterwards the log says /GDRDMA on every NET channel. In Megatron-LM, FSDP2 and DeepSpeed nothing has to change."""
quiet_when = "most network channels say /GDRDMA, or nothing leaves the node"
collect = "an NCCL log of all ranks (NCCL_DEBUG=INFO)"
sources = [
  "https://github.com/NVIDIA/nccl/issues/1537",
  "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL_NET_GDR_LEVEL)",
]
*/
SELECT
  0 AS lost_ns,
  CASE WHEN devices IS NULL THEN '' ELSE ' for ' || devices END AS cards,
  CASE WHEN LEN(hosts) = 0 THEN 'unnamed hosts' WHEN LEN(hosts) <= 4 THEN ARRAY_TO_STRING(hosts, ', ') ELSE LEN(hosts) || ' hosts' END AS shown_hosts,
  CASE WHEN all_count IS NULL THEN '' ELSE ' (' || affected_count || ' of ' || all_count || ' network channels without /GDRDMA)' END AS channels,
  COALESCE(cause, 'the log does not say why') AS why_so,
  hosts,
  ranks,
  kind,
  cause,
  devices,
  affected_count,
  all_count,
  CASE WHEN devices IS NOT NULL AND all_count IS NOT NULL THEN 0.95 ELSE 0.8 END AS confidence_ratio
FROM links
WHERE kind = 'gdr_disabled'
