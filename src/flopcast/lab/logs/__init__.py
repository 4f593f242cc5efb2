"""Logs of training programs: printed steps, memory, sizes and timers.

`read_log_file` (reader.py) returns a `Log` (log.py) of any supported framework (formats.py);
`compare_with_log` (prediction_check.py) compares it with a prediction.
"""
