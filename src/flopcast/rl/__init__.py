"""Steps of reinforcement learning: generation, scoring, training, and the transfer of weights.

`rl_step` (step.py) combines a prediction of serving and a prediction of training.
"""
