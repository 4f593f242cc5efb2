"""Measured runs of serving engines, and the fit of the engines' constants.

One file for each source says how its rows become runs (rows.py); lab/measured_tables.py lists them.
`score_runs` (score.py) predicts and compares them; fit.py fits what iterations take beyond their kernels.
"""
