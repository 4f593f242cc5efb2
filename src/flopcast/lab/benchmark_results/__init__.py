"""Results that benchmarks of serving engines print: vLLM, SGLang, GenAI-Perf, MLPerf.

`read_result_file` (formats.py) reads results of all of them; `compare_with_result` (result.py) compares
them with a prediction.
"""
