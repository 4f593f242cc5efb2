"""Colours and broken lines: on a terminal alone, and without a change of what is said."""

import re
from functools import cache

from all_cases import all_cases
from command_line import JOB, Terminal, flopcast
from hypothesis import given
from hypothesis import strategies as st

from flopcast.render import terminal

SMALL = ("--model", "megatron-1.7b", "--cluster", "dgx-a100", "--stack", "megatron-2022", "--seq", "2048")
PLAN = ("--plan", "dp=8 mbs=1 gbs=16 precision=fp16")
FEW = ("--plan", "gbs=16 mbs=1 tp=1 pp=1,2 cp=1 zero=1 vpp=1 dp_shard=0 recompute=none precision=fp16")
PLAIN = {"NO_COLOR": "", "FORCE_COLOR": "", "CLICOLOR_FORCE": "", "TERM": "xterm-256color"}
CALLS = {
    "predict": (("predict", *SMALL, *PLAN), r"step      \x1b\[1m\S+ m?s\x1b\[0m"),
    "memory": (("memory", *SMALL, *PLAN), r"of 80.0 GiB: \x1b\[32mfits"),
    "memory that is not there": (
        ("memory", "--model", "llama-3-70b", "--cluster", "dgx-a100:1", "--plan", "tp=8 gbs=8"),
        r"of 80.0 GiB: \x1b\[31mDOES NOT FIT",
    ),
    "compare": (
        ("compare", *SMALL, *PLAN, "plan.micro_batch=2"),
        r"\x1b\[1mB (takes|costs) [^(]*\x1b\[0m \x1b",
    ),
    "explain": (("explain", "mlp.up", *SMALL, *PLAN), r"^mlp.up +\x1b\[1m"),
    "diagnose": (("diagnose", *SMALL, *PLAN, "plan.recompute=full"), r"^1   \x1b\[1m"),
    "search": (("search", *SMALL, *FEW), r'^\x1b\[1m1.*\n      \x1b\[1m--plan "dp=\d'),
    "run": (("run", *SMALL, *PLAN, "--tokens", "1T"), r"time      \x1b\[1m"),
    "validate": (("validate", "--suite", "sc21"), r"\x1b\[32minside\x1b\[0m"),
}


def on_terminal(*words, columns=400, **variables):
    return flopcast(*words, stream=Terminal, variables=PLAIN | {"COLUMNS": str(columns)} | variables)


@cache
def piped_call(name):
    """How one of the calls ends in a pipe."""
    return flopcast(*CALLS[name][0], variables=PLAIN)


@all_cases("name", CALLS)
def test_a_terminal_shows_the_same_text_in_colours_that_mean_something(name):
    words, marked = CALLS[name]

    piped, shown = piped_call(name), on_terminal(*words)

    assert "\x1b" not in piped.out
    assert terminal.plain(shown.out) == piped.out
    assert re.search(marked, shown.out, re.MULTILINE)
    assert shown.code == piped.code


def test_intervals_warnings_and_assumptions_are_marked_in_every_answer():
    shown = on_terminal("predict", "llama-3-8b", "--gpus", "16", "--plan", "dp=16", columns=600).out

    assert terminal.aside("assumed") in shown
    assert all("\x1b[2m" in line for line in shown.partition("assumed")[2].splitlines()[1:])
    assert re.search(r"\x1b\[2m\(90 %: [^)]*\)\x1b\[0m", shown)
    assert re.search(r"^\x1b\[33mwarning   ", shown, re.MULTILINE)


def test_what_stands_behind_the_assumptions_keeps_its_place():
    text = "step 1 s\n\nassumed\n  one (90 %: 1 to 2)\n  two\n\nlog       train.log"

    marked = terminal.with_common_marks(text)

    assert terminal.plain(marked) == text
    assert marked.endswith(f"  {terminal.aside('two')}\n\nlog       train.log")


WISHES = {  # variables → are there colours on a terminal, and in a pipe?
    "nothing is said": ({}, True, False),
    "no colours": ({"NO_COLOR": "1"}, False, False),
    "a terminal without control sequences": ({"TERM": "dumb"}, False, False),
    "colours in any case": ({"FORCE_COLOR": "1"}, True, True),
    "colours in any case, as others spell it": ({"CLICOLOR_FORCE": "1"}, True, True),
    "both": ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
    "a zero": ({"FORCE_COLOR": "0"}, True, False),
}


@all_cases("name", WISHES)
def test_variables_of_the_environment_choose_the_colours(name):
    variables, on, in_pipe = WISHES[name]
    words = ("memory", *SMALL, *PLAN)

    assert ("\x1b" in on_terminal(*words, **variables).out) is on
    assert ("\x1b" in flopcast(*words, variables=PLAIN | variables).out) is in_pipe


def test_a_file_never_has_colours(tmp_path):
    place = tmp_path / "memory.txt"

    on_terminal("memory", *SMALL, *PLAN, "-o", place, FORCE_COLOR="1", columns=40)

    assert place.read_text(encoding="utf-8") == flopcast("memory", *SMALL, *PLAN, variables=PLAIN).out


@all_cases("name", CALLS)
def test_at_80_columns_no_word_is_broken(name):
    words, _ = CALLS[name]

    lines = terminal.plain(on_terminal(*words, columns=80).out).splitlines()

    assert max(map(len, lines)) <= 80
    assert " ".join(lines).split() == piped_call(name).out.split()


def test_a_plan_that_a_terminal_broke_can_be_copied():
    long = "dp=1 pp=8 vpp=3 mbs=1 gbs=16 stage_layers=" + ",".join(["1"] * 24)
    broken = terminal.fitted(long, 40)

    whole, copied = (flopcast("memory", *SMALL, "--plan", plan) for plan in (long, broken))

    assert "\n" in broken
    assert max(map(len, broken.split("\n"))) <= 40
    assert whole.code == 0
    assert copied == whole


@given(st.lists(st.text("abc", min_size=1, max_size=12)), st.lists(st.integers(1, 4)), st.integers(40, 90))
def test_lines_are_broken_at_spaces_alone(words, gaps, columns):
    gaps = [*gaps, *[1] * len(words)]
    line = "".join(word + " " * gap for word, gap in zip(words, gaps, strict=False)).rstrip()

    parts = terminal.fitted(line, columns).split("\n")

    assert " ".join(parts).split() == words
    assert all(len(part) <= columns for part in parts)


def test_the_headline_of_an_error_is_red_on_a_terminal(tmp_path):
    place = tmp_path / "job.yaml"
    place.write_text(JOB.replace("data_parallel: 8", "data_parallel: 0"), encoding="utf-8")

    shown, piped = on_terminal("predict", place), flopcast("predict", place, variables=PLAIN)

    assert shown.err.startswith(terminal.bad("1 error in the input"))
    assert terminal.plain(shown.err) == piped.err
