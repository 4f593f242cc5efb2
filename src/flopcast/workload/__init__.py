"""From a job to programs: which kernels and messages each pipeline stage runs, and which tensors they keep
in memory.

`lower` (lower.py) turns the layers of a model into logical items for a batch of plans. `realise`
(realise.py) applies what the stack does: rewrites, the backward pass, recompute, precision, gathers and
reductions of sharded states, the optimizer, offload. passes.py lists these steps in order. The result,
`Programs` (program.py), has items and counts but no seconds. memory/, cost/ and timeline/ use it.

`checks.check` returns every broken rule of a job, including rules that need divisions and rewrites.
"""
