"""`flopcast ui`."""

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.errors import spec_error

option = DocumentedOptions(__name__)

MOST_PORT = 65535


@click.command("ui")
@option("--host", default="127.0.0.1", show_default=True)
@option("--port", type=click.IntRange(0, MOST_PORT), default=8000, show_default=True)
def command(host: str, port: int) -> None:
    """Serve a JSON API, and web pages that predict, search and compare.

    By default, only this machine can connect to the server. The server does not authenticate its users. The
    command needs the extra `ui` (pip install "flopcast[ui]"). Ctrl-C stops the server.

    \b
    flopcast ui
    flopcast ui --port 0
    """
    try:
        from flopcast.ui.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        allowed, because, fix = "the extra `ui`", "flopcast ui needs it", 'pip install "flopcast[ui]"'
        raise spec_error(str(error.name), None, allowed, because, fix, fault="is not installed") from None
    try:
        serve(host, port, lambda address: click.echo(f"flopcast listens at {address}", err=True))
    except OSError as error:
        raise spec_error(
            field="--host, --port",
            value=f"{host}:{port}",
            allowed="an address of this machine and a free port",
            because=error.strerror or str(error),
            fix="write --port 0 for any free port",
        ) from None
