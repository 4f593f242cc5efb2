"""Configurations of training programs (DeepSpeed, NeMo, torchtitan, Axolotl and others) as jobs.

formats.py recognises a file by its keys; each program has an importer of its own. An importer reads typed
values from a `JobReader`, which also collects faults (config_reader.py), and writes fields of the job
into it (job_reader.py). tables/ lists the keys of each program: keys that are read, keys that cost no
time, and unsupported keys.
"""
