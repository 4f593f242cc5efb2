"""Operators and messages: the work of one kernel or collective on one rank, independent of hardware.

An operator (`AbstractOperator` in base.py) states FLOP, bytes, the tensors that it keeps for the backward
pass, and the operators of its gradients. A message (`AbstractMessage`) states its collective, its axis and
its bytes. An `Item` (item.py) is an operator or a message of a program, with its tensors, its stream, and
the items for which it waits. Sizes are arrays of shape (plans, 1), or one value for all plans.

Elsewhere: which items a layer has (layers/), what a stack makes of them (workload/), seconds (cost/).
"""
