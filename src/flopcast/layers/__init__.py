"""The layers of models: fields, weights, and forward items on one rank.

Each file has one layer, a pydantic model that is at the same time its description in a job file
(`AbstractLayer` in base.py). `weights` and `forward` take the hidden size and a `Split`: the tokens and the
degrees of a rank. A `Block` (block.py) consists of a mixer and a feed-forward layer with norms and
residuals. A layer states its forward only; the backward pass follows from its items (workload/backward.py).

Elsewhere: models, which list blocks (spec/model.py), layers of serving engines (serving/rewrites/).
"""
