"""Suspects for a step that is slower than it could be.

`diagnose` (diagnose.py) compares the log or the trace of a run with the prediction of its job. It also
compares the job with better settings. Each file `*_suspects.py` reads one source of evidence.
"""
