"""Published tables of training runs, which are read row by row.

`read_table` (table.py) returns runs with the facts in their columns (headers.py); `reproduce` (job.py)
returns the job of a run. suite_files.py reads the suites of runs in the catalogue.
"""
