"""Job files: nouns by name, by description and by change; every fault with its own file and line."""

import pytest
from all_cases import all_cases
from job_cases import LINES, job_text, places, read_job, told

from flopcast import load_job
from flopcast.errors import SpecError
from flopcast.files.named_files import read_file
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.library import catalog
from flopcast.library.edits import plan_words
from flopcast.requests.job_files import built, job_of, load_catalog_job
from flopcast.spec.plan import Plan

NODES = ("job.yaml:4", "cluster.nodes")


def test_a_name_stands_for_an_entry_of_the_catalogue():
    job = read_job(job_text())

    assert job.model == catalog.model("megatron-1.7b")
    assert job.stack == catalog.stack("megatron-2022")
    assert job.cluster == catalog.cluster("dgx-a100", 1)


@all_cases("nodes", [1, 4, 128])
@all_cases("form", ["cluster: selene:{}", "cluster: {{base: selene, nodes: {}}}"])
def test_a_cluster_takes_its_number_of_nodes_in_either_form(nodes, form):
    plan = f"plan: {{dp: {8 * nodes}, gbs: {8 * nodes}}}"

    job = read_job(job_text(cluster=form.format(nodes), plan=plan))

    assert job.cluster.num_devices == 8 * nodes
    assert job.cluster == catalog.cluster("selene", nodes)


def test_a_cluster_without_a_number_of_nodes_is_used_whole():
    job = read_job(job_text(cluster="cluster: vista", plan="plan: {dp: 600, gbs: 600}"))

    assert job.cluster == catalog.cluster("vista")


def test_a_number_of_nodes_that_is_none_is_refused():
    counts = ["x", "", "-1", "0", "1.5", "4:5", "1e3", "one"]

    ignored = [count for count in counts if not told(job_text(cluster=f"cluster: 'dgx-a100:{count}'"))]

    assert ignored == []


def test_a_digit_that_python_cannot_count_with_is_no_number_of_nodes():
    assert told(job_text(cluster="cluster: dgx-a100:²"))


def test_a_cluster_of_no_nodes_is_told_where_it_is_named():
    problems = told(job_text(cluster="cluster: dgx-a100:0"))

    assert {problem.where for problem in problems} == {"job.yaml:2"}
    assert all(problem.field.startswith("cluster") for problem in problems)


def test_nodes_beside_a_base_that_are_no_number_are_refused_on_their_line():
    counts = ["0", "-1", "two", "1.5", "null", "[1]", "true", "{}"]
    texts = {c: job_text(cluster=f"cluster:\n  base: dgx-a100\n  nodes: {c}") for c in counts}

    other = {c: found for c, text in texts.items() if (found := places(told(text))) != [NODES]}

    assert other == {}


def test_a_base_with_changes_keeps_all_that_is_not_changed():
    changed = read_job(
        job_text(
            stack="stack: {base: megatron-2022, gradients: {overlap: true}, attention_kernel: flash}",
            model="model: {base: megatron-1.7b, vocabulary: 32000}",
        )
    )
    stack, model = catalog.stack("megatron-2022"), catalog.model("megatron-1.7b")

    assert changed.model == model.model_copy(update={"vocabulary": 32000})
    assert changed.stack == stack.model_copy(
        update={
            "attention_kernel": "flash",
            "gradients": stack.gradients.model_copy(update={"overlap": True}),
        }
    )


def test_lists_of_a_base_are_replaced_whole():
    job = read_job(job_text(stack="stack: {base: megatron-2022, rewrites: [fused_softmax]}"))

    assert job.stack.rewrites == ("fused_softmax",)


@pytest.mark.parametrize("key", ["model", "cluster", "stack"])
def test_a_base_without_changes_is_the_entry_itself(key):
    name = LINES[key].removeprefix(f"{key}: ").partition(":")[0]

    job = read_job(job_text(**{key: f"{key}: {{base: {name}}}"}))

    assert getattr(job, key) == getattr(read_job(job_text()), key)


def test_a_described_model_needs_no_catalogue():
    model = """\
model:
  hidden: 512
  vocabulary: 1000
  blocks:
    - {count: 2, mixer: {heads: 8}, feed_forward: {ffn_hidden: 2048}}"""

    job = read_job(job_text(model=model))

    assert (job.model.name, job.model.num_blocks) == ("unnamed", 2)


@all_cases(
    ("words", "long"),
    [
        ("tp=8 pp=4 mbs=2 gbs=64", {"tensor_parallel": 8, "pipeline_parallel": 4}),
        ("sp tp=2", {"sequence_parallel": True, "tensor_parallel": 2}),
        ("sp=false", {"sequence_parallel": False}),
        ("  dp=8   zero=1 ", {"data_parallel": 8, "zero": 1}),
        ("recompute=full precision=fp16", {"recompute": "full", "precision": "fp16"}),
        ("tensor_parallel=8 sequence_parallel", {"tensor_parallel": 8, "sequence_parallel": True}),
        ("", {}),
    ],
)
def test_a_plan_of_words_is_the_mapping_that_it_abbreviates(words, long):
    plan = Plan.model_validate(plan_words(words))

    assert {name: getattr(plan, name) for name in long} == long


def test_a_plan_reads_the_same_in_words_in_short_and_in_long_names():
    words = read_job(job_text(plan="plan: dp=4 tp=2 mbs=1 gbs=16 sp precision=fp16"))
    short = read_job(job_text(plan="plan: {dp: 4, tp: 2, mbs: 1, gbs: 16, sp: true, precision: fp16}"))
    long = read_job(
        job_text(
            plan="""\
plan:
  data_parallel: 4
  tensor_parallel: 2
  micro_batch: 1
  global_batch: 16
  sequence_parallel: true
  precision: fp16"""
        )
    )

    assert words == short == long


@all_cases("words", ["dp=8 dp=8", "dp=8 data_parallel=8", "dp= gbs=8", "dp=8 gbs"])
def test_plan_words_that_say_a_degree_twice_or_not_at_all_are_refused(words):
    problems = told(job_text(plan=f"plan: {words}"))

    assert problems
    assert {problem.where for problem in problems} == {"job.yaml:5"}


@all_cases("word", ["dp=1e400", "dp=nan", "dp=-8", "dp=8.5", "dp=[8]", "dp=&a"])
def test_plan_words_whose_value_is_no_degree_are_refused(word):
    problems = told(job_text(plan=f"plan: '{word} gbs=16'"))

    assert problems
    assert any("dp" in str(p.field) + str(p.value) or "data_parallel" in p.field for p in problems)


def test_a_job_that_lacks_everything_is_told_each_part():
    problems = told("site: {name: here}\n")

    assert {p.field for p in problems} >= {"model", "cluster", "stack", "batch"}
    assert all(p.fix.startswith((f"add {p.field}", f"add --{p.field} ")) for p in problems)


@all_cases("part", [part for part in LINES if part != "plan"])
def test_a_missing_part_is_told_and_nothing_else(part):
    problems = told(job_text(**{part: None}))

    assert [problem.field for problem in problems] == [part]


@all_cases(
    ("part", "line", "field", "suggestion"),
    [
        ("model", "modle: megatron-1.7b", "modle", "model"),
        ("batch", "batches: {sequence_length: 2048}", "batches", "batch"),
        ("batch", "batch: {sequence_lenght: 2048}", "batch.sequence_lenght", "sequence_length"),
        ("plan", "plan: {dp: 8, gbs: 16, presision: fp16}", "plan.presision", "precision"),
        ("plan", "plan: {dp: 8, gbs: 16, micro_bach: 1}", "plan.micro_bach", "micro_batch"),
        ("stack", "stack: {base: megatron-2022, rewrite: []}", "stack.rewrite", "rewrites"),
        ("stack", "stack: {base: megatron-2022, host: {fwd: 1 s}}", "stack.host.fwd", None),
        ("cluster", "cluster: {base: dgx-a100, tier: []}", "cluster.tier", "tiers"),
        ("model", "model: {base: megatron-1.7b, hiden: 8}", "model.hiden", "hidden"),
    ],
)
def test_an_unknown_key_is_told_with_the_key_that_was_meant(part, line, field, suggestion):
    problems = told(job_text(**{part: line}))

    (problem,) = [problem for problem in problems if problem.field == field]
    where = list(LINES).index(part) + 1
    assert problem.where == f"job.yaml:{where}"
    assert problem.because == "an unknown key raises an error, so that no setting is silently ignored"
    if suggestion:
        assert problem.fix == f"did you mean {suggestion}?"


@all_cases(
    ("part", "line", "near"),
    [
        ("model", "model: gpt3-175", "gpt3-175b"),
        ("cluster", "cluster: selen:4", "selene"),
        ("stack", "stack: megatron-2020", "megatron-2021"),
        ("model", "model: {base: gpt-neox-21b}", "gpt-neox-20b"),
        ("cluster", "cluster: {base: dgx-a101}", "dgx-a100"),
    ],
)
def test_a_name_that_the_catalogue_lacks_is_told_with_those_that_are_near(part, line, near):
    (problem,) = told(job_text(**{part: line}))

    assert near in problem.fix
    assert near in problem.allowed
    assert problem.where == f"job.yaml:{list(LINES).index(part) + 1}"


@pytest.mark.parametrize("part", ["device", "host"])
def test_a_device_or_host_that_the_catalogue_lacks_is_told_with_its_line(part):
    names = {"device": "a100-sxm4-80gb", "host": "epyc-7763"} | {part: "nonesuch"}
    cluster = f"""\
cluster:
  groups:
    - count: 1
      node:
        devices: 8
        device: {names["device"]}
        host: {names["host"]}
  tiers:
    - {{name: nvlink, devices: 8, bytes_per_s: 300 GB/s, latency_s: 5 us}}"""

    (problem,) = told(job_text(cluster=cluster))

    assert problem.value == "nonesuch"
    assert problem.where == f"job.yaml:{7 if part == 'device' else 8}"
    assert problem.field == f"cluster.groups[0].node.{part}"


WRONG = """\
model:
  hidden: many
  vocabulary: 50257
  blocks:
    - count: 8
      mixer: {heads: 16, dropout: 2}
      feed_forward:
        ffn_hiden: 4096
cluster: nonesuch
stack:
  base: megatron-2022
  host:
    forward_item_s: 20
  colour: red
batch:
  seq: 0
plan:
  dp: 8
  tp: -1
  zero: 9
"""


def test_every_fault_of_a_file_is_told_at_once_on_its_own_line():
    expected = [
        ("job.yaml:2", "model.hidden"),
        ("job.yaml:6", "model.blocks[0].mixer.dropout"),
        ("job.yaml:8", "model.blocks[0].feed_forward.ffn_hiden"),
        ("job.yaml:9", "cluster"),
        ("job.yaml:13", "stack.host.forward_item_s"),
        ("job.yaml:14", "stack.colour"),
        ("job.yaml:16", "batch.seq"),
        ("job.yaml:19", "plan.tensor_parallel"),
        ("job.yaml:20", "plan.zero"),
    ]

    found = places(told(WRONG))

    assert set(expected) <= set(found)
    assert len(found) <= len(expected) + 1  # pydantic also misses the block that it could not build


def test_a_list_with_a_faulty_entry_is_not_called_empty():
    problems = told(WRONG)

    assert [problem.allowed for problem in problems if problem.field == "model.blocks"] == []


@all_cases(
    ("plan", "field", "line"),
    [
        ("plan:\n  mbs: 1\n  gbs: 8\n  tp: 5\n  dp: 8", "plan.tensor_parallel", 8),
        ("plan:\n  dp: 8\n  micro_batch: 1\n  global_batch: 17", "plan.global_batch", 8),
        ("plan:\n  dp: 8\n  mbs: 1\n  gbs: 17", "plan.global_batch", 8),
        ("plan:\n  dp: 8\n  gbs: 8\n  zero: 3", "plan.zero", 8),
        ("plan:\n  gbs: 8\n\n  dp: 4\n  tp: 1\n  pp: 1", "plan.data_parallel", 8),
    ],
)
def test_a_broken_rule_is_told_on_the_line_of_the_value_that_breaks_it(plan, field, line):
    assert (f"job.yaml:{line}", field) in places(told(job_text(plan=plan)))


def test_a_fault_in_a_part_with_a_base_is_told_on_the_line_of_the_job_file():
    model = "model:\n  base: megatron-1.7b\n  # two runs\n  blocks:\n    - count: 4"

    problems = told(job_text(model=model))

    expected = {("job.yaml:5", f"model.blocks[0].{half}") for half in ("mixer", "feed_forward")}
    assert expected <= set(places(problems))
    assert {problem.where for problem in problems} == {"job.yaml:5"}


@all_cases(
    "change",
    [
        "model: {base: megatron-1.7b, hidden: -1}",
        "model: {base: megatron-1.7b, hidden: 1e300}",
        "model: {base: megatron-1.7b, blocks: 3}",
        "model: {base: megatron-1.7b, blocks: []}",
        "model: 5",
        "model: []",
        "model: null",
        "model: true",
        "model: {}",
        "model: {base: [megatron-1.7b]}",
        "model: ''",
    ],
)
def test_a_model_that_is_none_is_told_once_and_as_the_model(change):
    problems = told(job_text(model=change))

    assert problems
    assert {problem.where for problem in problems} == {"job.yaml:1"}
    assert all(problem.field.startswith("model") for problem in problems)
    assert len({problem.field for problem in problems}) == len(problems)


@all_cases("value", [".inf", "-inf", "nan", ".nan", "1e400"])
def test_a_ratio_that_is_no_finite_number_is_refused(value):
    problems = told(job_text(stack=f"stack: {{base: megatron-2022, derate: {{ratio: {value}}}}}"))

    assert problems
    assert {problem.where for problem in problems} == {"job.yaml:3"}


@all_cases("data", [None, "text", 3, True, [1, 2], []])
def test_a_document_that_is_no_mapping_is_no_job(data):
    with pytest.raises(SpecError) as error:
        job_of(Document("job.yaml", data, {}))

    (problem,) = error.value.problems
    assert problem.field == "document"
    assert "mapping" in problem.allowed


def test_a_job_file_is_read_from_disk(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(job_text(), encoding="utf-8")

    assert load_job(path) == read_job(job_text())


def test_a_job_may_be_written_as_json(tmp_path):
    path = tmp_path / "job.json"
    path.write_text(
        '{"model": "megatron-1.7b", "cluster": "dgx-a100:1", "stack": "megatron-2022",\n'
        ' "batch": {"sequence_length": 2048},\n'
        ' "plan": {"dp": 8, "mbs": 1, "gbs": 16, "precision": "fp16"}}',
        encoding="utf-8",
    )

    assert load_job(path) == read_job(job_text())


@pytest.mark.parametrize("name", ["missing.yaml", ".", "file.yaml/job.yaml", "loop.yaml", "x" * 4000])
def test_a_path_that_cannot_be_read_is_told(tmp_path, name):
    (tmp_path / "file.yaml").touch()
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")

    with pytest.raises(SpecError) as error:
        read_file(tmp_path / name)

    (problem,) = error.value.problems
    assert name in str(problem.value) or name == "."
    assert problem.because


def test_a_path_that_no_system_knows_is_told(tmp_path):
    with pytest.raises(SpecError):
        read_file(tmp_path / "zero\0byte.yaml")


def test_a_job_of_the_catalogue_is_found_by_its_path():
    job = load_catalog_job("paper/llama-13b-perlmutter-pp4-tp8-dp2")

    assert job.plan.short().startswith("dp=2 tp=8 pp=4 mbs=4 gbs=128 zero=1 recompute=full")
    assert job.cluster.num_devices == 64


@all_cases("name", ["paper/nonesuch", "nonesuch", "", "paper"])
def test_a_job_that_the_catalogue_lacks_is_told(name):
    with pytest.raises(SpecError) as error:
        load_catalog_job(name)

    assert error.value.problems[0].value == name


def test_a_job_that_the_catalogue_lacks_is_told_with_those_that_are_near():
    name = "paper/llama-13b-perlmutter-pp4-tp8-dp2"

    with pytest.raises(SpecError) as error:
        load_catalog_job(f"{name}0")

    (problem,) = error.value.problems
    assert name in problem.allowed.split(", ")
    assert name in problem.fix


def test_the_fix_for_a_job_unlike_any_other_is_no_command_that_would_be_refused():
    with pytest.raises(SpecError) as error:
        load_catalog_job("0000")

    assert error.value.problems[0].fix == "choose one of these names"


def test_a_length_given_by_both_names_is_told_once_where_the_second_stands():
    problems = told(job_text(batch="batch:\n  sequence_length: 2048\n  seq: 4096"))

    assert places(problems) == [("job.yaml:6", "batch.seq")]
    assert problems[0].allowed == "either sequence_length or its short form, but not both"


def test_a_nodes_device_may_be_a_base_with_changes():
    device = "{base: a100-sxm4-80gb, name: slow, memory_bytes_per_s: 1 TB/s}"
    line = f"cluster: {{base: dgx-a100, nodes: 1, groups: {{0: {{node: {{device: {device}}}}}}}}}"

    device = job_of(read_yaml(job_text(cluster=line).encode(), "job.yaml")).cluster.node.device

    assert (device.name, device.memory_bytes_per_s) == ("slow", 1e12)
    assert device.peak_flop_per_s["bf16"] == 312e12


def test_the_base_of_a_device_that_does_not_exist_is_told_where_it_stands():
    line = "cluster: {base: dgx-a100, nodes: 1, groups: {0: {node: {device: {base: a100}}}}}"

    (problem,) = told(job_text(cluster=line))

    assert problem.field.startswith("cluster.groups")
    assert "a100-pcie-40gb" in problem.fix


@all_cases(
    ("count", "fix"),
    [
        *((wrong, "set num_layers to 32") for wrong in (0, "x", True)),
        (-3, "write 3 in place of -3"),
        (1.5, "write 1 in place of 1.5"),
    ],
)
def test_a_wrong_number_of_layers_is_told_by_the_name_that_was_written(count, fix):
    data = {"base": "llama-3-8b", "num_layers": count, "hidden": -1}

    with pytest.raises(SpecError) as caught:
        built("model", data, Document("job.yaml", {"model": data}, {("model", "num_layers"): 3}))

    faults = {problem.field: problem for problem in caught.value.problems}
    assert faults.keys() == {"model.num_layers", "model.hidden"}
    assert (faults["model.num_layers"].where, faults["model.num_layers"].fix) == ("job.yaml:3", fix)
