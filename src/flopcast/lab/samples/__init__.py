"""Files with measurements: sample packs, tables of kernels, logs of nccl-tests, and site files.

packs.py writes and reads the folders that `flopcast measure` fills; columns.py reads tables of numbers
and checks every cell.
"""
