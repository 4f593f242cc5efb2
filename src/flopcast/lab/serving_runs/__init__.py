"""Measured runs of serving engines, and the fit of the engines' constants.

One file for each source converts its rows to runs (rows.py); lab/measured_tables.py lists them.
`score_runs` (score.py) predicts the runs and compares them with the measurements; fit.py fits the time
that iterations take in addition to their kernels.
"""
