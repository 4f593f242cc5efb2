"""Cost, energy, failures and checkpoints of a step and of a whole run.

`step_cost` (step.py) gives dollars and joules of a step; `phase_of` (run.py) the days, the goodput and the
cost of a phase of training. checkpoint_cost.py finds the interval between checkpoints, checkpoints.py the
seconds of one, and failures.py what interruptions cost. Every number is an `Amount` (amount.py), which
contains the factors on which it depends, so that shared errors are not counted twice.
"""
