"""Manners of every command: examples in its help, files on stdin, output to a file, completion of words."""

import sys

import click
import pytest
from all_cases import all_cases
from children import ran
from command_line import JOB as FILE
from command_line import PLAN, WORDS, Ended, environment, flopcast, process

from flopcast.cli.main import COMMANDS, COMPLETE, group
from flopcast.cli.suggestions import CATALOG
from flopcast.interop.exports.kinds import KINDS, SERVING
from flopcast.library import catalog

JOB = (*WORDS, "--gpus", "8", "--plan", PLAN)
CONFIG = (
    b'{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,'
    b' "intermediate_size": 128, "vocab_size": 100, "rms_norm_eps": 1e-5}'
)
PHASES = "phases: [{name: one, tokens: 1B}, {name: two, tokens: 1B, changes: plan.gbs=32}]"
SHELLS = ("bash", "zsh", "fish")


def every_command(command=group, words=()):
    """Words of every command, those inside of groups too."""
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        yield (*words, name)
        if isinstance(inner, click.Group):
            yield from every_command(inner, (*words, name))


def completed(*words, shell="bash"):
    """What the shell is offered behind these words, the last of which is not finished."""
    told = {COMPLETE: f"{shell}_complete", "COMP_WORDS": " ".join(("flopcast", *words))}
    ended = flopcast(variables=told | {"COMP_CWORD": str(len(words))})
    return [line.partition(",")[2] for line in ended.out.splitlines()]


@all_cases("words", list(every_command()))
def test_the_help_of_every_command_shows_how_it_is_called(words):
    ended = flopcast(*words, "--help")

    examples = [line for line in ended.out.splitlines() if line.startswith(f"  flopcast {' '.join(words)}")]
    assert ended.code == 0
    assert examples


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_gets_a_function_that_asks_flopcast(shell, tmp_path):
    place = tmp_path / "flopcast.sh"

    printed = flopcast("completion", shell)
    flopcast("completion", shell, "-o", place)

    assert printed.code == 0
    assert f"{COMPLETE}={shell}_complete" in printed.out
    assert place.read_text(encoding="utf-8") == printed.out


def test_an_unknown_shell_is_wrong_input():
    ended = flopcast("completion", "tcsh")

    assert ended.code == 1
    assert "bash, zsh, fish" in ended.err


def test_commands_complete_by_name():
    assert completed("ex") == ["explain", "export"]
    assert completed("") == list(COMMANDS)


@pytest.mark.parametrize(
    ("option", "kind"), [("--model", "models"), ("--cluster", "clusters"), ("--stack", "stacks")]
)
def test_options_complete_by_names_of_the_catalogue(option, kind):
    assert completed("predict", option, "") == list(catalog.names(kind))


def test_kinds_and_names_of_the_catalogue_complete():
    assert completed("catalog", "dev") == ["devices"]
    assert completed("catalog", "") == sorted(catalog.KINDS)
    assert completed("catalog", "stacks", "megatron-202") == ["megatron-2021", "megatron-2022"]


def test_a_model_that_no_name_begins_is_a_file():
    assert completed("predict", "--model", "./conf") == ["./conf"]


def test_what_is_explained_and_exported_completes():
    assert completed("explain", "me") == ["memory"]
    assert completed("export", "") == [*KINDS, *SERVING]
    assert completed("export", "ch") == ["chakra", "chrome"]


def test_completing_imports_nothing_heavy():
    code = (
        "import sys\nfrom flopcast.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n"
        "    print([m for m in ('numpy', 'pydantic', 'yaml') if m in sys.modules], file=sys.stderr)"
    )
    told = {COMPLETE: "bash_complete", "COMP_WORDS": "flopcast catalog models q", "COMP_CWORD": "3"}

    made = ran([sys.executable, "-c", code], env=environment(**told))

    assert b"qwen3-8b" in made.stdout
    assert made.stderr.decode().strip() == "[]"


def test_every_kind_that_completes_is_a_folder_of_the_catalogue():
    assert {path.name for path in CATALOG.iterdir() if path.is_dir()} >= set(catalog.KINDS)


@pytest.mark.parametrize("command", ["predict", "memory"])
def test_a_job_may_be_piped_in(command, tmp_path):
    place = tmp_path / "job.yaml"
    place.write_text(FILE, encoding="utf-8")

    piped = process(command, "-", "--json", input=FILE.encode())

    assert piped == Ended(0, flopcast(command, place, "--json").out, piped.err)


def test_a_config_may_be_piped_in():
    ended = flopcast("import", "hf", "-", input=CONFIG)

    assert ended.code == 0
    assert "hidden: 64" in ended.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("compare", "-", "plan.recompute=full"), "recompute=full"),
        (("compare", "-", "-", "plan.recompute=full"), "recompute=full"),
        (("run", "-", "--phases", "phases.yaml"), "gbs=32"),
        (("search", "-", "--cluster", "dgx-a100:1", "--cluster", "dgx-h100:1", "--plan",
          "gbs=16 mbs=1 cp=1 pp=1 zero=1 dp_shard=0 recompute=none"), "dgx-h100     8  "),
    ],
    ids=["a change", "twice", "two phases", "two clusters"],
)  # fmt: skip
def test_what_is_piped_in_may_be_asked_for_more_than_once(tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phases.yaml").write_text(PHASES, encoding="utf-8")

    ended = flopcast(*words, input=FILE.encode())

    assert ended.code == 0, ended.err
    assert told in ended.out


def test_a_model_alone_may_be_piped_in():
    ended = flopcast(
        "memory", "--model", "-", "--cluster", "dgx-h100:1", "--plan", "dp=8 gbs=8", input=CONFIG
    )

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("llama on dgx-h100: 8 × ")


def test_faults_of_what_is_piped_in_have_their_lines():
    ended = flopcast("predict", "-", input=FILE.replace("micro_batch: 1", "micro_batch: none").encode())

    assert ended.code == 1
    assert "-:7: plan.micro_batch" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("predict", *JOB),
        ("memory", *JOB, "--json"),
        ("explain", "step", *JOB),
        ("diagnose", *JOB),
        ("schema",),
        ("catalog", "devices", "a100-sxm4-80gb"),
        ("compare", *JOB, "plan.micro_batch=2"),
        ("run", *JOB, "--tokens", "1B"),
        ("search", *WORDS, "--gpus", "8", "--plan", PLAN, "--top", "1"),
    ],
    ids=lambda words: words[0],
)
def test_output_goes_to_a_file_as_it_would_be_printed(words, tmp_path):
    place = tmp_path / "out"

    written = flopcast(*words, "-o", place)

    assert (written.code, written.out) == (0, "")
    assert place.read_text(encoding="utf-8") == flopcast(*words).out
    assert f"wrote {place}" in written.err


def test_a_faulty_job_leaves_no_file_behind(tmp_path):
    place = tmp_path / "out"

    ended = flopcast("memory", *JOB, "plan.tensor_parallel=3", "-o", place)

    assert ended.code == 1
    assert not place.exists()


def test_a_folder_that_does_not_exist_is_told_before_any_work(tmp_path):
    for written, told in {"-o": "--output", "--output": "--output", "--out": "--out"}.items():
        ended = flopcast("predict", *JOB, written, tmp_path / "none" / "out")

        assert ended.code == 1
        assert f"\n{told} = " in ended.err


def test_a_text_without_keys_or_commands_is_no_job(tmp_path):
    file = tmp_path / "hello.txt"
    file.write_text("hello\n", encoding="utf-8")

    ended = flopcast("import", str(file))

    assert ended.code == 1
    assert "the file contains no model, no cluster, no plan and no command" in ended.err


def test_a_range_of_devices_that_falls_or_begins_with_none_is_refused():
    for written, right in (("64..32", "32..64"), ("0..7", "1..7")):
        ended = flopcast("search", "llama-3-8b", "--gpus", written)

        assert ended.code == 1
        assert right in ended.err
