"""The command line: `flopcast COMMAND`. Commands are imported when they run, so that --help is quick.

Exit codes: 0 success, 1 wrong input (every error is listed), 2 no feasible plan, 3 a bug in flopcast.
Data goes to stdout, messages to stderr. With `--json`, stdout also holds errors, as one JSON object, and
stderr shows the same errors as text.
Answers: which module runs a command, and how are errors reported?
Elsewhere: options that describe a job (options.py), what each command does (one module each).
"""

import errno
import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from types import ModuleType
from typing import TYPE_CHECKING

import click

import flopcast
from flopcast.cli.documented_options import texts_of_help
from flopcast.cli.json_errors import as_json, wants_json
from flopcast.cli.terminal import print_error
from flopcast.garbage import collect_rarely

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = texts_of_help()["commands"]  # the most used first
MODULES = {"import": "imports"}  # of commands whose module has another name
COMPLETE = "_FLOPCAST_COMPLETE"  # set by the shell's own function: bash_complete, zsh_complete …
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
EXIT_INPUT, EXIT_INFEASIBLE, EXIT_BUG, EXIT_INTERRUPTED = 1, 2, 3, 130


class LazyGroup(click.Group):
    """A group whose commands are imported on first use.

    `flopcast --help` then needs neither numpy nor pydantic, whose import takes longer than printing the
    help. The help line of each command is therefore in help.json.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of COMMANDS, the most used first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"flopcast.cli.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        """Return the commands that begin with `incomplete`, then the options; import no command."""
        from click.shell_completion import CompletionItem

        items = [CompletionItem(name, help=text) for name, text in COMMANDS.items()]
        mine = [item for item in items if item.value.startswith(incomplete)]
        return [*mine, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names; a usage error suggests a similar name."""
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
            if args == ["--help"]:
                click.echo(ctx.get_help())
                ctx.exit()
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"No such command '{args[0]}'.", ctx)
        if not ctx.resilient_parsing:  # a shell that completes words does not wait for the tables of errors
            from flopcast.cli.repeated_options import check_option_syntax

            check_option_syntax(self, ctx, args)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=None, version=flopcast.__version__, prog_name="flopcast")
def group() -> None:
    """Predict the time, memory and cost of training and serving large language models on GPU clusters.

    Predictions need only a CPU.

    \b
    flopcast predict llama-3-8b --gpus 16
    flopcast predict job.yaml
    flopcast predict --model gpt3-175b --cluster selene:128 \\
        --plan "dp=16 tp=8 pp=8 mbs=1 gbs=1536 recompute=full precision=fp16" --stack megatron-2022
    """


def main() -> None:
    """Run the command line. Every deliberate error becomes a message and an exit code.

    This function always ends the process. Click's own usage errors exit with 1 (wrong input) instead of
    Click's usual 2, which here means that no plan is feasible. It is not an error if the reader closes the
    pipe early.
    """
    collect_rarely()
    # matrices are small: threads only wait for each other
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _leave_out_modules()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old terminal may not know the letters of a bar
    if completion := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(group, {}, "flopcast", COMPLETE, completion))
    words = sys.argv[1:]
    if wants_json(words):
        sys.exit(_run_as_json(words))
    code, _ = _attempt(lambda: _invoke(words))
    sys.exit(code)


def _leave_out_modules() -> None:
    """Prevent pydantic from looking for plugins, and numpy from writing docstrings, which takes 25 ms."""
    for name in ("pydantic.plugin._loader", "numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars"):
        sys.modules.setdefault(name, ModuleType(name))
    vars(sys.modules["pydantic.plugin._loader"]).setdefault("get_plugins", tuple)


def _run_as_json(words: list[str]) -> int:
    """Run a command that prints JSON: stdout gets one object, either the answer or the errors.

    The output is held back until the command ends. So an error after the answer, such as a report that
    cannot be written, does not print a second object.
    """
    with redirect_stdout(StringIO()) as printed:
        code, error = _attempt(lambda: _invoke(words))
    text = printed.getvalue() if error is None else f"{as_json(error)}\n"
    written, _ = _attempt(lambda: _print(text))
    return code or written


def _invoke(words: list[str]) -> None:
    """Run a command.

    Raises
    ------
    SpecError
        Options or arguments are wrong; every error in them is listed.
    """
    try:
        with group.make_context("flopcast", list(words)) as context:
            group.invoke(context)
    except click.exceptions.NoArgsIsHelpError:
        raise
    except Exception as error:
        from flopcast.errors import SpecError

        if not isinstance(error, (click.ClickException, SpecError)):
            raise
        from flopcast.cli.every_error import every_problem
        from flopcast.cli.usage_errors import as_written

        problems = error.problems if isinstance(error, SpecError) else every_problem(error, words)
        raise SpecError(as_written(problems, words, group)) from error
    _flush()


def _print(text: str) -> None:
    click.echo(text, nl=False)
    _flush()


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _attempt(action: Callable[[], None]) -> tuple[int, Exception | None]:
    """Run an action; return its exit code and the error that ended it, which is printed on stderr."""
    try:
        action()
    except click.exceptions.Exit as end:
        return end.exit_code, None
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED, None
    except click.exceptions.NoArgsIsHelpError as error:
        group = error.ctx.command if error.ctx else None
        if error.ctx and error.ctx.parent and isinstance(group, click.Group):
            from flopcast.cli.usage_errors import missing_command

            print_error("1 error in the input", f"\n\n{missing_command(error.ctx, group)}")
        else:
            error.show()
        return EXIT_INPUT, error
    except BrokenPipeError:
        _drop_what_is_left()
        return 0, None
    except Exception as error:
        return _report_error(error), error
    return 0, None


def _drop_what_is_left() -> None:
    """Discard the unwritten output of stdout, so that Python does not try to write it at exit."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_error(error: Exception) -> int:
    """Print an error and return its exit code; an error that is not deliberate is a bug of flopcast."""
    from flopcast.errors import InfeasibleError, SpecError

    if isinstance(error, SpecError):
        count = len(error.problems)
        print_error(f"{count} error{'s' if count != 1 else ''} in the input", f"\n\n{error}")
        return EXIT_INPUT
    if isinstance(error, InfeasibleError):
        click.echo(str(error), err=True)
        return EXIT_INFEASIBLE
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        click.echo(f"the output cannot be written: {error.strerror}", err=True)
        _drop_what_is_left()
        return EXIT_INPUT
    import traceback

    traceback.print_exception(error)
    click.echo("\nThis is a bug of flopcast: please report it with the lines above.", err=True)
    return EXIT_BUG
