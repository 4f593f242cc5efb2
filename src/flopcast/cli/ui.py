"""`flopcast ui`."""

import click

from flopcast.errors import Problem, SpecError

MOST_PORT = 65535


@click.command("ui")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, MOST_PORT), default=8000, show_default=True, help="0: any.")
def command(host: str, port: int) -> None:
    """Serve pages to ask by looking: predict, search, compare; and an API of JSON.

    Listens on this machine alone unless --host says otherwise; it has no users and no passwords. Needs
    the extra `ui` (pip install "flopcast[ui]"). Ctrl-C ends it.

    \b
    flopcast ui
    flopcast ui --port 0
    """
    try:
        from flopcast.ui.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise SpecError([_missing(str(error.name))]) from None
    try:
        serve(host, port, lambda address: click.echo(f"flopcast answers at {address}", err=True))
    except OSError as error:
        raise SpecError([_unheard(f"{host}:{port}", error.strerror or str(error))]) from None


def _missing(name: str) -> Problem:
    """The fault of an installation without the server."""
    return Problem(
        field=name,
        value=None,
        fault="is not installed",
        allowed="the extra `ui`",
        because="pages are served by it",
        fix='pip install "flopcast[ui]"',
    )


def _unheard(address: str, said: str) -> Problem:
    """The fault of an address where this machine cannot listen."""
    return Problem(
        field="--host, --port",
        value=address,
        allowed="an address of this machine that is free",
        because=said,
        fix="write --port 0 for any free port",
    )
