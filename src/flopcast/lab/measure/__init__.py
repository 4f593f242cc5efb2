"""Benchmarks of a device, its links and its host, which `flopcast measure` runs.

sampling_plan.py decides what is measured in the given time, sampling_run.py measures it (kernels.py,
timing.py), and site.py converts samples to the factors of a site file. collectives.py measures messages,
and tier_run.py measures copies to the host. torch is imported only when a measurement starts.
"""
