"""The page and the JSON API over HTTP.

`application` (app.py) answers requests of a browser or a program. Processes with a time limit compute the
answers (pool.py, worker.py). request_fields.py turns the fields of a request into a job or a search,
responses.py makes the answers, and page.py the page around them. The server opens no file that a request
names.
"""
