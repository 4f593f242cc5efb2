"""Readers of exported models: archives of torch.export and ONNX files.

`read_archive` (archive.py) and `read_onnx` (onnx_file.py) return an `OperatorGraph`; aten.py and
onnx_operators.py translate names of operators. A graph is data, and no code of the file runs. Only
export.py runs code, namely that of a module that the user names.
"""
