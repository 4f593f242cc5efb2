"""The sources of the numbers of a catalogue entry."""

from typing import Annotated

from pydantic import Field

from flopcast.strict_model import StrictModel


class Source(StrictModel):
    """The source of numbers of a catalogue entry.

    Attributes
    ----------
    covers : str
        Fields of the entry that come from this source; by default "all".
    title : str
        Name of the source: a paper with its table, a data sheet, or the command that measured the numbers.
    url : str
        URL of the source.
    fitted_on : tuple of str
        Sources of the training runs to which the numbers were fitted. It is empty if the numbers come from
        kernel benchmarks, data sheets or documentation.
    """

    covers: str = "all"
    title: str
    url: str = ""
    fitted_on: tuple[str, ...] = ()


Sources = Annotated[tuple[Source, ...], Field(description="Sources of the numbers of this entry.")]
