"""A server of its own for the tests, on loopback, and requests to it."""

import contextlib
import http.client
import json
import os
import re
import sys
from subprocess import PIPE

from children import child

LIMIT_S = 60


@contextlib.contextmanager
def served():
    """A running `flopcast ui` on a free port; gives its host and port."""
    env = os.environ | {"PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "flopcast", "ui", "--port", "0"]
    with child(command, stderr=PIPE, text=True, env=env) as process:
        line = process.stderr.readline()
        found = re.fullmatch(r"flopcast listens at http://(.*):(\d+)\n", line)
        assert found, line
        yield found[1], int(found[2])


def asked(server, path, method="GET", body=None, headers=None):
    """Status, headers and body of one request."""
    connection = http.client.HTTPConnection(*server, timeout=LIMIT_S)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def data(server, name, words):
    """Status and data of a request to the API."""
    body = words if isinstance(words, (str, bytes)) else json.dumps(words)
    status, _, text = asked(server, f"/api/v1/{name}", "POST", body)
    return status, json.loads(text)
