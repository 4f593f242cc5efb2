"""Files that a script writes before it uses them, such as `cat > sft.yaml << EOF` or `echo "…" > c.yaml`.

Answers: which document is a text that a script writes, with the lines of the script?
Elsewhere: which texts a script writes (script.py).
"""

from collections.abc import Sequence

from flopcast.files.yaml_text import Document, read_yaml
from flopcast.interop.shell.variables import Value, Word, text_of
from flopcast.records import replace

PRINTING = ("echo", "printf")
ESCAPES = {"\\n": "\n", "\\t": "  "}


def written_document(text: Word, name: str) -> Document:
    """Return the YAML that a script writes; its lines are those of the script `name`."""
    document = read_yaml(text.text.encode(), name)
    lines = {place: line + text.line - 1 for place, line in document.lines.items()}
    return replace(document, lines=lines)


def printed(values: Sequence[Value]) -> Value:
    """Return what `echo` or `printf` prints, except that a format of printf is not filled.

    >>> from flopcast.interop.shell.variables import Piece
    >>> words = ("echo", "-e", "a: 1\\\\nb: 2")
    >>> text_of(printed([(Piece(word, 1),) for word in words]))
    'a: 1\\nb: 2\\n'
    """
    program, *words = values
    options = next((at for at, word in enumerate(words) if not text_of(word).startswith("-")), len(words))
    escaped = text_of(program) == "printf" or any("e" in text_of(word) for word in words[:options])
    pieces = []
    for word in words[options:]:
        for piece in word:
            text = piece.text
            for written, meant in ESCAPES.items() if escaped else ():
                text = text.replace(written, meant)
            pieces.append(type(piece)(text, piece.line, piece.known))
        pieces.append(type(word[0])(" ", word[0].line)) if word and word is not words[-1] else None
    last = pieces[-1].line if pieces else 1
    return (*pieces, type(program[0])("\n", last))
