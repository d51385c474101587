/*
title = "Matrix products run far below the GPU's rate"
severity = "warning"
needs = ["mean_steps", "spans", "gemms"]
needs_values = ["gemms.efficiency_ratio"]
summary = "rank {rank}: matrix products reach {efficiency_ratio} of the {dtype} peak; at {target_ratio} they would take {lost_ns} of {step_ns} less {scope}; most is lost in {op} {shape}"
why = """
Large, well-shaped matrix products reach 50 to 90 % of the data-sheet rate. Far below it they are too small to fill the
GPU, have a side that does not fit the tiles, or compute in a wider type than needed."""
fix = """
Thicker products: a larger micro-batch, less tensor parallelism, grouped GEMM for experts (Megatron-LM --moe-grouped-gemm).
Sides that are multiples of 64 (128 on recent GPUs): pad the vocabulary (Megatron-LM --make-vocab-size-divisible-by 128,
done by hand in others), choose head sizes that are multiples of 8. A lower-precision type where numerics allow it: bf16 autocast,
torch.set_float32_matmul_precision("high") for TF32, fp8 (Transformer Engine, torchao) for large products. Check clocks and
power limits before anything else if the same shapes are slow on some ranks only."""
quiet_when = """
products are a small part of the step or near the achievable rate; shapes are not recorded or the peak is not known. Products
whose rate exceeds the peak are not counted (a wrong peak)."""
sources = [
  "achievable rates (MAMF): A100 87 %, H100 80 %, B200 78 %, MI300X 51 % of the data-sheet peak: https://github.com/stas00/ml-engineering (compute/accelerator)",
  "shapes: 94 to 120 TFLOP/s from one hidden size to another: https://github.com/bigscience-workshop/bigscience (chronicles-prequel)",
]
[params]
max_efficiency_ratio = { default = 0.40, doc = "of the peak, over all recorded products; below half of what every listed GPU but one achieves; a guess, to be fitted" }
target_ratio = { default = 0.50, doc = "of the peak: achievable on every GPU listed in the sources" }
min_share_ratio = { default = 0.05, doc = "of the step that would be gained; a guess, to be fitted" }
*/
WITH job AS (
  SELECT rank, scope, step_ns, spans_count, compute_ns FROM mean_steps
),
product AS (
  SELECT g.*, GREATEST(0, g.dur_ns * (1 - g.efficiency_ratio / $target_ratio)) AS slack_ns
  FROM gemms AS g SEMI JOIN spans AS s ON s.rank = g.rank AND s.step IS NOT DISTINCT FROM g.step
  WHERE g.efficiency_ratio IS NOT NULL
),
per_rank AS (
  SELECT
    rank,
    COUNT(*) AS calls,
    SUM(dur_ns) AS dur_ns,
    SUM(efficiency_ratio * dur_ns) / SUM(dur_ns) AS efficiency_ratio,
    MODE(dtype) AS dtype
  FROM product
  GROUP BY rank
),
shapes AS (
  SELECT rank, op, FORMAT('{} x {} x {}', m, n, k) || IF(batch > 1, FORMAT(' (batch {})', batch), '') AS shape
  FROM product
  GROUP BY rank, op, m, n, k, batch
  QUALIFY ROW_NUMBER() OVER (PARTITION BY rank ORDER BY SUM(slack_ns) DESC, op) = 1
),
worst AS (
  SELECT
    per_rank.*,
    scope,
    spans_count,
    -- Products on several streams overlap: no more than the compute part.
    FLOOR(LEAST(dur_ns / spans_count, compute_ns) * (1 - efficiency_ratio / $target_ratio)) AS lost_ns,
    (SELECT MAX(step_ns) FROM job) AS step_ns
  FROM per_rank JOIN job USING (rank)
  WHERE efficiency_ratio < LEAST($max_efficiency_ratio, $target_ratio)
  ORDER BY lost_ns DESC, rank
  LIMIT 1
)
SELECT
  lost_ns,
  step_ns,
  scope,
  lost_ns / step_ns AS share_ratio,
  rank,
  [rank] AS ranks,
  efficiency_ratio,
  $target_ratio AS target_ratio,
  dtype,
  calls / spans_count AS calls_count,
  op,
  shape,
  0.6 AS confidence_ratio
FROM worst JOIN shapes USING (rank)
WHERE lost_ns > $min_share_ratio * step_ns
