"""TOML with the line of every key, names of models, and texts that mean harm."""

import pytest
from all_cases import all_cases
from conftest import make_job
from foreign_cases import data_of, told

from flopcast.errors import SpecError
from flopcast.interop.configs.job_reader import FLAVOURS
from flopcast.interop.configs.toml_text import read_toml
from flopcast.library import catalog

TEXT = b'''# first
top = 1
[a]
words = """
[not.a.table]
key = 2
"""
list = [
  1, # one ]
  2,
]
"quoted key" = 'x'
[a.b]
c.d = {e = 3}
[[rows]]
n = 1
[[rows]]
n = 2
'''


@all_cases(
    ("path", "line"),
    [
        (("top",), 2),
        (("a",), 3),
        (("a", "words"), 4),
        (("a", "list"), 8),
        (("a", "quoted key"), 12),
        (("a", "b"), 13),
        (("a", "b", "c", "d"), 14),
        (("a", "b", "c", "d", "e"), 14),
        (("rows", 0, "n"), 16),
        (("rows", 1, "n"), 18),
    ],
)
def test_a_key_has_the_line_that_it_stands_in(path, line):
    assert read_toml(TEXT, "t.toml").where(path) == f"t.toml:{line}"


@all_cases(
    ("text", "line"),
    [
        (b"a = 1\nb = \n", 2),
        (b"a = 1\na = 2\n", 2),
        (b"a = nan\n", 1),
        (b"\n" + b"a = " + b"[" * 100_000, 2),
        (b"[" + b"a." * 100 + b"a]\n", 1),
        (b"a = '\xff'\n", 1),
    ],
)
def test_what_is_no_plain_data_is_refused_with_its_line(text, line):
    with pytest.raises(SpecError) as error:
        read_toml(text, "t.toml")

    assert error.value.problems[0].where == f"t.toml:{line}"


@all_cases(
    ("told_name", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama-2-70b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-v0.3"),  # another vocabulary
        ("/data/models/llama-2-7b/", "llama-2-7b"),
        ("own/llama-2-8b", None),
        ("llama-3.3-70b", "llama-3.1-70b"),
        ("mistral-nemo", "mistralai/Mistral-Nemo-Base-2407"),
        ("Mistral-Nemo-Instruct", "mistralai/Mistral-Nemo-Base-2407"),
        ("qwen3-235b", "qwen3-235b-a22b"),
        ("llama-3", None),  # several sizes
        ("", None),
    ],
)
def test_a_name_is_found_without_what_changes_no_shape(told_name, name):
    assert catalog.known("models", told_name) == name


@all_cases("flavour", FLAVOURS.values())
def test_every_flavour_is_a_model_of_the_catalogue(flavour):
    assert catalog.known("models", flavour) == flavour


@all_cases("name", ["a.toml", "a.json", "a.yaml"])
@all_cases("kind", ["axolotl", "deepspeed", "maxtext", "torchtitan"])
def test_an_empty_file_is_refused_whatever_it_is_said_to_be(name, kind):
    assert [fault.field for fault in told("", name, kind=kind)] == ["document"]


def test_a_format_that_does_not_exist_is_told_with_those_that_do():
    (fault,) = told("a: 1", "a.yaml", kind="axolot")

    assert (fault.field, fault.fix) == ("format", "did you mean axolotl?")


def test_a_torchtitan_file_may_name_the_model_alone():
    data = data_of('[model]\nname = "llama3"\nflavor = "8B"\n', "titan.toml")

    assert data["stack"] == "torch-fsdp2"


def test_an_unknown_file_is_offered_the_format_whose_keys_it_has():
    (fault,) = told('[model]\nflavor = "8B"\n', "titan.toml")

    assert fault.fix.endswith("--kind torchtitan")


def test_names_of_every_kind_are_found_whatever_their_case_and_separators():
    for kind in catalog.KINDS:
        for name in catalog.names(kind):
            for written in (name, name.upper(), name.replace("-", "_"), name.replace("-", " ")):
                assert catalog.known(kind, written) == name, (kind, written)
        assert catalog.known(kind, "no such name") is None


def test_jobs_are_the_same_whatever_way_their_parts_are_named():
    plain = make_job(model="llama-2-7b", cluster="dgx-h100:1", stack="megatron-core")

    spelt = make_job(model="meta-llama/Llama-2-7b-hf", cluster="DGX_H100:1", stack="Megatron-Core")

    assert spelt == plain
