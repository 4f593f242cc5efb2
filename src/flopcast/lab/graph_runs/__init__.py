"""Measured runs of models that are not language models, and the fit of their kernels' efficiencies.

`read_graph_runs` (tables.py) reads the tables, `score_runs` (score.py) predicts and compares them, and
fit.py fits the efficiencies. kernels.py derives kernels from facts of models (facts.py); sketch.py
describes kernels of models without facts.
"""
