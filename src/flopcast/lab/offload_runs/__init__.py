"""Measured training runs with states outside the devices, and the fit of their rates.

zero3.py and nvme.py convert the rows of their tables to runs (rows.py); lab/measured_tables.py lists
them. `score_runs` (score.py) predicts the runs and compares them with the measurements.
"""
