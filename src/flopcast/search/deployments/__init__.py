"""The search for deployments of a serving engine: degrees, formats and limits for given traffic.

`find_deployments` (find.py) estimates every deployment of a space (space.py) by its steady state
(steady.py, screen.py) and simulates the most promising ones request by request (serving/serve.py).
"""
