"""Searches on several processes or machines, and their ledger.

`run` (run.py) sends the tasks of one or more searches (search_tasks.py) to an executor: this process,
processes of this machine (process_executor.py), or a Dask cluster (dask_executor.py). Tasks and results are
texts (tasks.py), so that a ledger can keep them and an interrupted search can resume (ledger.py). The
answer is the same as that of one process.
"""
