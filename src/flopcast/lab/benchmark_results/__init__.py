"""Results that benchmarks of serving engines print: vLLM, SGLang, GenAI-Perf, MLPerf.

`read_result_file` (formats.py) reads any of them; `compare_with_result` (result.py) puts them beside a
prediction.
"""
