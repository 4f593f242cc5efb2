"""Fits of curves and constants to measurements.

curve_fit.py fits curves to our tables, and peer_fit.py fits curves to tables of other projects, whose
columns peer_*.py explain. constant_fit.py fits the factors that only whole runs show. score.py tests
curves on rows to which they were not fitted; conformal.py turns these errors into sigmas.

Elsewhere: the runs to which a constant may be fitted (lab/validation/leave_one_out.py).
"""
