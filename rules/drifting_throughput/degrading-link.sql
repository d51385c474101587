/*
title = "A network port goes down and comes back"
severity = "critical"
needs = ["links", "transports"]
summary = "{shown_hosts}: {events_count} {what}{gpus}"
why = """
A port that flaps makes collectives retry or reroute: single steps take several times as long, at random, until a connection
gives up (error 12, retry exceeded) and the job hangs or dies. Step times look like noise; these messages are the cause."""
fix = """
Take the host out, then look at cable, transceiver, port and switch: ibstat, ibdiagnet, mlxlink -d DEVICE -m (error counters, flaps),
ethtool -S, switch log. More retries only hide it: NCCL_IB_TIMEOUT=22, NCCL_IB_RETRY_CNT=7. Keep checkpoints close together until the
host is out; elastic launch (torch.distributed.run --max-restarts) or in-process restart survives the next one. Megatron-LM, DeepSpeed and
FSDP2 need no change."""
quiet_when = "no port event and no unanswered connection is in the NCCL logs"
collect = "an NCCL log of all ranks (NCCL_DEBUG=WARN is enough)"
sources = [
  "https://github.com/NVIDIA/nccl/issues/905",
  "https://github.com/NVIDIA/nccl/issues/1557",
]
[params]
min_events_count = { default = 0, doc = "messages about one host; any port error has interrupted traffic, so none is allowed" }
*/
SELECT
  0 AS lost_ns,
  COALESCE(hosts[1], 'an unnamed host') AS shown_hosts,
  affected_count AS events_count,
  CASE kind
    WHEN 'link_flap' THEN 'port events ("' || COALESCE(value, '') || '")'
    ELSE 'connections no longer answered (completion error 12)'
  END AS what,
  CASE WHEN devices IS NULL THEN '' ELSE ', GPU ' || devices END AS gpus,
  hosts,
  ranks,
  kind,
  value AS message,
  devices,
  CASE WHEN kind = 'link_flap' THEN 0.95 ELSE 0.7 END AS confidence_ratio,
  CASE WHEN kind = 'link_flap' THEN 'critical' ELSE 'warning' END AS severity
FROM links
WHERE kind IN ('link_flap', 'link_lost') AND affected_count > $min_events_count
