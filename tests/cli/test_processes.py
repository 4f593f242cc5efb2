"""`python -m flopcast` as a process: exit codes, streams, pipes, what is imported, how little it needs."""

import json
import resource
import sys
from subprocess import PIPE

import pytest
from children import child, ran
from command_line import JOB, environment, flopcast, process

from flopcast.cli.main import COMMANDS
from flopcast.files.yaml_text import MAX_BYTES

LOADED = """\
import sys
from flopcast.cli.main import main
sys.argv = ["flopcast"] + sys.argv[1:]
try:
    main()
except SystemExit as end:
    print("\\n" + " ".join(sorted(sys.modules)), file=sys.stderr)
    raise
"""


@pytest.fixture
def path(tmp_path):
    """A job file."""
    made = tmp_path / "job.yaml"
    made.write_text(JOB, encoding="utf-8")
    return made


def with_little_memory():
    """Two gigabytes for the process that is about to start."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))


def modules(*words):
    """What a command has imported when it ends."""
    made = ran([sys.executable, "-c", LOADED, *words], check=True, env=environment())
    return set(made.stderr.decode().split())


def test_a_job_is_predicted(path):
    ended = process("predict", path, "--json")

    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["step_time_s"] > 0


def test_a_wrong_job_ends_with_1_and_says_nothing_on_stdout(path):
    ended = process("predict", path, "plan.data_parallel=3")

    assert (ended.code, ended.out) == (1, "")
    assert "fix:" in ended.err


def test_help_needs_neither_numpy_nor_pydantic_and_lists_all_commands():
    ended = process("--help")

    assert ended.code == 0
    assert all(name in ended.out for name in COMMANDS)
    assert modules("--help") & {"numpy", "pydantic", "yaml", "rich"} == set()


def test_the_package_alone_imports_nothing_heavy():
    program = "import sys, flopcast; print(*sys.modules)"

    made = ran([sys.executable, "-c", program], check=True, env=environment())

    assert set(made.stdout.decode().split()) & {"numpy", "pydantic", "yaml", "click"} == set()


def test_memory_needs_no_measured_curves(path):
    loaded = modules("memory", path)

    assert "flopcast.memory.peak" in loaded
    assert "flopcast.library.curves" not in loaded


def test_the_catalogue_is_listed_without_the_core():
    assert "flopcast.prediction" not in modules("catalog", "devices")


def test_a_reader_who_leaves_early_is_no_fault():
    command = [sys.executable, "-m", "flopcast", "schema"]
    with child(command, stdout=PIPE, stderr=PIPE, env=environment()) as started:
        started.stdout.close()
        said = started.stderr.read().decode()
        started.wait()

    assert said == ""
    assert started.returncode == 0


def test_a_file_larger_than_memory_is_refused_unread(tmp_path):
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 33)  # a hole of 8 GiB: takes no room on disk

    ended = process("predict", path, preexec_fn=with_little_memory)

    assert ended.code == 1
    assert f"at most {MAX_BYTES} bytes" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_report_is_printed_on_a_terminal_of_any_encoding(path, encoding):
    called = environment(PYTHONIOENCODING=encoding)

    made = ran([sys.executable, "-m", "flopcast", "predict", path], env=called)

    assert made.returncode == 0
    assert b"megatron-1.7b on dgx-a100" in made.stdout


def test_a_job_in_a_path_of_foreign_letters_is_told_by_that_path(tmp_path):
    path = tmp_path / "тест-模型.yaml"
    path.write_text(JOB.replace("global_batch: 16", "global_batch: 17"), encoding="utf-8")

    ended = flopcast("predict", path)

    assert ended.code == 1
    assert "тест-模型.yaml:8: plan.global_batch = 17" in ended.err


def test_a_path_may_hold_an_equals_sign(tmp_path):
    path = tmp_path / "dp=8.yaml"
    path.write_text(JOB, encoding="utf-8")

    assert flopcast("predict", path).code == 0


NOWHERE = {  # words that write a file → the option that names it
    ("predict", "job.yaml", "--report", "/dev/full"): "--report",
    ("predict", "job.yaml", "--trace", "/dev/full"): "--trace",
    ("predict", "job.yaml", "-o", "/dev/full"): "--output",
    ("export", "megatron", "job.yaml", "-o", "/dev/full"): "--output",
    ("memory", "job.yaml", "--out", "/dev/full"): "--out",
    ("import", "hf", "config.json", "--out", "/dev/full"): "--out",
}
CONFIG = (
    '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,'
    ' "intermediate_size": 128, "vocab_size": 100, "rms_norm_eps": 1e-5}'
)


@pytest.mark.parametrize("words", NOWHERE, ids=" ".join)
def test_a_file_that_cannot_be_written_is_a_fault_of_its_option(path, words, monkeypatch):
    (path.parent / "config.json").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(path.parent)

    ended = flopcast(*words)

    assert ended.code == 1
    assert f"{NOWHERE[words]} = '/dev/full' is not allowed" in ended.err
    assert "No space left" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("words", [("predict", "job.yaml"), ("--help",), ("catalog",)], ids=" ".join)
@pytest.mark.parametrize(
    ("stdout", "code", "told"),
    [("/dev/full", 1, "cannot be written"), ("&-", 0, "")],
    ids=["full", "closed"],
)
def test_a_place_that_takes_no_output_is_no_bug_of_ours(path, words, stdout, code, told):
    called = f"exec '{sys.executable}' -m flopcast {' '.join(words)} >{stdout}"

    made = ran(["/bin/sh", "-c", called], env=environment(), cwd=path.parent)

    assert made.returncode == code
    assert told in made.stderr.decode()
    assert b"Traceback" not in made.stderr
