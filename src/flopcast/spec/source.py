"""The sources of the numbers of an entry: a noun that every other noun of a job may have."""

from typing import Annotated

from pydantic import Field

from flopcast.strict_model import StrictModel


class Source(StrictModel):
    """The source of some numbers.

    Attributes
    ----------
    covers : str
        The fields or aspects that come from this source; "all" by default.
    title : str
        A paper with its table, a data sheet, or the command that measured the numbers.
    url : str
        Address of the source.
    fitted_on : tuple of str
        Sources of the training runs on which the numbers were fitted. It is empty for numbers from kernels,
        data sheets and documentation.
    """

    covers: str = "all"
    title: str
    url: str = ""
    fitted_on: tuple[str, ...] = ()


Sources = Annotated[tuple[Source, ...], Field(description="Sources of the numbers of this entry.")]
