"""A short table of a result, as text and for notebooks.

Answers: what do `print(report)`, a notebook and an interactive prompt show?
Elsewhere: the whole report as text (render/report_text.py) and as a page (render/report_page.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flopcast.records import Record

if TYPE_CHECKING:
    from flopcast.render.page.table import Cell


class Summary(Record):
    """A table with its caption, which notebooks show as HTML and terminals as text.

    Attributes
    ----------
    caption : str
    headings : tuple of str
    rows : sequence of sequences of cells
        The first cell of a row names it.
    """

    caption: str
    headings: tuple[str, ...]
    rows: "Sequence[Sequence[Cell]]"

    def as_html(self) -> str:
        """Return one HTML table, without a style or a script."""
        from flopcast.render.page.table import table

        return table(self.caption, self.headings, self.rows)

    def as_text(self) -> str:
        """Return the caption and the rows in columns, without a final newline.

        Columns are as wide as their longest cell, so that the text suits a fixed-width font.
        """
        from flopcast.render.page.table import shown

        lines = [list(self.headings), *([shown(cell) for cell in row] for row in self.rows)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.headings))]
        rows = (
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines
        )
        return "\n".join([self.caption, *(row.rstrip() for row in rows)])


class Summarised:
    """A result that shows itself as a table: as text if it is printed, as HTML in a notebook."""

    __slots__ = ()

    def summary(self) -> Summary:
        """Return the table.

        Raises
        ------
        NotImplementedError
            A class does not define its table.
        """
        raise NotImplementedError

    def __str__(self) -> str:
        return self.summary().as_text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary().caption}>"

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        return self.summary().as_html()
