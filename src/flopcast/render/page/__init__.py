"""Sections of HTML pages, and their drawings.

A section is a function that takes a result and returns a `Section`; `document` (frame.py) combines sections
into one file without external parts. drawing.py has axes and marks as SVG, table.py tables. Every text is
escaped where it enters the page.
"""
