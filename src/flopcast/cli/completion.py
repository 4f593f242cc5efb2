"""`flopcast completion`."""

from collections.abc import Mapping
from typing import Any

import click

from flopcast.cli.options import further_problems, writes_document
from flopcast.cli.suggestions import words
from flopcast.errors import Problem, SpecError

SHELLS = ("bash", "zsh", "fish")


def _problems_of_shell(named: Mapping[str, Any]) -> list[Problem]:
    """Return the error of a shell for which there is no script."""
    shell = named["shell"]
    because, fix = "flopcast writes scripts only for these shells", "choose one of them"
    wrong = Problem("SHELL", shell, ", ".join(SHELLS), because, fix)
    return [wrong] if shell and shell not in SHELLS else []


@click.command("completion")
@click.argument("shell", metavar="bash|zsh|fish", shell_complete=words(*SHELLS))
@writes_document
@further_problems(_problems_of_shell)
def command(shell: str) -> None:
    """Print the script that lets a shell complete commands, options and names of the catalogue.

    Append the script to the startup file of your shell.

    \b
    flopcast completion bash >> ~/.bashrc
    flopcast completion zsh >> ~/.zshrc
    flopcast completion fish -o ~/.config/fish/completions/flopcast.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from flopcast.cli.main import COMPLETE, group

    kind = get_completion_class(shell) if shell in SHELLS else None
    if kind is None:
        raise SpecError(_problems_of_shell({"shell": shell}))
    made = kind(group, {}, "flopcast", COMPLETE)
    click.echo(ShellComplete.source(made), nl=False)  # not its own, which runs the shell for its version
