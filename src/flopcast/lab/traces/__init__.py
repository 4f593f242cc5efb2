"""Traces of profilers: PyTorch's Kineto and NVIDIA's Nsight Systems.

`read_trace` (any_format.py) returns a `Trace` (lab/calibration/trace.py) of a file of any length.
"""
