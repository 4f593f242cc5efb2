"""Measured runs of serving engines, and the fit of the engines' constants.

`read_serving_runs` (tables.py) reads the tables, one file for each source; `score_runs` (score.py) predicts
and compares them; fit.py fits what iterations take beyond their kernels.
"""
