"""Jobs as files of other programs: launch scripts, configurations, traces.

`exported` (kinds.py) writes a job in one of the listed kinds. A file of settings is read back by its own
reader (same_job.py): an export that would describe another job is refused.
"""
