"""Flags of DeepSpeed-MoE and of MindSpeed-LLM: experts by layer, dense layers, layers that do nothing.

Sizes of DeepSpeed-MoE's models are those of arXiv:2201.05596, table 1 and section 4.2 (1.3B+MoE-128: 52
billion parameters; 1.3B+PR-MoE-64/128: 31 billion).
"""

import pytest
from megatron_cases import document_of, job_on, script_of, told

from flopcast.library import catalog
from flopcast.spec.model import Model

SIZES = {"num_layers": 24, "hidden_size": 2048, "num_attention_heads": 16}
UNDER = "--deepspeed --zero-stage 0 --no-pipeline-parallel"
INNER = 4 * 2048
EXPERT = 2 * 2048 * INNER + INNER + 2048  # both matrices and their biases
V3 = (
    "--disable-bias-linear --swiglu --normalization RMSNorm --ffn-hidden-size 18432"
    " --untie-embeddings-and-output-weights --position-embedding-type rope --padded-vocab-size 129280"
    " --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128"
    " --qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm --mtp-num-layers 1 --num-experts 256"
    " --first-k-dense-replace 3 --moe-layer-freq 1 --n-shared-experts 1 --moe-router-topk 8"
    " --moe-router-score-function sigmoid --moe-router-enable-expert-bias"
)
V3_SIZES = {"hidden_size": 7168, "num_attention_heads": 128}


def model_of(more, **changes):
    return Model.model_validate(document_of(more, **changes).data["model"])


def experts_by_layer(model):
    """How many experts each layer has, 0 of dense ones."""
    numbers = [getattr(block.feed_forward, "num_experts", 0) for block in model.blocks]
    if not model.pattern:
        return [
            number for number, block in zip(numbers, model.blocks, strict=True) for _ in range(block.count)
        ]
    layers = sum(block.count for block in model.blocks)
    return [numbers[model.pattern[layer % len(model.pattern)]] for layer in range(layers)]


def test_every_second_layer_has_experts_and_a_token_takes_one_of_them():
    model = model_of(f"--num-experts 128 {UNDER}", **SIZES)
    dense = model_of(UNDER, **SIZES)

    assert experts_by_layer(model) == [0, 128] * 12
    assert model.blocks[-1].feed_forward.top_k == 1
    assert model.parameters() - dense.parameters() == 12 * (127 * EXPERT + 128 * 2048)
    assert model.parameters() / 1e9 == pytest.approx(52, abs=1)


def test_the_interval_and_the_choice_of_experts_are_those_of_the_flags():
    expected = {1: [16] * 24, 3: [0, 0, 16] * 8, 24: [0] * 23 + [16]}
    for interval, layers in expected.items():
        more = f"--num-experts 16 --expert-interval {interval} --topk 2"

        model = model_of(more, **SIZES)

        assert experts_by_layer(model) == layers, interval
        assert model.blocks[-1].feed_forward.top_k == 2


def test_a_pyramid_of_residual_experts_has_a_number_for_each_layer():
    listed = " ".join(["64"] * 10 + ["128"] * 2)

    model = model_of(f"--num-experts {listed} --mlp-type residual {UNDER}", **SIZES)

    assert experts_by_layer(model) == [0, 64] * 10 + [0, 128] * 2
    assert model.parameters() / 1e9 == pytest.approx(31, abs=1)
    assert model.blocks[-1].feed_forward.shared_experts == 1


def test_capacity_and_loss_of_deepspeed_are_its_defaults():
    experts = model_of(f"--num-experts 8 {UNDER}", **SIZES).blocks[-1].feed_forward
    keeping = model_of(
        f"--num-experts 8 {UNDER} --disable-moe-token-dropping --moe-loss-coeff 0.0", **SIZES
    )

    assert (experts.capacity_factor, experts.pads_to_capacity, experts.auxiliary_loss) == (1.0, True, True)
    assert keeping.blocks[-1].feed_forward.capacity_factor == 0.0
    assert not keeping.blocks[-1].feed_forward.auxiliary_loss


def test_experts_of_deepspeed_stand_whole_on_a_rank_unless_they_are_cut():
    more = f"--num-experts 8 --moe-expert-parallel-size 4 {UNDER}"
    more += " --tensor-model-parallel-size 2 --sequence-parallel"

    whole = job_on(document_of(more, devices=8, **SIZES)).plan
    cut = job_on(document_of(f"{more} --enable-expert-tensor-parallelism", devices=8, **SIZES)).plan

    assert (whole.expert_parallel, whole.expert_tensor_parallel) == (4, 1)
    assert (cut.expert_parallel, cut.expert_tensor_parallel) == (4, 2)


def test_a_list_that_does_not_fit_the_layers_is_a_fault():
    for more in (f"--num-experts 8 16 {UNDER}", "--num-experts 8 16"):
        assert [problem.field for problem in told(script_of(more, **SIZES))] == ["--num-experts"], more


def test_a_script_of_mindspeed_for_deepseek_v3_is_the_model_of_the_catalogue():
    """61 layers of which three are dense; three more that do nothing make 64."""
    own = catalog.model("deepseek-v3")
    for width in ("--moe-ffn-hidden-size 2048", "--moe-intermediate-size 2048"):
        read = model_of(f"{V3} {width} --noop-layers 61,62,63", num_layers=64, **V3_SIZES)

        assert read.parameters() == own.parameters()
        assert read.active_parameters() == own.active_parameters()


def test_layers_that_do_nothing_leave_their_stages():
    more = (
        f"{V3} --moe-ffn-hidden-size 2048 --pipeline-model-parallel-size 16 --expert-model-parallel-size 8"
    )
    plain = document_of(f"{more} --noop-layers 47,62,63", devices=128, num_layers=64, **V3_SIZES)
    chunks = document_of(
        f"{more} --noop-layers 47,62,63 --num-layers-per-virtual-pipeline-stage 2",
        devices=128, num_layers=64, **V3_SIZES,
    )  # fmt: skip

    assert plain.data["plan"]["stage_layers"] == [4] * 11 + [3] + [4] * 3 + [2]
    assert chunks.data["plan"]["stage_layers"] == [2] * 23 + [1] + [2] * 7 + [0]
    assert chunks.data["plan"]["virtual_stages"] == 2


def test_layers_that_do_nothing_must_exist():
    faults = told(script_of(f"{V3} --moe-ffn-hidden-size 2048 --noop-layers 64", num_layers=64, **V3_SIZES))

    assert [problem.field for problem in faults] == ["--noop-layers"]


def test_older_names_of_latent_attention_in_mindspeed_are_those_of_megatron_core():
    older = V3
    for new, old in (
        ("--multi-latent-attention", "--multi-head-latent-attention"),
        ("--qk-head-dim", "--qk-nope-head-dim"),
        ("--qk-pos-emb-head-dim", "--qk-rope-head-dim"),
    ):
        older = older.replace(new, old)

    assert model_of(older, num_layers=61, **V3_SIZES) == model_of(V3, num_layers=61, **V3_SIZES)
