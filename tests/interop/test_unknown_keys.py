"""A key that a reader does not know is an error where its name says that it may change time or memory."""

import json

import pytest
from all_cases import all_cases
from foreign_cases import FOREIGN
from hf_cases import published
from megatron_cases import document_of

from flopcast.errors import SpecError, problems_of
from flopcast.files.unknown_keys import COSTLY, costly_part
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.interop.configs.formats import KINDS, parsed
from flopcast.interop.configs.keys import covered, keys_of
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.interop.megatron.flags import KNOWN, SILENT_PREFIXES, is_silent

NAMES = [f"zz_{part}_zz" for part in COSTLY]


def faults_of(read):
    """Field, line and fault of every problem that a reader raises."""
    return [(p.field, p.where.rpartition(":")[2], p.fault) for p in problems_of(read)]


def test_every_format_refuses_an_unknown_key_that_speaks_of_a_size_with_its_line():
    for kind in KINDS:
        for name in NAMES:
            inside = "launcher" if "model" in keys_of(kind).read.split() else "model"
            for section in ("", f"{inside}:\n  "):
                reader = ConfigReader(read_yaml(f"{section}{name}: 7\n".encode(), "a.yaml"), keys_of(kind))
                (problem,) = reader.problems
                line = "2" if section else "1"
                assert (problem.where, problem.fault) == (f"a.yaml:{line}", "is not known"), (kind, name)
                assert "affects time or memory" in problem.because


def test_a_launch_script_and_a_config_of_a_model_refuse_them_too():
    for part in COSTLY:
        flag = f"--moe-zz-{part}"
        found = faults_of(lambda flag=flag: document_of(f"{flag} 7"))
        assert (flag, "11", "is not known") in found, flag
        config = published("llama-2-7b") | {f"zz_{part}_zz": 7}
        document = read_yaml(json.dumps(config, indent=1).encode(), "config.json")
        found = faults_of(lambda document=document: model_from_config(document))
        assert [(field, fault) for field, _, fault in found] == [(f"zz_{part}_zz", "is not known")]
        assert [line for _, line, _ in found] == [str(json.dumps(config, indent=1).count("\n"))]


def test_a_flag_that_speaks_of_a_width_is_an_error_if_its_value_is_a_number():
    for flag, value, faults in (
        ("--moe-mlp-dim", "4096", ["--moe-mlp-dim"]),
        ("--ffn-multiplier", "3", ["--ffn-multiplier"]),
        ("--ffn-multiplier", "wide", []),
        ("--mtp-depth", "1", []),
    ):
        found = faults_of(lambda words=f"{flag} {value}": document_of(words))

        assert [field for field, _, _ in found] == faults, (flag, value)


def test_a_value_that_switches_nothing_on_and_a_name_without_a_size_are_only_noted():
    for text in ("zz_expert_zz: null", "zz_expert_zz: false", "zz_expert_zz: 0", "mascot: llama"):
        reader = ConfigReader(read_yaml(text.encode(), "a.yaml"), keys_of("axolotl"))
        assert reader.problems == []
        assert ["is not known and is ignored" in note for note in reader.assumptions] == [True]


def test_no_prefix_and_no_wildcard_of_irrelevant_keys_covers_a_name_that_speaks_of_a_size():
    for start in SILENT_PREFIXES:
        for part in COSTLY:
            assert not is_silent(f"{start}zz-{part}"), start
    for kind in KINDS:
        keys = keys_of(kind)
        wildcards = [n for names in keys.free.values() for n in names.split() if n.endswith(".*")]
        for start in wildcards:
            for part in COSTLY:
                key = f"{start[:-1]}zz_{part}_zz"
                reader = ConfigReader(Document("a.yaml", nested(key), {}), keys)
                known = covered(key, [*keys.read.split(), *keys.refused, *keys.left_out])
                assert known or [problem.field for problem in reader.problems] == [key], (kind, key)


def nested(key):
    """The data of a file in which one dotted key is 7."""
    data = 7
    for part in reversed(key.split(".")):
        data = {part: data}
    return data


@pytest.mark.parametrize("flag", ["--moe-per-layer-logging", "--moe-router-topk-scaling-factor 2.5"])
def test_flags_of_experts_that_cost_nothing_are_listed_one_by_one(flag):
    name = flag.split()[0]
    plain = document_of("").data["assumptions"]

    assert name in KNOWN
    assert document_of(flag).data["assumptions"] == plain


def test_no_kept_file_is_refused_for_a_key_that_its_program_has():
    refused = []
    for path in sorted(FOREIGN.glob("*/*")):
        reader = ConfigReader(parsed(path.read_bytes(), path.name), keys_of(path.parent.name))
        refused += [(path.name, p.field) for p in reader.problems if "not a known key" in p.because]
    assert refused == []


def test_an_unknown_size_under_a_word_that_other_settings_have_as_well_is_an_error_if_it_is_a_number():
    """A config of llama with `mlp_dim` was predicted with the feed-forward width of Llama 7B."""
    sizes = published("llama-2-7b")
    del sizes["intermediate_size"]
    for name in ("mlp_dim", "d_ff", "feed_forward_dim", "kv_channels", "multi_query_group_num", "depth"):
        for value, faults in ((5504, [name]), ("wide", []), (None, []), (1, [])):
            text = json.dumps(sizes | {name: value}, indent=1)
            document = read_yaml(text.encode(), "config.json")

            found = faults_of(lambda document=document: model_from_config(document))

            assert [field for field, _, _ in found] == faults, (name, value)


def test_words_that_hold_such_a_name_by_chance_are_no_sizes():
    assert [costly_part(name) for name in ("request_header", "overhead_s", "look_ahead_steps")] == [""] * 3


@pytest.mark.parametrize("text", ["zz: [{num_heads: 4}]", "zz: {inner: {num_heads: 4}}"])
def test_an_unknown_key_that_holds_a_size_is_refused_too(text):
    reader = ConfigReader(read_yaml(text.encode(), "a.yaml"), keys_of("axolotl"))

    assert [problem.fault for problem in reader.problems] == ["is not known"]
    assert "num_heads" in reader.problems[0].because + reader.problems[0].field


@all_cases(
    ("kind", "key", "near"),
    [
        ("torchtune", "dataset.max_seq_len", None),
        ("torchtune", "tokeniser.max_seq_len", "tokenizer.max_seq_len"),
        ("llm-foundry", "algorithms.max_seq_len", None),
        ("torchtitan", "model_spec.fuzz_layers", None),
        ("torchtitan", "model_spec.model.fuzz_layers", None),
        ("torchtitan", "model_spec.model.layer.attention.fuzz_heads", None),
    ],
)
def test_a_size_in_another_section_than_its_own_is_refused(kind, key, near):
    *sections, name = key.split(".")
    data = {name: 8192}
    for section in reversed(sections):
        data = {section: data}

    (problem,) = ConfigReader(Document("a.yaml", data, {}), keys_of(kind)).problems

    if near is None:
        assert (problem.field, problem.fault) == (key, "is not known")
    else:
        assert (problem.field, problem.fix) == (
            ".".join(sections),
            f"did you mean {near.rpartition('.')[0]}?",
        )


def test_a_text_part_under_a_misspelt_name_is_refused_with_the_right_name():
    config = {"model_type": "llama4", "text_config_": {"hidden_size": 8}}

    with pytest.raises(SpecError) as error:
        model_from_config(Document("config.json", config, {}))

    assert [(one.field, one.fix) for one in error.value.problems] == [
        ("text_config_", "did you mean text_config?")
    ]


def test_a_mapping_instead_of_a_value_is_refused_in_every_format():
    for kind in KINDS:
        keys = keys_of(kind)
        for name in keys.read.split():
            if keys.value_above(f"{name}.colour"):
                data = {"colour": 1}
                for part in reversed(name.split(".")):
                    data = {part: data}
                (problem,) = ConfigReader(Document("a.yaml", data, {}), keys).problems
                assert (problem.field, problem.fault) == (name, "is a mapping"), (kind, name)
