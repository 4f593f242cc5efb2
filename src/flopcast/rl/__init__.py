"""Steps of reinforcement learning: generation, scoring, training, and the transfer of weights.

`rl_step` (step.py) joins a prediction of serving and one of training.
"""
