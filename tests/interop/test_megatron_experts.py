"""Megatron-LM's flags of experts, latent attention and multi-token prediction."""

import pytest
from all_cases import all_cases
from megatron_cases import document_of, job_on, script_of, stack_of, told

from flopcast.library import catalog
from flopcast.spec.model import Model

MIXTRAL = (
    "--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --moe-aux-loss-coeff 1e-2"
    " --moe-token-dispatcher-type alltoall --disable-bias-linear --swiglu --ffn-hidden-size 14336"
)
DEEPSEEK_V3 = (  # scripts of NVIDIA for DeepSeek-V3: the flags of the model
    "--disable-bias-linear --swiglu --normalization RMSNorm --ffn-hidden-size 18432"
    " --untie-embeddings-and-output-weights --position-embedding-type rope --attention-dropout 0"
    " --hidden-dropout 0 --padded-vocab-size 129280 --multi-latent-attention --q-lora-rank 1536"
    " --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm"
    " --mtp-num-layers 1 --mtp-loss-scaling-factor 0.1 --num-experts 256"
    " --moe-layer-freq '([0]*3+[1]*58)' --moe-ffn-hidden-size 2048 --moe-router-topk 8"
    " --moe-shared-expert-intermediate-size 2048 --moe-router-score-function sigmoid"
    " --moe-router-dtype fp32 --moe-router-enable-expert-bias --moe-router-num-groups 8"
    " --moe-router-group-topk 4 --moe-router-load-balancing-type seq_aux_loss"
    " --moe-aux-loss-coeff 1e-4 --moe-grouped-gemm --moe-token-dispatcher-type flex"
    " --expert-model-parallel-size 8"
)
V3_SIZES = {"num_layers": 61, "hidden_size": 7168, "num_attention_heads": 128}


def model_of(more, **changes):
    return Model.model_validate(document_of(more, **changes).data["model"])


def experts_of(more, **changes):
    return model_of(more, **changes).blocks[-1].feed_forward


def said(more, **changes):
    return " ".join(document_of(more, **changes).data["assumptions"])


def test_flags_of_deepseek_v3_describe_the_model_of_the_catalogue():
    own = catalog.model("deepseek-v3")

    read = model_of(DEEPSEEK_V3, **V3_SIZES)

    assert read.parameters() == own.parameters()
    assert read.active_parameters() == own.active_parameters()
    assert read.mtp == own.mtp
    assert [block.mixer for block in read.blocks] == [block.mixer for block in own.blocks]
    theirs, ours = read.blocks[-1].feed_forward, own.blocks[-1].feed_forward
    unlike = {name for name in type(ours).model_fields if getattr(theirs, name) != getattr(ours, name)}
    assert unlike == {"shared_hidden"}  # given as a width, not as that of the others


def test_a_script_of_experts_is_a_job_that_keeps_every_rule():
    job = job_on(document_of(f"{MIXTRAL} --expert-model-parallel-size 8"))

    assert job.plan.expert_parallel == 8
    assert job.model.blocks[0].feed_forward.num_experts == 8


def test_an_expert_is_as_wide_as_the_dense_feed_forward_unless_told():
    wide, narrow = experts_of(MIXTRAL), experts_of(f"{MIXTRAL} --moe-ffn-hidden-size 1408")

    assert (wide.expert_hidden, narrow.expert_hidden) == (14336, 1408)
    assert wide.activation == "swiglu"


@all_cases(
    ("frequency", "kinds"),
    [
        ("1", ["experts"] * 4),
        ("2", ["experts", "mlp"] * 2),
        ("([0]*1+[1]*3)", ["mlp", "experts", "experts", "experts"]),
        ("[0,1]*2", ["mlp", "experts"] * 2),
        ("[1]*4", ["experts"] * 4),
    ],
)
def test_layers_with_experts_are_those_of_their_frequency(frequency, kinds):
    """Layer i has experts where its frequency divides i: `moe_layer_freq` of Megatron-Core."""
    model = model_of(f"{MIXTRAL} --moe-layer-freq '{frequency}'", num_layers=4)

    layers = [model.sequence()[place][0] for place, count in model.runs()[1:-2] for _ in range(count)]
    assert [layer.feed_forward.kind for layer in layers] == kinds


@all_cases("frequency", ["[0]*3", "([0]*4)", "[2]*4", "every", "[1]*3+[0]*3"])
def test_a_pattern_that_does_not_fit_the_layers_is_told(frequency):
    (problem,) = told(script_of(f"{MIXTRAL} --moe-layer-freq '{frequency}'", num_layers=4))

    assert problem.field == "--moe-layer-freq"
    assert "a pattern of 4 layers" in problem.allowed


@all_cases(
    ("flags", "fields"),
    [
        ("", {"capacity_factor": 0.0, "pads_to_capacity": False}),
        ("--moe-expert-capacity-factor -1", {"capacity_factor": 0.0}),
        ("--moe-expert-capacity-factor 1.25", {"capacity_factor": 1.25, "pads_to_capacity": False}),
        (
            "--moe-expert-capacity-factor 1.0 --moe-pad-expert-input-to-capacity",
            {"capacity_factor": 1.0, "pads_to_capacity": True},
        ),
        ("--moe-router-force-load-balancing", {"load_imbalance_ratio": None}),
        ("--moe-router-load-balancing-type none", {"auxiliary_loss": False}),
        ("--moe-aux-loss-coeff 0.0", {"auxiliary_loss": False}),
        ("--moe-router-load-balancing-type aux_loss seq_aux_loss", {"auxiliary_loss": True}),
        ("--moe-shared-expert-intermediate-size 5632", {"shared_experts": 1, "shared_hidden": 5632}),
    ],
)
def test_flags_of_the_router_and_of_shared_experts_are_fields_of_the_layer(flags, fields):
    layer = experts_of(f"{MIXTRAL} {flags}")

    assert {name: getattr(layer, name) for name in fields} == fields


@pytest.mark.parametrize("flags", ["--num-experts 1", "--num-experts 0", "--mtp-num-layers 0"])
def test_a_flag_whose_value_asks_for_nothing_leaves_a_dense_model(flags):
    model = model_of(flags)

    assert (model.blocks[0].feed_forward.kind, model.mtp) == ("mlp", 0)


@all_cases(
    ("flags", "words"),
    [
        ("--moe-token-dispatcher-type allgather", "not by all-gathers"),
        ("--moe-z-loss-coeff 1e-3", "flopcast ignores the time of a pass over the router's scores"),
        ("--moe-shared-expert-overlap", "flopcast predicts shared experts without overlap"),
        ("", "choose experts at random"),
    ],
)
def test_what_experts_cost_in_another_way_is_told(flags, words):
    assert words in said(f"{MIXTRAL} {flags}")


def test_latents_without_norms_or_with_biases_are_told():
    flags = "--multi-latent-attention --kv-lora-rank 512 --position-embedding-type rope"

    assert "assumes norms of latents" in said(flags)
    assert "the bias of the output projection of attention is ignored" in said(flags)
    assert "--kv-channels has no effect" in said(f"{flags} --kv-channels 64")


def test_latents_have_megatrons_sizes_where_none_are_given():
    """Defaults of MLATransformerConfig and its flags, core v0.12."""
    mixer = model_of("--multi-latent-attention --position-embedding-type rope").blocks[0].mixer

    assert (mixer.q_lora_rank, mixer.kv_lora_rank, mixer.query_size, mixer.value_head_size) == (
        None,
        32,
        192,
        128,
    )


def test_a_capacity_that_is_no_number_is_told():
    (problem,) = told(script_of(f"{MIXTRAL} --moe-expert-capacity-factor full"))

    assert (problem.field, problem.value) == ("--moe-expert-capacity-factor", "full")


def test_more_picks_than_experts_are_told_at_their_line():
    document = document_of(MIXTRAL.replace("--moe-router-topk 2", "--moe-router-topk 16"))

    line = document.lines["model", "blocks", 0, "feed_forward", "top_k"]

    assert line == document.lines["model", "blocks", 0, "feed_forward", "num_experts"]


@all_cases(
    ("flags", "changes"),
    [
        ("--moe-token-dispatcher-type alltoall", {}),
        ("--moe-token-dispatcher-type flex", {"dispatcher": "deepep"}),
        (
            "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep",
            {"dispatcher": "hybridep"},
        ),
        ("--moe-flex-dispatcher-backend hybridep", {}),
        ("--overlap-moe-expert-parallel-comm", {"exchange_overlap": "other_micro_batch"}),
        ("--moe-router-fusion", {"router_kernels": "fused"}),
    ],
)
def test_flags_say_what_carries_tokens_and_what_runs_meanwhile(flags, changes):
    """MoEFlexTokenDispatcher is DeepEP's unless another library is named; alltoall is NCCL's."""
    assert (
        stack_of(f"{MIXTRAL} --transformer-impl transformer_engine {flags}").get("experts", {}) == changes
    )


def test_software_of_experts_is_none_of_a_dense_models():
    assert "experts" not in stack_of("--moe-token-dispatcher-type flex --overlap-moe-expert-parallel-comm")
