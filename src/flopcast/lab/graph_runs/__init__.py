"""Measured runs of models that are not language models, and the fit of their kernels' efficiencies.

One file for each table converts its rows to runs (measured.py); lab/measured_tables.py lists them.
`score_runs` (score.py) predicts the runs and compares them with the measurements, and fit.py fits the
efficiencies. kernels.py derives kernels from facts of models (facts.py); sketch.py describes kernels of
models without facts.
"""
