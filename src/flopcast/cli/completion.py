"""`flopcast completion`."""

import click

from flopcast.cli.options import writes_document
from flopcast.cli.suggestions import words

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", metavar="bash|zsh|fish", shell_complete=words(*SHELLS))
@writes_document
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
    from flopcast.errors import spec_error

    kind = get_completion_class(shell) if shell in SHELLS else None
    if kind is None:
        because, fix = "flopcast writes scripts only for these shells", "choose one of them"
        allowed = ", ".join(SHELLS)
        raise spec_error("SHELL", shell, allowed, because, fix)
    made = kind(group, {}, "flopcast", COMPLETE)
    click.echo(ShellComplete.source(made), nl=False)  # not its own, which runs the shell for its version
