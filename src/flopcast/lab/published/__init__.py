"""Published tables of training runs, read row by row.

`read_table` (table.py) returns runs with the facts that their columns state (headers.py); `reproduce`
(job.py) returns the job of a run. suite_files.py reads our own suites of runs.
"""
