"""Measurements: benchmarks of devices, files of measured data, fits, and comparisons with predictions.

measure/ runs benchmarks and samples/ keeps their packs; traces/, logs/ and benchmark_results/ read the
measurements of other programs; published/ reads tables of training runs. calibration/ fits curves and
constants. validation/, serving_runs/, offload_runs/ and graph_runs/ compare predictions with measurements,
and diagnosis/ looks for the cause of a slow step. Predictions import nothing from this folder.
"""
