"""Configurations of training programs (DeepSpeed, NeMo, torchtitan, Axolotl and others) as jobs.

formats.py recognises a file by its keys; each program has a reader of its own. A reader takes values
through `ConfigReader` (config_reader.py), which types them and collects faults. The keys of a program are
listed in tables/, with what is read, what costs no time, and what is not supported.
"""
