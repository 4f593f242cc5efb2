"""Predictions compared with measured runs, and the statistics of the errors.

`compare_each` (published.py) scores published runs, `compare` (compare.py) scores suites of runs with
components, and decisions.py tests whether the recommended plan was the fastest. leave_one_out.py fits
constants without the runs that are scored. `update` (from_run.py) adapts a site to one run of the user.
"""
