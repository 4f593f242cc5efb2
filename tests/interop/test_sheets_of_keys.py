"""One foreign file as a sheet: what each reader takes, what it tells, and where the value stands."""

import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.files.yaml_text import read_yaml
from flopcast.interop.configs.config_reader import MOST
from flopcast.interop.configs.formats import KINDS
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.job_reader import FLAVOURS, JobReader
from flopcast.interop.configs.keys import Keys, covered, keys_of
from flopcast.interop.configs.nested_deepspeed import stage_in_name
from flopcast.layers.adapted_linears import OF_TRANSFORMERS
from flopcast.library import catalog
from flopcast.spec.divisors import dealt

LAWS = settings(max_examples=60)
KEYS = Keys(
    program="A trainer",
    read="a b plan.expert_degree plan.other",
    free={"it is printed": "colour logs.*"},
    left_out={"noise": "its update is not counted"},
    refused={"moe.*": "experts"},
    fine={"noise": ("soft",)},
)


def sheet_of(text, asked=None, keys=KEYS):
    return JobReader(read_yaml(text.encode(), "a.yaml"), keys, asked)


def told(reader):
    """Place, field and allowed values of each fault."""
    return [(problem.where, problem.field, problem.allowed) for problem in reader.problems]


@all_cases(
    ("written", "number"),
    [("8", 8), ("0x8", None), ("5e8", 500_000_000), ('"12"', 12), ("2.0", 2), ("1_000", 1000)],
)
def test_a_count_is_read_as_files_write_it(written, number):
    reader = sheet_of(f"a: {written}\n")

    assert reader.count("a", 7) == (7 if number is None else number)
    assert len(reader.problems) == (number is None)


@all_cases("written", ["true", "1.5", "-1", "0", "[8]", '"8.0"', "many", f"{MOST + 1}"])
def test_what_is_no_count_is_told_once_and_the_default_goes_on(written):
    reader = sheet_of(f"b: 1\na: {written}\n")

    assert reader.count("a", 4) == 4
    assert told(reader) == [("a.yaml:2", "a", "a whole number of at least 1")]
    assert reader.problems[0].fix == "write 4"


@LAWS
@given(value=st.integers(-5, 20), least=st.integers(0, 10), default=st.integers(0, 20))
def test_a_count_below_the_least_is_refused_with_one_that_would_pass(value, least, default):
    reader = sheet_of(f"a: {value}\n")

    found = reader.count("a", default, least=least)

    assert found == (value if value >= least else default)
    for problem in reader.problems:
        again = sheet_of(f"a: {problem.fix.removeprefix('write ')}\n")
        again.count("a", default, least=least)
        assert again.problems == []
    assert bool(reader.problems) == (value < least)


@all_cases(
    ("written", "expected"),
    [("true", True), ("false", False), ('"True"', True), ("FALSE", False), ("null", True), ("yes", None)],
)
def test_a_switch_is_true_or_false(written, expected):
    reader = sheet_of(f"a: {written}\n")

    assert reader.flag("a", True) is (True if expected is None else expected)
    assert [field for _, field, _ in told(reader)] == (["a"] if expected is None else [])


@all_cases(
    ("written", "found", "fix"),
    [
        ("Full", "whole", None),
        ("none", "", None),
        ("ful", "dflt", "did you mean full?"),
        ("7", "dflt", "choose one of these values, such as full"),
    ],
)
def test_a_choice_takes_words_in_any_case_and_offers_the_nearest(written, found, fix):
    reader = sheet_of(f"a: {written}\n")

    assert reader.choice("a", {"full": "whole", "none": ""}, "dflt") == found
    assert [problem.fix for problem in reader.problems] == ([fix] if fix else [])


@all_cases(
    ("written", "texts"),
    [
        ("q, k ,v", ("q", "k", "v")),
        ("[q, v]", ("q", "v")),
        ("one", ("one",)),
        ("null", ()),
        ("[]", ()),
        ("[1]", None),
        ("8", None),
    ],
)
def test_a_list_of_names_may_be_one_text(written, texts):
    reader = sheet_of(f"a: {written}\n")

    assert reader.texts("a") == (texts or ())
    assert len(reader.problems) == (texts is None)


@all_cases(
    ("written", "right"),
    [("0", True), ("1", True), ("0.3", True), ("1.01", False), ("-0.1", False), ("true", False)],
)
def test_a_share_lies_between_nothing_and_all(written, right):
    reader = sheet_of(f"a: {written}\n")

    assert reader.fraction("a", 0.25) == (float(written) if right else 0.25)
    assert bool(reader.problems) is not right


@all_cases(
    ("text", "key", "value"),
    [
        ("a: 8\nb: ${a}\n", "b", 8),
        ("a: 8\nplan:\n  expert_degree: ${a}\n", "plan.expert_degree", 8),
        ("plan:\n  other: 4\n  expert_degree: ${.other}\n", "plan.expert_degree", 4),
        ("a: 2\nplan:\n  expert_degree: ${..a}\n", "plan.expert_degree", 2),
        ("plan:\n  expert_degree: ${plan.other}\n  other: ${a}\na: 16\n", "plan.expert_degree", 16),
    ],
)
def test_a_reference_is_the_value_that_it_leads_to(text, key, value):
    reader = sheet_of(text)

    assert reader.count(key) == value
    assert reader.problems == []


@all_cases("word", ["${HOME}", "${oc.env:N}", "x${a}", "${b}", "${a.b.c}", "${.b}"])
def test_a_reference_to_what_the_file_does_not_hold_is_told_once(word):
    reader = sheet_of(f"a: 8\nb: {word!r}\n")

    assert (reader.count("b", 3), reader.count("b", 3)) == (3, 3)
    assert [problem.field for problem in reader.problems] == ["b"]
    assert reader.problems[0].fix == "write the value itself"


def test_values_that_are_left_to_somebody_are_said_aloud():
    reader = sheet_of("a: auto\nb: auto\n")

    assert reader.count("a", 6, auto="as the program has it") == 6
    assert reader.flag("b", False, auto="as the devices are") is False
    assert reader.assumptions == [
        "a=auto means 6, as the program has it (a.yaml:1)",
        "b=auto means false, as the devices are (a.yaml:2)",
    ]
    assert reader.count("a") == 1
    assert [problem.field for problem in reader.problems] == ["a"]


@all_cases(
    ("text", "fields", "assumed"),
    [
        ("colour: red\nlogs:\n  level: 3\n", [], []),
        ("moe:\n  experts: 8\n", ["moe.experts"], []),
        ("moe:\n  experts: 0\nnoise: null\n", [], []),
        ("noise: soft\n", [], []),
        ("noise: loud\n", [], ["noise: its update is not counted (a.yaml:1)"]),
        ("plan:\n  expert_degre: 2\n", ["plan.expert_degre"], []),
        ("plan:\n  expert_degre: 2\n  expert_degree: 2\n", ["plan.expert_degre"], []),
        (
            "plan:\n  othr: 2\n  other: 2\n",
            [],
            ["plan.othr is not known and is ignored; did you mean plan.other? (a.yaml:2)"],
        ),
        ("unheard: 1\n", [], ["unheard is not known and is ignored (a.yaml:1)"]),
    ],
)  # fmt: skip
def test_every_key_is_read_free_left_out_refused_or_not_known(text, fields, assumed):
    reader = sheet_of(text)

    assert [problem.field for problem in reader.problems] == fields
    assert reader.assumptions == assumed


@all_cases(
    ("asked", "stated", "devices", "assumed"),
    [
        (ImportOptions(devices=16), None, 16, 0),
        (ImportOptions(devices=16), 16, 16, 0),
        (ImportOptions(devices=16), 64, 16, 1),
        (ImportOptions(whole=32), None, 32, 1),
        (ImportOptions(whole=32), 8, 8, 0),
        (ImportOptions(), 8, 8, 0),
    ],
)
def test_devices_are_those_asked_for_then_those_stated_then_all(asked, stated, devices, assumed):
    reader = sheet_of("a: 1\n", asked)

    assert reader.replicas({"a": 4}, stated) == devices // 4
    assert (len(reader.assumptions), reader.problems) == (assumed, [])


def test_devices_that_nobody_says_and_replicas_that_are_not_whole_are_told():
    unknown, cut = sheet_of("a: 3\n"), sheet_of("a: 3\n", ImportOptions(devices=8))

    assert unknown.replicas({"a": 3}) == 1
    cut.replicas({"a": 3})

    assert [problem.field for problem in unknown.problems] == ["world size"]
    assert [(problem.field, problem.where) for problem in cut.problems] == [("a", "a.yaml:1")]
    assert cut.problems[0].fix == "set a to 2"


def test_faults_are_raised_together_in_the_order_of_their_lines():
    reader = sheet_of("a: x\n\nb: y\n")
    reader.count("b")
    reader.count("a")

    with pytest.raises(SpecError) as error:
        reader.made()

    assert [problem.where for problem in error.value.problems] == ["a.yaml:1", "a.yaml:3"]


def test_what_is_put_keeps_the_line_of_the_first_key_that_is_given():
    reader = sheet_of("a: 8\nb: 2\n")
    reader.put(("plan", "tensor_parallel"), 8, "missing", "b", "a")
    reader.put(("blocks", 0, "count"), 4, "a")
    reader.put(("blocks", 1, "count"), 5)
    reader.put(("blocks", 0, "hidden"), 6)

    made = reader.made()

    assert made.data["plan"] == {"tensor_parallel": 8}
    assert made.data["blocks"] == [{"count": 4, "hidden": 6}, {"count": 5}]
    assert made.where(("plan", "tensor_parallel")) == "a.yaml:2"
    assert made.where(("blocks", 0, "count")) == "a.yaml:1"


@all_cases("name", ["axolotl", "deepspeed", "llama-factory", "maxtext", "nanotron", "torchtitan"])
def test_no_key_of_a_format_is_read_and_refused_or_left_out(name):
    keys = keys_of(name)

    assert keys.read
    assert [key for key in keys.read.split() if covered(key, [*keys.refused, *keys.left_out])] == []


def test_a_setting_has_the_value_and_the_line_of_its_first_given_key():
    """By the table of this test: a null value counts as not given, and the first name stands for none."""
    keys = Keys(program="A trainer", read="a b c", settings={"size": "a b c"})
    cases = {"c: 4\nb: 2\n": ("b", 2, "a.yaml:2"), "a: null\nc: 4\n": ("c", 4, "a.yaml:2")}
    for text, (key, size, line) in cases.items():
        reader = sheet_of(text, keys=keys)
        reader.put(("plan", "size"), reader.count("size", 7), "size")
        assert (reader.first("size"), reader.part("plan"), reader.where("size")) == (
            key,
            {"size": size},
            line,
        )
        assert reader.made().where(("plan", "size")) == line

    reader = sheet_of("b: many\n", keys=keys)
    assert (reader.has("size"), reader.count("size", 7), reader.faulty("size")) == (True, 7, True)
    assert [problem.field for problem in reader.problems] == ["b"]
    assert (sheet_of("d: 1\n", keys=keys).first("size"), sheet_of("a: 1\n", keys=keys).has("c")) == (
        "a",
        False,
    )


@all_cases("name", KINDS)
def test_no_setting_of_a_format_has_the_name_of_another_key(name):
    keys = keys_of(name)
    assert [
        each for each, own in keys.settings.items() if keys.knows(each) and each not in own.split()
    ] == []


@all_cases("name", catalog.names("models"))
def test_a_model_is_found_under_every_way_to_write_its_name(name):
    for written in (name, f"owner/{name}", name.upper(), f"models\\{name}/", f"{name}-bf16-Instruct",
                    name.replace("-", "_"), f"{name}.gguf"):  # fmt: skip
        assert catalog.known("models", written) == name, written


@all_cases("flavour", FLAVOURS)
def test_every_flavour_is_a_model_of_the_catalogue(flavour):
    assert catalog.known("models", FLAVOURS[flavour]) in catalog.names("models")


@LAWS
@given(
    layers=st.integers(1, 126),
    chunks=st.integers(1, 16),
    ends=st.tuples(st.integers(0, 2), st.integers(0, 2)),
)
def test_blocks_are_dealt_out_whole_and_chunks_differ_by_one_with_their_ends(layers, chunks, ends):
    held = dealt(layers, chunks, ends)
    with_ends = [*held]
    with_ends[0] += ends[0]
    with_ends[-1] += ends[1]

    assert (sum(held), len(held)) == (layers, chunks)
    assert max(with_ends) - min(with_ends) <= 1
    assert with_ends == sorted(with_ends, reverse=True)


@all_cases(
    ("name", "stage"),
    [("zero3.json", 3), ("ds_z2_config.json", 2), ("deepspeed_configs/zero-1.json", 1),
     ("zero_stage_3_offload.json", 3), ("ZeRO-Stage-2.json", 2), ("zero3_bf16.json", 3),
     ("deepspeed_stage2.json", 2), ("stage2_zero3.json", 3), ("zero32.json", None),
     ("zero4.json", None), ("mine.json", None)],
)  # fmt: skip
def test_a_name_of_a_file_tells_its_stage_or_nothing(name, stage):
    assert stage_in_name(name.rpartition("/")[2]) == stage


def test_modules_of_one_place_in_a_block_are_one_linear_whatever_a_model_calls_them():
    assert {OF_TRANSFORMERS[name] for name in ("o_proj", "out_proj")} == {"out"}
    assert {OF_TRANSFORMERS[name] for name in ("qkv_proj", "w_pack", "query_key_value")} == {"qkv"}
    assert (OF_TRANSFORMERS["fc1"], OF_TRANSFORMERS["fc2"]) == (
        OF_TRANSFORMERS["up_proj"],
        OF_TRANSFORMERS["down_proj"],
    )
