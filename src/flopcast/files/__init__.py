"""Reading and writing of files: YAML with the line of every value, CSV, compressed and whole files.

`read_yaml` (yaml_text.py) reads plain data, and `build` (validate.py) makes it a model of spec/ or returns
all faults with their lines. A failed write leaves no partial file (atomic_write.py).
"""
