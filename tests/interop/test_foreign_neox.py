"""GPT-NeoX's YAML as a job: its model, derived sizes, kernels, and several files that are merged."""

import json
from dataclasses import replace

import pytest
from all_cases import all_cases
from foreign_cases import FOREIGN, data_of, job_in, told

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.configs.formats import kind_of
from flopcast.library import catalog
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.spec.model import Model

SMALL = {
    "pipe_parallel_size": 2,
    "model_parallel_size": 2,
    "num_layers": 24,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "seq_length": 2048,
    "max_position_embeddings": 2048,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 8,
    "fp16": {"enabled": True},
}
PUBLISHED = {  # file → the model of the catalogue with the same decoder
    "neox_20b.yml": "gpt-neox-20b",
    "pythia_6_9b.yml": "pythia-6.9b",
    "llama2_70b.yml": "llama-2-70b",
}
COUNTS = {  # file → parameters of the blocks, layers · (12 h² + 13 h)
    "gpt_125m.yml": 12 * (12 * 768**2 + 13 * 768),
    "gpt_1_3b.yml": 24 * (12 * 2048**2 + 13 * 2048),
    "gpt_6_7b.yml": 32 * (12 * 4096**2 + 13 * 4096),
    "gpt_13b.yml": 40 * (12 * 5120**2 + 13 * 5120),
    "neox_20b.yml": 44 * (12 * 6144**2 + 13 * 6144),
}


def read(devices=16, **changes):
    """What a small file with changes says; None takes a key out."""
    data = {key: value for key, value in (SMALL | changes).items() if value is not None}
    return data_of(json.dumps(data), "a.yml", devices, kind="gpt-neox")


def model_of(file):
    """The model that a kept file describes."""
    text = (FOREIGN / "gpt-neox" / file).read_text(encoding="utf-8")
    return Model.model_validate(data_of(text, file, 128)["model"])


def test_published_models_are_those_of_the_catalogue():
    for file, name in PUBLISHED.items():
        found, known = model_of(file), catalog.model(name)
        assert (found.hidden, found.num_blocks) == (known.hidden, known.num_blocks)
        assert found.parameters() == known.parameters() + _vocabulary_difference(found, known), file


def _vocabulary_difference(found, known):
    """Parameters of the rows that one table has more than another."""
    tables = 1 if found.tied_embeddings else 2
    return tables * (found.vocabulary - known.vocabulary) * found.hidden


def test_blocks_of_gpt_have_twelve_squares_of_the_width_and_thirteen_widths():
    for file, count in COUNTS.items():
        model = model_of(file)
        tables = 2 * model.vocabulary * model.hidden
        assert model.parameters() == count + tables + 2 * model.hidden, file


def test_a_vocabulary_is_padded_to_what_checkpoints_of_pythia_have():
    """config.json on the hub: 50304 for one model-parallel rank, 50432 for two, 50688 for four."""
    for ranks, padded in ((1, 50304), (2, 50432), (4, 50688)):
        model = read(model_parallel_size=ranks, tokenizer_type="HFTokenizer")["model"]
        multiple = model["vocabulary_multiple"] * ranks
        assert -(-model["vocabulary"] // multiple) * multiple == padded


def test_degrees_and_batch_are_derived_as_neox_derives_them():
    for stages, tensor, micro, steps, devices in ((0, 1, 4, 1, 8), (1, 2, 4, 8, 16), (4, 2, 1, 32, 96)):
        plan = read(
            devices,
            pipe_parallel_size=stages,
            model_parallel_size=tensor,
            train_micro_batch_size_per_gpu=micro,
            gradient_accumulation_steps=steps,
        )["plan"]
        replicas = devices // (max(stages, 1) * tensor)
        assert plan["data_parallel"] == replicas
        assert plan["global_batch"] == micro * steps * replicas
        assert plan.get("pipeline_parallel", 1) == max(stages, 1)


def test_hyphens_and_underscores_are_the_same_key():
    hyphens = {key.replace("_", "-"): value for key, value in SMALL.items()}

    assert data_of(json.dumps(hyphens), "a.yml", 16, kind="gpt-neox") == read()


def test_both_spellings_are_recognised_and_not_taken_for_deepspeed():
    for data in (SMALL, {key.replace("_", "-"): value for key, value in SMALL.items()}):
        assert kind_of(Document("a.yml", data | {"pos-emb": "rotary"}, {})) == "gpt-neox"


@all_cases(
    ("changes", "width", "activation"),
    [
        ({}, 4096, "gelu"),
        ({"expansion_factor": 2}, 2048, "gelu"),
        ({"intermediate_size": 3000, "mlp_multiple_of": 256}, 3072, "gelu"),
        ({"intermediate_size": 8448, "activation": "swiglu"}, 2816, "swiglu"),
        ({"mlp_type": "llama", "activation": "silu"}, 2816, "swiglu"),
    ],
)
def test_a_gated_layer_is_as_wide_as_neox_cuts_it(changes, width, activation):
    layer = read(**changes)["model"]["blocks"][0]["feed_forward"]

    assert (layer["ffn_hidden"], layer["activation"]) == (width, activation)


@pytest.mark.parametrize(
    ("run", "changes"),
    [
        (
            "gpt-neox-20b-vista-pp4-tp4-dp8",
            {"num_layers": 44, "hidden_size": 6144, "num_attention_heads": 64, "pos_emb": "rotary",
             "rotary_pct": 0.25, "gpt_j_residual": True, "no_weight_tying": True, "bias_gelu_fusion": True,
             "model_parallel_size": 4, "gradient_accumulation_steps": 16},
        ),
        (
            "llemma-7b-vista-pp4-tp2-dp2",
            {"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "pos_emb": "rotary",
             "norm": "rmsnorm", "seq_length": 4096, "max_position_embeddings": 4096,
             "attention_config": [[["flash"], 32]], "partition_activations": True,
             "model_parallel_size": 2, "gradient_accumulation_steps": 8},
        ),
    ],
)  # fmt: skip
def test_a_run_of_the_paper_is_the_job_that_the_catalogue_has_of_it(run, changes):
    """arXiv:2509.22832: the switches of its logs as a configuration of GPT-NeoX."""
    known = catalog.document("jobs", f"paper/{run}").data
    zero = {"stage": 1, "overlap_comm": True, "reduce_bucket_size": 1_260_000_000}
    more = {"checkpoint_activations": True, "synchronize_each_layer": True, "zero_optimization": zero,
            "scaled_upper_triang_masked_softmax_fusion": True, "pipe_parallel_size": 4}  # fmt: skip
    devices = known["plan"]["data_parallel"] * known["plan"]["tensor_parallel"] * 4

    found = read(devices, **more | changes)

    assert found["plan"] == {name: value for name, value in known["plan"].items() if value is not False}
    assert {name: found["stack"][name] for name in ("base", "attention_kernel", "rewrites")} == {
        name: known["stack"][name] for name in ("base", "attention_kernel", "rewrites")
    }
    assert found["stack"]["gradients"]["bucket_elements"] == 1_260_000_000
    assert found["stack"]["gradients"]["overlap"] is False


def test_gradients_overlap_with_zero_and_without_the_pipeline_engine_alone():
    for stages, stage, comm, overlap in ((1, 1, True, True), (2, 1, True, False), (1, 0, True, False),
                                         (1, 1, False, False)):  # fmt: skip
        zero = {"stage": stage, "overlap_comm": comm}
        found = read(pipe_parallel_size=stages, zero_optimization=zero)["stack"]["gradients"]["overlap"]
        assert found is overlap, (stages, stage, comm)


def test_a_second_file_completes_the_first_and_its_faults_are_told_there(tmp_path):
    path, local = tmp_path / "model.yml", tmp_path / "local.yml"
    path.write_text(json.dumps({key: value for key, value in SMALL.items() if key != "fp16"}))
    request = JobRequest(files=(str(path), str(local)), cluster="dgx-h100:2")

    local.write_text(
        '{\n"vocab-file": "gpt2-vocab.json",\n"hidden-dropout": 0.1,\n"fp16": {"enabled": true}}'
    )
    job = resolve(replace(request, changes=("plan.zero=1",)))
    assert (job.model.blocks[0].dropout, job.plan.zero, job.plan.precision) == (0.1, 1, "fp16")

    local.write_text('{\n"hidden_size": 64,\n"fp16": {"enabled": true}}')
    with pytest.raises(SpecError) as error:
        resolve(request)
    assert [(p.where, p.field) for p in error.value.problems] == [(f"{local}:2", "hidden_size")]

    local.write_text('{\n"hidden-size": 512,\n"hidden-dropout": 7,\n"fp16": {"enabled": true}}')
    with pytest.raises(SpecError) as error:
        resolve(request)
    assert [(p.where, p.field) for p in error.value.problems] == [(f"{local}:3", "hidden_dropout")]


def test_the_degrees_of_neox_20b_are_its_own_and_not_those_of_deepspeed():
    plan = job_in(FOREIGN / "gpt-neox" / "neox_20b.yml", "dgx-h100:12").plan

    assert (plan.pipeline_parallel, plan.tensor_parallel, plan.data_parallel) == (4, 2, 12)
    assert (plan.global_batch, plan.recompute) == (1536, "full")  # arXiv:2204.06745, section 3.2


def test_an_unknown_vocabulary_is_said_aloud():
    data = json.dumps(SMALL | {"tokenizer_type": "SPMTokenizer", "vocab_file": "own.model"})
    notes = data_of(data, "a.yml", 16, kind="gpt-neox")["assumptions"]

    assert any("IS ASSUMED" in note for note in notes)
    assert told(data, "a.yml", 16, kind="gpt-neox") == ()
