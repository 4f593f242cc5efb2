"""torchtitan's settings as a job: degrees, batch, stages, recompute, 8 bits; the program that dumps."""

import json
import sys

import pytest
from all_cases import all_cases
from children import ran
from click.testing import CliRunner
from foreign_cases import data_of, told

from flopcast.cli.imports import command
from flopcast.errors import SpecError
from flopcast.interop.configs import torchtitan_dump
from flopcast.spec.divisors import dealt

CONTEXT = {"context_parallel_degree": 4}
SMALL = {
    "model": {"name": "llama3", "flavor": "8B"},
    "training": {"local_batch_size": 2, "seq_len": 4096},
    "activation_checkpoint": {"mode": "none"},
}


def small(**sections):
    """A small right file, as the dump of a config, with more in its sections."""
    return json.dumps({name: SMALL.get(name, {}) | sections.get(name, {}) for name in {*SMALL, *sections}})


def plan_of(devices=64, **sections):
    """The plan of a small file with more in its sections."""
    return data_of(small(**sections), "titan.json", devices)["plan"]


def stack_of(**sections):
    """The stack of a small file with more in its sections."""
    return data_of(small(**sections), "titan.json")["stack"]


@all_cases(
    ("parallelism", "wanted"),
    [
        ({}, {"data_parallel": 64, "zero": 3}),
        ({"data_parallel_shard_degree": 1, "data_parallel_replicate_degree": 64}, {"zero": 0}),
        ({"data_parallel_replicate_degree": 8}, {"data_parallel": 64, "zero": 3, "data_shard": 8}),
        ({"tensor_parallel_degree": 8}, {"data_parallel": 8, "sequence_parallel": True}),
        ({"context_parallel_degree": 4}, {"context_parallel": 4, "context_exchange": "all_gather"}),
        (CONTEXT | {"context_parallel_rotate_method": "alltoall"}, {"context_exchange": "ring"}),
        (CONTEXT | {"context_parallel_load_balancer": ""}, {"context_order": "contiguous"}),
        ({"expert_parallel_degree": 8, "expert_tensor_parallel_degree": 1}, {"expert_parallel": 8}),
    ],
)  # fmt: skip
def test_degrees_divide_the_ranks(parallelism, wanted):
    plan = plan_of(parallelism=parallelism)

    assert {name: plan.get(name) for name in wanted} == wanted


def test_a_schedule_is_read_in_another_section_than_its_degree():
    schedule = {"pipeline_parallel_schedule": "ZBVZeroBubble"}
    plan = plan_of(parallelism={"pipeline_parallel_degree": 4}, experimental=schedule)

    assert (plan["schedule"], plan["virtual_stages"]) == ("zb_v", 2)


@pytest.mark.parametrize("section", ["parallelism", "experimental", "training"])
def test_a_degree_is_read_in_whichever_section_it_stood(section):
    assert plan_of(**{section: {"tensor_parallel_degree": 4}})["tensor_parallel"] == 4


@all_cases(
    ("training", "batch"),
    [
        ({}, (2, 128)),
        ({"global_batch_size": 512}, (2, 512)),
        ({"global_batch_size": -1}, (2, 128)),
        ({"local_batch_size": None, "batch_size": 4}, (4, 256)),
        ({"local_batch_size": None}, (8, 512)),
    ],
)
def test_a_batch_is_the_local_one_times_the_replicas_unless_it_is_given(training, batch):
    plan = plan_of(training=training)

    assert (plan["micro_batch"], plan["global_batch"]) == batch


def test_a_pipeline_cuts_the_local_batch():
    sections = {"training": {"local_batch_size": 32}, "parallelism": {"pipeline_parallel_degree": 4}}

    plan = plan_of(**sections)

    assert (plan["micro_batch"], plan["global_batch"], plan["stage_layers"]) == (1, 512, [8, 9, 8, 7])


@all_cases(
    ("layers", "chunks", "held"),
    [
        (32, 8, [4, 5, 4, 4, 4, 4, 4, 3]),
        (27, 4, [7, 7, 7, 6]),
        (80, 8, [10, 11, *[10] * 5, 9]),
        (6, 2, [3, 3]),
    ],
)
def test_blocks_are_dealt_as_torchtitan_deals_them(layers, chunks, held):
    assert dealt(layers, chunks, (1, 1)) == tuple(held)
    assert sum(held) == layers


@all_cases(
    ("given", "wanted"),
    [
        ({"pipeline_parallel_schedule": "GPipe"}, {"schedule": "gpipe"}),
        ({"pipeline_parallel_schedule": "Interleaved1F1B"}, {"virtual_stages": 2}),
        ({"pipeline_parallel_schedule": "ZBVZeroBubble"}, {"schedule": "zb_v", "virtual_stages": 2}),
        ({"pipeline_parallel_schedule": "DualPipeV"}, {"schedule": "dualpipe_v", "virtual_stages": 2}),
        ({"pipeline_parallel_split_points": ["layers.20"]}, {"stage_layers": [20, 12]}),
        (
            {
                "pipeline_parallel_schedule": "Interleaved1F1B",
                "pipeline_parallel_split_points": "layers.8,layers.16,layers.24",
            },
            {"virtual_stages": 2, "stage_layers": [8, 8, 8, 8]},
        ),
        (
            {"pipeline_parallel_schedule": "Interleaved1F1B", "pipeline_parallel_layers_per_stage": 4},
            {"virtual_stages": 4},
        ),
        ({"pipeline_parallel_first_stage_less_layers": 0}, {"stage_layers": [17, 15]}),
    ],
)
def test_a_pipeline_has_the_chunks_that_are_asked_for(given, wanted):
    plan = plan_of(parallelism={"pipeline_parallel_degree": 2} | given)

    assert {name: plan.get(name) for name in wanted} == wanted


@all_cases(
    ("given", "field"),
    [
        ({"pipeline_parallel_split_points": ["layers.40"]}, "pipeline_parallel_split_points"),
        ({"pipeline_parallel_split_points": ["norm"]}, "pipeline_parallel_split_points"),
        ({"pipeline_parallel_schedule": "InterleavedZeroBubble"}, "pipeline_parallel_schedule"),
        ({"pipeline_parallel_schedule": "2F2B"}, "pipeline_parallel_schedule"),
        ({"pipeline_parallel_layers_per_stage": 3}, "pipeline_parallel_layers_per_stage"),
        ({"pipeline_parallel_microbatch_size": 3}, "pipeline_parallel_microbatch_size"),
        ({"pipeline_parallel_degree": 64}, "pipeline_parallel_degree"),
    ],
)
def test_a_pipeline_that_cannot_be_is_told(given, field):
    text = small(parallelism={"pipeline_parallel_degree": 2} | given)

    assert [fault.field for fault in told(text, "titan.json", 64)] == [f"parallelism.{field}"]


def test_an_unknown_key_in_a_list_of_mappings_is_refused_if_it_may_be_costly():
    text = small(model_converters={"converters": [{"name": "float8", "num_expert_layers": 3}]})

    (fault,) = told(text, "titan.json", 64)
    assert fault.field == "model_converters.converters.num_expert_layers"


@all_cases(
    ("given", "wanted"),
    [
        ({"mode": "none"}, (None, None, None)),
        ({"mode": "full"}, ("full", None, None)),
        ({"mode": "selective", "selective_ac_option": "3"}, ("full", "every", 3)),
        ({"mode": "selective", "selective_ac_option": 1}, ("full", None, None)),
        ({"mode": "selective", "selective_ac_option": "op"}, ("selective", None, None)),
    ],
)
def test_recompute_is_of_operators_or_of_whole_blocks_or_every_so_manyth(given, wanted):
    plan = plan_of(activation_checkpoint=given)

    assert tuple(plan.get(f"recompute{end}") for end in ("", "_method", "_layers")) == wanted


@all_cases(
    ("sections", "precision"),
    [
        ({}, "bf16"),
        ({"model": {"converters": ["float8"]}}, "fp8_current"),
        ({"model": {"converters": "float8"}, "float8": {"recipe_name": "rowwise"}}, "fp8_current"),
        ({"model": {"converters": ["quantize.linear.mx"]}}, "mxfp8"),
        ({"training": {"enable_float8_linear": True}}, "fp8_current"),
        (
            {"model_converters": {"converters": [{"_type_": "x.Float8LinearConverter.Config"}]}},
            "fp8_current",
        ),
        ({"float8": {"enable_fsdp_float8_all_gather": True}}, "bf16"),
    ],
)
def test_eight_bits_are_asked_for_by_a_converter_alone(sections, precision):
    assert plan_of(**sections)["precision"] == precision


@all_cases(
    ("sections", "stack"),
    [
        ({}, "torch-fsdp2"),
        ({"training": {"compile": True}}, "torch-fsdp2-compiled"),
        ({"compile": {"enable": True, "components": ["loss"]}}, "torch-fsdp2"),
        (
            {"compile": {"enable": True}, "parallelism": {"enable_async_tensor_parallel": True}},
            {"base": "torch-fsdp2-compiled", "tensor_overlap": "chunks"},
        ),
        (
            {"parallelism": {"fsdp_reshard_after_forward": "never"}},
            {"base": "torch-fsdp2", "sharding": {"gathers": "every_micro_batch"}},
        ),
        (
            {"parallelism": {"fsdp_reshard_after_forward": "always"}},
            {"base": "torch-fsdp2", "sharding": {"holds_in_pipeline": False}},
        ),
    ],
)
def test_what_is_compiled_and_kept_is_the_stack(sections, stack):
    assert stack_of(**sections) == stack


def test_overlap_that_needs_a_compiler_is_told_to_be_without_effect():
    data = data_of(small(parallelism={"enable_async_tensor_parallel": True}), "titan.json")

    assert any("has no effect" in note for note in data["assumptions"])


@pytest.fixture
def registry(tmp_path):
    """A package that has torchtitan's reader of configs, and nothing else of it."""
    package = tmp_path / "torchtitan" / "config"
    package.mkdir(parents=True)
    (tmp_path / "torchtitan" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "manager.py").write_text("""
from dataclasses import dataclass, field
from enum import Enum

class Colour(Enum):
    RED = 1

@dataclass
class Training:
    local_batch_size: int = 2
    seq_len: int = 4096

@dataclass
class Spec:
    name: str = "llama3"
    flavor: str = "8B"
    build: object = print
    colour: Colour = Colour.RED

@dataclass
class Config:
    training: Training = field(default_factory=Training)
    model_spec: Spec = field(default_factory=Spec)
    activation_checkpoint: dict = field(default_factory=lambda: {"mode": "full"})

class ConfigManager:
    def parse_args(self, args):
        assert args == ["--module", "llama3", "--config", "llama3_8b"]
        return Config()
""")
    return tmp_path


def test_a_config_of_the_registry_is_dumped_and_read(registry):
    program = registry / "dump.py"
    program.write_text(CliRunner().invoke(command, ["torchtitan", "--dump-helper"]).stdout)
    words = ["--module", "llama3", "--config", "llama3_8b"]

    ended = ran([sys.executable, program, *words], cwd=registry, text=True, check=True)

    data = data_of(ended.stdout, "dump.json")

    assert data["model"] == {"base": "llama-3.1-8b"}
    assert data["batch"] == {"sequence_length": 4096}
    assert (data["plan"]["micro_batch"], data["plan"]["recompute"]) == (2, "full")
    assert json.loads(ended.stdout)["model_spec"]["colour"] == "red"


def test_without_torchtitan_the_dump_says_where_to_run_it(tmp_path):
    ended = ran([sys.executable, torchtitan_dump.__file__], cwd=tmp_path, text=True)

    assert ended.returncode == 1
    assert "where torchtitan is installed" in ended.stderr


def test_what_holds_itself_is_cut_off_and_not_followed_for_ever():
    ring = {}
    ring["again"] = ring

    text = json.dumps(torchtitan_dump.plain(ring))

    assert text.count("again") == torchtitan_dump.DEEPEST


def test_deepseek_v3_of_torchtitan_predicts_one_token():
    """torchtitan/models/deepseek_v3 has no modules of multi-token prediction."""
    data = data_of(small(model={"name": "deepseek_v3", "flavor": "671B"}), "titan.json", 64)

    assert data["model"] == {"base": "deepseek-v3", "mtp": 0}


@pytest.mark.parametrize(("size", "wrong", "right"), [("n_layers", 64, "32"), ("dim", 8192, "4096")])
def test_a_registry_whose_model_has_other_sizes_than_its_flavour_is_refused(size, wrong, right):
    sizes = {"dim": 4096, "n_layers": 32}
    right_file = small(model_spec={"name": "llama3", "flavor": "8B", "model": sizes})
    wrong_file = small(model_spec={"name": "llama3", "flavor": "8B", "model": sizes | {size: wrong}})

    assert data_of(right_file, "titan.json")["model"]["base"] == "llama-3.1-8b"
    with pytest.raises(SpecError) as error:
        data_of(wrong_file, "titan.json")
    assert [(each.field, each.allowed) for each in error.value.problems] == [
        (f"model_spec.model.{size}", right)
    ]


def test_a_model_of_the_command_line_replaces_that_of_a_registry():
    registry = small(model_spec={"name": "own", "flavor": "8B", "model": {"n_layers": 8, "own_heads": 4}})

    assert data_of(registry, "titan.json", model="llama-3-8b")["plan"]["data_parallel"] == 8
    assert "own_heads" in str(told(registry, "titan.json"))


def test_a_dump_of_release_0_3_states_recompute_linears_and_sequence_parallelism_by_other_keys():
    def dumped(kind="Linear", recompute=None):
        model = {
            "dim": 4096,
            "lm_head": {"in_features": 4096},
            "layers": [{"wqkv": {"_type_": f"a.{kind}.Config"}}],
        }
        return {
            "_type_": "torchtitan.trainer.Trainer.Config",
            "model_spec": {"name": "llama3", "flavor": "8B", "model": model},
            "loss": {"loss_fn": {"global_vocab_size": 128256}},
            "checkpoint": {"export_dtype": "float32"},
            "parallelism": {
                "spmd_backend": "spmd_types",
                "tensor_parallel_degree": 2,
                "enable_sequence_parallel": False,
            },
            "activation_checkpoint": recompute,
        }

    for kind, precision, recompute in (
        ("Linear", "bf16", None),
        ("Float8Linear", "fp8_current", "full"),
        ("MXFP8Linear", "mxfp8", "selective"),
    ):
        policy = recompute and {
            "_type_": f"torchtitan.distributed.a.{recompute.title()}AC.Config",
            "debug": False,
        }
        plan = data_of(json.dumps(dumped(kind, policy)), "titan.json", 64)["plan"]
        expected = (precision, False, recompute)
        assert (plan["precision"], plan["sequence_parallel"], plan.get("recompute")) == expected
    for kind, recompute, field in (
        ("NVFP4Linear", None, "model_spec.model.layers"),
        ("LoRALinear", None, "model_spec.model.layers"),
        ("Linear", {"_type_": "a.MemoryBudgetAC.Config"}, "activation_checkpoint._type_"),
    ):
        (fault,) = told(json.dumps(dumped(kind, recompute)), "titan.json", 64)
        assert fault.field == field
