"""Shell scripts, which are read and never run: variables, conditions, loops and line continuations.

`read_script` (script.py) returns the commands that a script would start, with the line of every word.
Values that only the running shell knows stay unknown.
"""
