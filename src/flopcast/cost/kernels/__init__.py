"""Times of kernels: a physical bound divided by a measured efficiency.

`unscaled_times` (unscaled.py) prices operators of one kernel class: the roofline bound (roofline.py) over
the efficiency of a curve (curve.py) at the coordinates of the class (features.py). `CurveBook`
(curve_book.py) chooses the curve and its replacement: another class (fallback_classes.py) or another device
(curve_conversion.py). clocks.py and sustained.py slow kernels on devices that are limited in power.

Elsewhere: the fit of curves (lab/calibration/), their files (library/curves.py).
"""
