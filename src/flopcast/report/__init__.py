"""The report of a prediction: all values of a report, independent of how they are shown.

`summarise` (report.py) joins timeline, prices, memory and cost to a `Report`. metrics.py defines MFU and
rates, flop_conventions.py the FLOP formulas of frameworks, versus.py the comparison of two reports, and
explain/ the explanation of each number.

Elsewhere: text, JSON, pages and drawings (render/).
"""
