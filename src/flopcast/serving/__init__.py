"""Predictions of serving engines: latencies, rates, memory, energy and cost for given traffic.

`serve` (serve.py) takes a `ServingJob` and curves and returns a `ServingReport`. In order:

- requests are drawn or read from a trace (arrivals.py, requests.py);
- layers are lowered for a pass, which is described by four numbers (engine_pass.py, lower.py, rewrites/);
- the times of passes are computed once at the nodes of tables (pass_prices.py) and interpolated afterwards
  (pass_times.py);
- the scheduler simulates iterations with continuous or static batching (scheduler.py, batch.py,
  kv_blocks.py);
- latencies and rates of the requests are summarised (summary.py, estimates.py).

checks.py has the rules of serving jobs, and memory.py the bytes of a device.
"""
