"""Models without a reader, which PyTorch traces on tensors without memory.

`traced_model` (blocks.py) builds the model from its code without weights (weightless.py), records the
operators of a block (recorder.py), joins them to kernels (fusing.py), and finds how tensor parallelism
divides them (division.py). It needs torch and transformers in the user's environment.
"""
