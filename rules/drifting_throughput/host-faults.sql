/*
title = "The host's kernel log names a fault"
severity = "warning"
needs = ["host_faults"]
needs_values = ["host_faults.kind"]
summary = "{shown_host}{shown_place}: {what}, {events_count} times: {meaning}"
why = """
A GPU with failing memory, a link that is retrained, a bus that repeats transfers or a CPU that is too hot works on, slower, or is about
to stop. One such device slows the whole job, because all others wait for it, and step times show only that one rank is late."""
fix = """
Take the host out before the next start and reset or replace the device: nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT, dcgmi diag -r 3,
nvidia-smi nvlink -e, lspci -vv (LnkSta), ibstat. A pending row remap needs only a GPU reset. Keep checkpoints close together until
then. DDP, FSDP2, DeepSpeed and Megatron-LM have no knob for it; NVRx and torch elastic can exclude the host."""
quiet_when = "no kernel log was given, or it names only what the program itself did"
collect = "the kernel log of the hosts (journalctl -k -o short-iso, or dmesg -T)"
sources = [
  "https://docs.nvidia.com/deploy/xid-errors/index.html",
]
[params]
min_events_count = { default = 0, doc = "messages of one kind about one device; each was an error, so none is allowed" }
min_corrected_count = { default = 20, doc = "messages of errors that the device mended itself; a few a month are ordinary; a guess" }
*/
SELECT
  0 AS lost_ns,
  COALESCE(host, 'a host') AS shown_host,
  CASE WHEN host IS NULL THEN NULL ELSE [host] END AS hosts,
  CASE WHEN place IS NULL THEN '' ELSE ', ' || place END AS shown_place,
  CASE WHEN code IS NULL THEN REPLACE(kind::VARCHAR, '_', ' ') WHEN kind::VARCHAR = 'sxid' THEN 'SXid ' || code ELSE 'Xid ' || code END AS what,
  messages_count AS events_count,
  kind,
  code,
  place,
  blame,
  meaning,
  detail,
  line,
  severity,
  CASE blame::VARCHAR WHEN 'device' THEN 0.9 WHEN 'program' THEN 0.7 ELSE 0.5 END AS confidence_ratio
FROM host_faults
WHERE messages_count > CASE WHEN corrected THEN $min_corrected_count ELSE $min_events_count END
