"""The options of `flopcast validate` that state the machine and software on which a table of graphs was
measured.
"""

from typing import TYPE_CHECKING

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import Command, with_all
from flopcast.errors import spec_error

if TYPE_CHECKING:
    from flopcast.lab.graph_runs.timm import TableFacts

option = DocumentedOptions(__name__)

SOFTWARE = ("eager", "compiled", "channels-last")
PRECISIONS = ("amp", "bf16", "fp16", "fp32")


def takes_machine(command: Command) -> Command:
    """Add --device, --precision and --software."""
    options = [
        option("--device", metavar="NAME"),
        option("--precision", type=click.Choice(PRECISIONS)),
        option("--software", type=click.Choice(SOFTWARE)),
    ]
    return with_all(options, command)


def machine_of(device: str | None, precision: str | None, software: str | None) -> "TableFacts | None":
    """Return the values of these options, or None if none is given.

    Raises
    ------
    SpecError
        --device or --precision is missing, or the catalogue has no such device.
    """
    if not (device or precision or software):
        return None
    if not device or not precision:
        name, fix = "--device", "add --device rtx-4090-24gb"
        if device:
            name, fix = "--precision", "add --precision amp"
        allowed = "--device and --precision, unless the name of the file states both"
        because = "the columns of the table do not state device and precision"
        raise spec_error(name, None, allowed, because, fix, fault="is missing")
    from flopcast.lab.graph_runs.machines import machine
    from flopcast.lab.graph_runs.timm import PRECISIONS as KNOWN
    from flopcast.lab.graph_runs.timm import TableFacts

    return TableFacts(
        device=machine(device).name,
        precision=KNOWN[precision],
        channels_last=software == "channels-last",
        compiled=software == "compiled",
    )
