"""Benchmarks of a device, its links and its host: what `flopcast measure` runs.

sampling_plan.py decides what is measured in the given time, sampling_run.py measures it (kernels.py,
timing.py), and site.py turns samples into the factors of a site file. collectives.py measures messages,
tier_run.py copies to the host. torch is imported only when a measurement starts.
"""
