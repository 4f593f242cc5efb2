"""The report of a prediction: all values that a reader may ask for, without their form.

`summarise` (report.py) joins timeline, prices, memory and cost to a `Report`. metrics.py defines MFU and
rates, flop_conventions.py the FLOP formulas of frameworks, versus.py the comparison of two reports, and
explain/ the account of each number.

Elsewhere: text, JSON, pages and drawings (render/).
"""
