"""Measured runs of models that are not language models, and the fit of their kernels' efficiencies.

One file for each table says how its rows become runs (measured.py); lab/measured_tables.py lists them.
`score_runs` (score.py) predicts and compares them, and fit.py fits the efficiencies. kernels.py derives
kernels from facts of models (facts.py); sketch.py describes kernels of models without facts.
"""
