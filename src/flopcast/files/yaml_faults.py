"""Errors in the syntax of YAML and JSON, in plain English.

Answers: what does a message of the YAML parser mean, and how is the text mended?
Elsewhere: reading YAML (yaml_text.py).
"""

import yaml

FAULTS = {  # a part of the parser's message → the reason, and the fix
    "',' or ']'": (
        "a list that begins with [ {line}has no ], or no comma between two entries",
        "add ] or the comma",
    ),
    "',' or '}'": (
        "a mapping that begins with {{ {line}has no }}, or no comma between two entries",
        "add }} or the comma",
    ),
    "expected key": (
        "the line is not of the form KEY: VALUE, or its indentation differs from that of the lines above",
        "write KEY: VALUE, with the same indentation as the other keys of the mapping",
    ),
    "<block end>": (
        "the line is not of the form KEY: VALUE, or its indentation differs from that of the lines above",
        "write KEY: VALUE, with the same indentation as the other keys of the mapping",
    ),
    "mapping values are not allowed": (
        "the line has a second colon, or it is indented although the line above has a value",
        "put a value that contains a colon in quotes, or correct the indentation",
    ),
    "expected ':'": ("the line has no colon after its key", "write KEY: VALUE"),
    "cannot start any token": (
        "a tab, or one of the characters @, % and `, stands where a key or a value begins",
        "indent with spaces, and put values that begin with such a character in quotes",
    ),
    "unexpected end of stream": ("a text in quotes does not end", "add the missing quotation mark"),
    "'-' indicator": (
        "the line does not begin with a hyphen, although it is indented like the entries of the list above",
        "begin each entry of the list with a hyphen, or correct the indentation",
    ),
    "block sequence entries": (
        "a list with hyphens begins in the line of its key",
        "begin the list in the next line, or write [A, B]",
    ),
    "node content": ("a value is missing, for example between two commas", "add the value"),
    "<document start>": ("text follows after the end of the document", "remove the text that follows"),
    "escape": (
        "a text in double quotes contains a backslash before a character that needs none",
        "write two backslashes, or use single quotes",
    ),
}


def syntax_fault(error: yaml.YAMLError) -> tuple[str, str]:
    """Return why the parser cannot read a text, and the fix.

    >>> try:
    ...     yaml.safe_load("plan: [1, 2")
    ... except yaml.YAMLError as error:
    ...     print(*syntax_fault(error), sep="; ")
    a list that begins with [ in line 1 has no ], or no comma between two entries; add ] or the comma
    """
    start = getattr(error, "context_mark", None)
    line = f"in line {start.line + 1} " if start is not None else ""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    for part, (because, fix) in FAULTS.items():
        if part in problem:
            return because.format(line=line), fix.format()
    return f"the YAML parser reports: {problem}", "correct the syntax of this line"
