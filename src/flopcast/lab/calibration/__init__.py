"""Fits of curves and constants to measurements.

curve_fit.py fits curves to our tables, and peer_fit.py to tables of other projects (peer_*.py say what
their columns mean). constant_fit.py fits the factors that only whole runs show. score.py judges curves on
rows that they were not fitted to; conformal.py turns these errors into sigmas.

Elsewhere: which runs a constant may be fitted on (lab/validation/leave_one_out.py).
"""
