"""Traces of profilers: PyTorch's Kineto and NVIDIA's Nsight Systems.

`read_trace` (any_format.py) returns the `Trace` (lab/calibration/trace.py) in a file of any length.
"""
