"""Operators and messages: the work of one kernel or collective on one rank, independent of hardware.

An operator (`AbstractOperator` in base.py) states FLOP, bytes, the tensors that it keeps for the backward
pass, and the operators of its gradients. A message (`AbstractMessage`) states its collective, its axis and
its bytes. An `Item` (item.py) is one of both in its place: its tensors, its stream, and what it waits for.
Sizes are arrays of shape (plans, 1), or one value for all plans.

Elsewhere: which items a layer has (layers/), what a stack makes of them (workload/), seconds (cost/).
"""
