"""Measured training runs with states outside the devices, and the fit of their rates.

zero3.py and nvme.py say how the rows of their tables become runs (rows.py); lab/measured_tables.py lists
them. `score_runs` (score.py) predicts and compares them.
"""
