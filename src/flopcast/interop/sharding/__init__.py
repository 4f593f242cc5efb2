"""Rules of tensor parallelism for any model, derived from the names and shapes of its parameters.

Begin with `rules.py`. The models that flopcast predicts are sharded by their layers (layers/), not by these
rules.
"""
