"""Peak memory of a rank: bytes by category at the time at which the memory of a stage is fullest.

`peak_memory` (peak.py) takes programs and returns arrays of shape (plans, stage classes) with an interval;
`fits` compares them with the devices. A category is one function in categories.py. How many micro-batches
are in flight follows from the order of tasks alone (in_flight.py), so that no seconds are needed. tiers.py
counts what a plan places outside the devices, and curve.py follows one stage over a whole step.

Elsewhere: what a layer keeps (workload/backward.py), the report of memory (report/memory_report.py).
"""
