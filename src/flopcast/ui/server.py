"""The server's process: its address, and its handling of clients that never finish a request.

Answers: at which address does the server listen, which limits does it set, and how does it end?
Elsewhere: the content of answers (app.py), limits of whole requests (limits.py).
"""

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from flopcast.ui.app import application
from flopcast.ui.limits import MOST_HEADER_BYTES

HEADER_LIMIT_S = 10.0
IDLE_LIMIT_S = 10
MOST_CONNECTIONS = 512


class TimedProtocol(H11Protocol):
    """HTTP/1.1 in which clients must send the headers of a request within HEADER_LIMIT_S."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first request, and send each part of a response at once.

        asyncio does the latter only for sockets with a protocol number, which is 0 here. The kernel would
        otherwise keep the body until the client acknowledges the header, which takes up to 40 ms.
        """
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rearm()

    def on_response_complete(self) -> None:
        """Start the clock of the next request."""
        super().on_response_complete()
        self._rearm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _rearm(self) -> None:
        """Close the connection unless a request has begun in time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(HEADER_LIMIT_S, self._too_slow)

    def _too_slow(self) -> None:
        """Close a connection that sent only a part of a header in time."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def serve(host: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Parameters
    ----------
    host : an address of this machine; an address other than loopback can be reached from outside
    port : 0 means any free port
    on_ready : called with the address when the server answers requests

    Raises
    ------
    OSError
        The address is in use, or does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=128)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    config = uvicorn.Config(
        application(host, ready=lambda: on_ready(address)),
        http=TimedProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_LIMIT_S,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_graceful_shutdown=2,
    )
    with listening:
        uvicorn.Server(config).run(sockets=[listening])
