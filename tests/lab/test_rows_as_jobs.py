"""What remarks and defaults make of a row: adapters, even routing, packing, shards, dealt-out blocks."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_tables import run_in

from flopcast.lab.published import job as jobs
from flopcast.lab.published.job import chunk_layers, reproduce
from flopcast.lab.published.known_names import Default, KnownSoftware

LLAMA = {
    "model_name": "Llama 2 7B",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "32",
    "ffn_hidden": "11008",
    "vocab": "32000",
    "seq_len": "4096",
    "gated_mlp": "True",
    "tp": "1",
    "pp": "1",
    "dp": "8",
    "micro_batch": "1",
    "global_batch": "32",
    "recompute": "none",
    "precision": "bf16",
}
MIXTRAL = LLAMA | {
    "model_name": "Mixtral 8x7B",
    "kv_heads": "8",
    "ffn_hidden": "14336",
    "n_experts": "8",
    "top_k": "2",
    "ep": "8",
}


@pytest.fixture
def run_of(tmp_path):
    return partial(run_in, tmp_path)


@pytest.fixture
def with_defaults(monkeypatch, run_of):
    """The job of a row under software with these defaults, whatever the row names."""

    def job(*defaults, row=LLAMA, stack="megatron-core", notes=""):
        software = KnownSoftware(software="", stack=stack, because="made up", defaults=defaults)
        monkeypatch.setattr(jobs, "software_of", lambda run: software)
        return reproduce(run_of(**row).model_copy(update={"notes": notes}))

    return job


def default(**fields):
    return Default(because="it says so", **fields)


def test_a_default_fills_only_what_the_row_leaves_open(with_defaults):
    fill = default(plan={"micro_batch": 4, "zero": 1})

    job = with_defaults(fill)

    assert (job.plan.micro_batch, job.plan.zero) == (1, 1)
    assert [told for told in job.assumptions if "it says so" in told] == ["zero 1: it says so"]


def test_of_two_defaults_the_first_that_speaks_of_a_field_holds(with_defaults):
    job = with_defaults(default(plan={"zero": 1}), default(plan={"zero": 0}))

    assert job.plan.zero == 1


def test_what_a_printed_precision_means_is_told_more_closely_by_a_default_that_asks_for_it(with_defaults):
    """The row says "fp8"; the software's tables mean one kind of it."""
    row = LLAMA | {"precision": "fp8", "gpu_model": "H100-80GB"}
    narrower = default(where={"precision": "^fp8$"}, plan={"precision": "fp8_blockwise"})

    assert with_defaults(narrower, row=row).plan.precision == "fp8_blockwise"
    assert with_defaults(default(plan={"precision": "fp8_blockwise"}), row=row).plan.precision == "fp8"


@pytest.mark.parametrize(("tensor", "cut"), [("1", False), ("4", True)])
def test_sequence_parallelism_may_come_with_tensor_parallelism(with_defaults, tensor, cut):
    row = LLAMA | {"tp": tensor, "dp": str(8 // int(tensor))}

    job = with_defaults(default(plan={"sequence_parallel": "with_tensor_parallel"}), row=row)

    assert job.plan.sequence_parallel is cut


ADAPTED = default(adapters={"rank": 16, "targets": ["q", "v"]})


@pytest.mark.parametrize(("notes", "base"), [("LoRA", "model"), ("QLoRA, 4 bits", "nf4"), ("qlora", "nf4")])
def test_adapters_of_a_software_freeze_the_model_and_qlora_stores_it_in_four_bits(
    with_defaults, notes, base
):
    plain, job = with_defaults(), with_defaults(ADAPTED, notes=notes)

    assert plain.model.adapters is None
    assert (job.model.adapters.rank, set(job.model.adapters.targets)) == (16, {"q", "v"})
    assert job.model.adapters.base_dtype == base
    assert any(told.startswith("adapters ") for told in job.assumptions)


@pytest.mark.parametrize(("notes", "even"), [("", False), ("force-balanced routing", True)])
def test_routing_that_a_software_makes_even_is_even_in_every_block_of_experts(with_defaults, notes, even):
    fill = default(where={"notes": "force-balanced"}, experts={"load_imbalance_ratio": 1.0})
    job = with_defaults(default(plan={"expert_tensor_parallel": 1}), fill, row=MIXTRAL, notes=notes)

    ratios = {block.feed_forward.load_imbalance_ratio for block in job.model.blocks}
    assert (ratios == {1.0}) is even


def test_what_a_software_says_of_experts_changes_no_dense_model(with_defaults):
    capacity = default(experts={"load_imbalance_ratio": 1.25})

    dense = with_defaults(capacity)
    experts = with_defaults(capacity, default(plan={"expert_tensor_parallel": 1}), row=MIXTRAL)

    assert dense.model == with_defaults().model
    assert {block.feed_forward.load_imbalance_ratio for block in experts.model.blocks} == {1.25}


def test_defaults_of_a_stack_are_laid_over_it_one_after_the_other(with_defaults):
    job = with_defaults(
        default(stack={"gradients": {"overlap": True, "bucket_elements": 7}}),
        default(stack={"gradients": {"bucket_elements": 9}}),
    )

    assert (job.stack.gradients.overlap, job.stack.gradients.bucket_elements) == (True, 9)
    assert sum(told.startswith("stack {") for told in job.assumptions) == 2


@pytest.mark.parametrize(("notes", "shard"), [("zero1=4", 4), ("tp=2 zero1=8, tgs", 8)])
def test_the_group_over_which_internevo_shards_states_stands_in_the_remarks(with_defaults, notes, shard):
    job = with_defaults(default(plan={"zero": 1}), notes=notes, stack="internevo")

    assert job.plan.data_shard == shard


@pytest.mark.parametrize(
    ("framework", "recompute", "notes", "norm"),
    [
        ("PyTorch FSDP2 (prime-rl)", "full", "torch.compile", "wide_rmsnorm"),
        ("PyTorch FSDP2 (prime-rl)", "none", "torch.compile", "fused_layernorm"),
        ("Hugging Face Transformers", "full", "", "wide_rmsnorm"),
        ("Hugging Face Transformers", "full", "torch.compile", "fused_layernorm"),
        ("Hugging Face Transformers", "full", "Liger", "fused_layernorm"),
        ("PyTorch FSDP", "full", "torch.compile", "fused_layernorm"),
        ("Lit-GPT", "full", "", "unfused_rmsnorm"),
    ],
)
def test_models_of_transformers_run_norms_in_fp32_unless_something_fuses_them(
    run_of, framework, recompute, notes, norm
):
    """LlamaRMSNorm casts to fp32 and back. prime-rl wraps blocks in checkpoints before it compiles them;
    torch/utils/checkpoint.py runs a block eagerly if its graph breaks, which transformers' attention does.
    """
    row = LLAMA | {"framework": framework, "recompute": recompute, "notes": notes}

    assert reproduce(run_of(**row)).stack.rewrites[0] == norm


@pytest.mark.parametrize(
    "notes", ["packed to 4096 tokens; Liger", "packed documents on each device, lengths not stated"]
)
def test_packed_samples_of_unknown_lengths_attend_as_those_of_uniform_lengths(with_defaults, notes):
    """E[l²] / (E[l] · length) of lengths that are uniform up to `length` is 2/3."""
    (kind,) = {with_defaults(notes=notes).batch.documents}

    assert sum(kind) == 4096
    assert sum(length**2 for length in kind) / 4096**2 == pytest.approx(2 / 3, rel=1e-3)


@pytest.mark.parametrize("word", ["", "none", "None", "false", "FALSE"])
def test_words_for_nothing_offload_nothing(with_defaults, word):
    assert not with_defaults(row=LLAMA | {"offload": word}).plan.offload


@given(st.integers(1, 130), st.integers(1, 64))
def test_blocks_that_are_dealt_out_are_all_there_and_inner_chunks_are_the_fullest(blocks, chunks):
    layers = chunk_layers(blocks, chunks)

    if blocks % chunks == 0:
        assert layers == ()
    elif layers:
        assert (len(layers), sum(layers), min(layers) >= 0) == (chunks, blocks, True)
        inner = set(layers[1:-1])
        assert len(inner) <= 1
        assert max(layers[0], layers[-1]) <= max(inner, default=blocks)


@given(st.integers(2, 20), st.integers(3, 16))
def test_embedding_and_head_count_as_a_block_each_where_that_makes_the_number_divisible(size, chunks):
    assert chunk_layers(size * chunks - 2, chunks) == (size - 1, *[size] * (chunks - 2), size - 1)


def test_uneven_chunks_of_a_row_are_an_assumption_and_even_ones_none(with_defaults):
    deep = LLAMA | {"pp": "4", "dp": "2", "layers": "30"}

    uneven, even = with_defaults(row=deep), with_defaults(row=LLAMA | {"pp": "4", "dp": "2"})

    assert uneven.plan.stage_layers == (7, 8, 8, 7)
    assert any(told.startswith("stage_layers 7,8,8,7:") for told in uneven.assumptions)
    assert even.plan.stage_layers == ()
