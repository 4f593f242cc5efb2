"""Options that stand twice in a command line although they hold one value.

Answers: which option of a command line is given twice?
Elsewhere: all other wrong options (usage_errors.py).
"""

from collections.abc import Iterator, Sequence

import click


class RepeatedOptionError(click.UsageError):
    """An option that holds one value has several: all but the last would be ignored."""

    def __init__(self, name: str, context: click.Context) -> None:
        """Keep the name of the option."""
        super().__init__(f"{name} is given twice", context)
        self.option_name = name


def repeated_option(group: click.Group, context: click.Context, words: list[str]) -> None:
    """Refuse the words after a command if they give an option twice that holds one value.

    Words that click cannot parse are left to it.

    Raises
    ------
    RepeatedOptionError
        The first such option.
    """
    command = group.get_command(context, words[0]) if words else None
    if command is None:
        return
    inner = click.Context(command, context, words[0], **command.context_settings)
    try:
        _, rest, order = command.make_parser(inner).parse_args(words[1:])
    except click.UsageError:
        return
    for error in repeated(order, inner):
        raise error
    if isinstance(command, click.Group):
        repeated_option(command, inner, rest)


def repeated(order: Sequence[click.Parameter], context: click.Context) -> Iterator[RepeatedOptionError]:
    """Yield an error for each option that holds one value and stands twice in a parsed command line."""
    for parameter in dict.fromkeys(order):
        single = isinstance(parameter, click.Option) and not (parameter.multiple or parameter.is_flag)
        if single and order.count(parameter) > 1:
            yield RepeatedOptionError(max(parameter.opts, key=len), context)
