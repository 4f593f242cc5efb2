"""Explanations of the numbers of a report: the formula, its inputs with their sources, and the parts.

`explain` (registry.py) takes a name such as "step", "mfu", a component, an operator, "memory" or a factor
and returns an `Explanation` (explanation.py). The functions compute each number again with the functions
that produced it, so that explanation and prediction cannot differ.
"""
