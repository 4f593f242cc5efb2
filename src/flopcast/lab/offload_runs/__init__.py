"""Measured training runs with states outside the devices, and the fit of their rates.

`read_offload_runs` (tables.py) reads the tables, `score_runs` (score.py) predicts and compares them.
"""
