"""A page as tests read it: tags in order, tables as rows, every tag that is closed in the wrong place."""

import json
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """`wrong` are tags that close another one, `open` those that never close.

    `tables` are by caption: rows of cells, a cell the value of its `<data>` or its text; `ids` in order.
    """

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.wrong, self.tables = [], [], [], [], {}
        self._rows, self._cell, self._caption, self._value = [], None, "", None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._cell, self._value = "", None
        elif tag == "data" and self._cell is not None:
            self._value = float(found["value"])

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)
        if tag in ("td", "th"):
            self._rows[-1].append(self._cell if self._value is None else self._value)
            self._cell = None
        elif tag == "table":
            self.tables.setdefault(self._caption, self._rows)

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))
        if self._cell is not None:
            self._cell += data
        elif self.open and self.open[-1] == "caption":
            self._caption += data

    @property
    def ids(self):
        return [found["id"] for _, found in self.tags if "id" in found]

    @property
    def data(self):
        """The JSON block."""
        at = [found.get("id") for tag, found in self.tags if tag == "script"].index("data")
        return json.loads([text for tag, text in self.texts if tag == "script"][at])

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag):
        return " ".join(data for name, data in self.texts if name == tag)

    def table(self, words):
        """Headings and rows of the first table whose caption holds these words."""
        headings, *rows = next(rows for caption, rows in self.tables.items() if words in caption)
        return headings, rows
