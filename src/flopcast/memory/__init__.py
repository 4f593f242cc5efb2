"""The peak memory of a rank: bytes by category, at the time at which the stage uses most memory.

`peak_memory` (peak.py) takes programs and returns arrays of shape (plans, stage classes) with an interval;
`fits` compares them with the devices. A category is one function in categories.py. The number of
micro-batches in flight depends only on the order of tasks (in_flight.py), and not on times. tiers.py counts
the states that a plan places outside the devices, and curve.py computes the memory of one stage over a
whole step.

Elsewhere: what a layer keeps (workload/backward.py), the report of memory (report/memory_report.py).
"""
