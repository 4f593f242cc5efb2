"""Text, JSON, pages and drawings of results.

Each result has a file for each form: report_text.py, report_json.py and report_page.py for a report,
search_*.py for a search, serving_*.py for serving, published_*.py for validation. `marked_text` returns
text with marks that a terminal shows as colours (terminal.py). Nothing is computed here.
"""
