/*
title = "Ranks wait in a collective that does not finish"
severity = "critical"
needs = ["hangs"]
decides = false
collect = "flight recorder dumps of all ranks (TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_FR_BUFFER_SIZE=2000)"
summary = "{who} {verdict}{waiting}{error}"
why = """
A collective ends only after every rank of its group has called it. Ranks that wait in it time out and print errors, the
one that never came prints nothing: look at that one first (an exception, an out-of-memory error, a data loader or
checkpoint that takes for ever, a lock, a GPU fault), not at those that waited."""
fix = """
Get the stack and the log of the named rank: py-spy dump --pid, its last lines, dmesg for Xid errors. All ranks must call the
same collectives in the same order: no collective inside `if rank == 0` or behind data-dependent branches; uneven batches with
DDP: model.join() or drop_last=True. stuck_completing: GPU, driver or link of that rank (nvidia-smi -q, dcgmi diag). All
entered: network or NCCL (NCCL_DEBUG=INFO, fabric counters). Keep TORCH_NCCL_ASYNC_ERROR_HANDLING on; Megatron-LM
--distributed-timeout-minutes, torchtitan comm.train_timeout_seconds, init_process_group(timeout=...) decide how soon it shows."""
quiet_when = "every recorded call completed, or the dumps of too many ranks are missing to tell who is absent"
sources = [
  "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",
  "https://github.com/pytorch/pytorch/tree/main/torch/distributed/flight_recorder",
]
*/
WITH culprits AS (
  SELECT
    *,
    ROW_NUMBER() OVER (PARTITION BY rank ORDER BY role <> 'never_enqueued', ts_ns, "group") AS nth,
    COUNT(*) OVER (PARTITION BY rank) AS groups_count
  FROM hangs
  WHERE culprit
),
waiters AS (
  SELECT rank, LIST_SORT(LIST_DISTINCT(FLATTEN(LIST(waiting_ranks)))) AS ranks
  FROM culprits
  GROUP BY rank
),
named AS (
  SELECT *, 'seq ' || seq || ' (' || op || ') of group ' || COALESCE(description || ' ', '') || "group" AS call
  FROM culprits
  WHERE nth = 1
)
SELECT
  0 AS lost_ns,
  'rank ' || n.rank AS who,
  CASE n.role
    WHEN 'never_enqueued' THEN 'never enqueued ' || COALESCE(call, 'a collective') || ': its last call there is '
      || COALESCE(CAST(enqueued_seq AS VARCHAR), 'unknown') || ', its peers reached ' || COALESCE(CAST(peers_seq AS VARCHAR), 'further')
      || CASE WHEN unfinished_count = 0 THEN '; it was in no collective at all' ELSE '' END
    WHEN 'stuck_completing' THEN 'enqueued ' || COALESCE(call, 'a collective') || ' but stopped completing: it completed '
      || COALESCE(CAST(completed_seq AS VARCHAR), 'nothing') || ', its peers completed ' || COALESCE(CAST(peers_seq AS VARCHAR), 'more')
    WHEN 'mismatched' THEN 'called another operation than its peers: ' || COALESCE(call, 'a collective')
    ELSE 'left no dump, and the others wait in ' || COALESCE(call, 'a collective')
  END AS verdict,
  CASE WHEN LEN(w.ranks) > 0 THEN '; only waiting for it: ranks ' || ARRAY_TO_STRING(w.ranks, ', ') ELSE '' END AS waiting,
  CASE WHEN first_error IS NULL THEN '' ELSE '; its first error: ' || first_error END AS error,
  n.rank,
  [n.rank] AS ranks,
  n.role,
  n."group",
  n.description,
  n.op,
  n.seq,
  n.size_bytes,
  n.enqueued_seq,
  n.completed_seq,
  n.peers_seq,
  n.unfinished_count,
  w.ranks AS waiting_ranks,
  n.groups_count,
  n.first_error,
  CASE n.role WHEN 'never_enqueued' THEN 0.9 WHEN 'stuck_completing' THEN 0.85 WHEN 'mismatched' THEN 0.9 ELSE 0.6 END AS confidence_ratio,
  'critical' AS severity
FROM named AS n JOIN waiters AS w ON w.rank = n.rank
UNION ALL BY NAME
SELECT
  0 AS lost_ns,
  'all ' || COUNT(*) || ' ranks' AS who,
  'of group ' || COALESCE(ANY_VALUE(description) || ' ', '') || ANY_VALUE("group") || ' had entered seq ' || ANY_VALUE(seq) || ' ('
    || ANY_VALUE(op) || ') and none had finished it when the dumps were written: no rank is at fault; if the job hung there, '
    || 'look at the network, NCCL or the GPU' AS verdict,
  '' AS waiting,
  '' AS error,
  NULL AS rank,
  [] AS ranks,
  'entered' AS role,
  ANY_VALUE("group") AS "group",
  ANY_VALUE(op) AS op,
  ANY_VALUE(seq) AS seq,
  LIST_SORT(LIST(rank)) AS waiting_ranks,
  0.5 AS confidence_ratio,
  'warning' AS severity
FROM hangs
WHERE role = 'entered'
HAVING COUNT(*) > 0
ORDER BY confidence_ratio DESC, rank
