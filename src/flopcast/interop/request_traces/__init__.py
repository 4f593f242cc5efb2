"""Traces of requests to serving engines: CSV files and JSON lines.

`read_request_trace` (reader.py) returns `Requests` (serving/requests.py) in the order of their arrival.
"""
