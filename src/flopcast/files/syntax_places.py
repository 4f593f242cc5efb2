"""The fault that a message about the syntax of YAML or JSON describes, and the place of a parser's error.

Answers: in which line and column is an offset of a text?
Elsewhere: the faults themselves (yaml_faults.py, bracket_faults.py).
"""

from flopcast.records import Record


class SyntaxFault(Record, kw_only=False):
    """The line to edit, why the parser cannot read the text, and the fix."""

    line: int
    because: str
    fix: str


class Place(Record, kw_only=False):
    """The place of a parser's error: an offset in the text, and that of the construct that it reads."""

    text: str
    at: int
    start: int

    @property
    def character(self) -> str:
        """Return the character at which the parser stopped."""
        return self.text[self.at : self.at + 1]

    def line(self, at: int) -> int:
        """Return the line of an offset; the first is 1."""
        return self.text.count("\n", 0, at) + 1

    def column(self, at: int) -> int:
        """Return the column of an offset; the first is 1."""
        return at - (self.text.rfind("\n", 0, at) + 1) + 1

    def content(self, at: int) -> str:
        """Return the line that contains an offset."""
        return self.text.split("\n")[self.line(at) - 1]

    def indent(self, at: int) -> int:
        """Return the number of blanks at the beginning of the line."""
        content = self.content(at)
        return len(content) - len(content.lstrip())

    def end_before(self, at: int) -> int:
        """Return the end of the text before an offset, without trailing blanks and line breaks."""
        return len(self.text[:at].rstrip())

    def named(self, at: int) -> str:
        """Return the place of an offset in words. The end of a line has no column."""
        if not self.text[at:].partition("\n")[0].strip():
            return f"at the end of line {self.line(at)}"
        return f"in line {self.line(at)}, column {self.column(at)}"
