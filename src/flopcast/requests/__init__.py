"""From what a user enters to a checked job.

The command line, Python and HTTP fill the same `JobRequest` (job_request.py). `resolve` (resolve.py) reads
the files that it names (sources.py), applies options and changes, fills in defaults (usual_values.py),
chooses a plan if there is none, and reports all errors together. `resolve_serving` (serving_request.py) and
`question_of` (search_request.py) do the same for serving jobs and for searches.
"""
