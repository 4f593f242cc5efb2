"""Texts of renderers without the marks of a terminal, as a file or a pipe gets them."""

from flopcast.render.terminal import plain


def unmarked(marked_text):
    """Return a renderer like `marked_text` whose text has no marks."""
    return lambda *values, **named: plain(marked_text(*values, **named))
