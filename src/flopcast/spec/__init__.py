"""What users describe (model, cluster, plan, stack, batch, engine, traffic), and the rules of jobs.

A job (`Job` in job.py, `ServingJob` in serving_job.py) consists of frozen pydantic models, one file for
each of them. Their docstrings give the fields with units; the job file, the command line, HTTP and the
reference of the documentation take names and descriptions from there. Inside the core, a `Plan` becomes
`Plans`: the same fields as arrays, one row for each plan.

Rules are in rules.py and one file `rules_*` for each subject. `checks.broken` returns the problems of one
job, and `checks.kept` a mask over many plans, from the same rules.

Elsewhere: reading files (files/, library/, requests/), what a job computes (workload/, serving/).
"""
