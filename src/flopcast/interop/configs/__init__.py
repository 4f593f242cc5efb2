"""Configurations of training programs (DeepSpeed, NeMo, torchtitan, Axolotl and others) as jobs.

formats.py recognises a file by its keys; each program has an importer of its own. An importer takes values
from a `JobReader`, which types them and collects faults (config_reader.py), and puts fields of the job into
it (job_reader.py). The keys of a program are listed in tables/, with what is read, what costs no time, and
what is not supported.
"""
