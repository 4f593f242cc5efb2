"""Jobs as files of other programs: launch scripts, configurations, traces.

`exported` (kinds.py) writes a job in one of the listed kinds. For a file of settings, its own reader
reads the file again (same_job.py), and an export that would describe another job is refused.
"""
