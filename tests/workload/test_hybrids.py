"""Training of hybrids: Mamba-2 beside attention, and experts in a space narrower than the model."""

import pytest
from all_cases import all_cases

from flopcast import job as one_job
from flopcast import predict
from flopcast.cost.kernels.roofline import cycle_seconds
from flopcast.cost.kernels.unscaled import unscaled_times
from flopcast.dtypes import constant
from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.exports.megatron import export_megatron
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.layers.experts import Experts
from flopcast.layers.latent_experts import ENTERED, LEFT
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.gated_delta import GatedDelta
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.requests.job_files import job_of
from flopcast.spec.model import WHOLE, Model

NANO = {
    "model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52, "vocab_size": 131072,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "head_dim": 128,
    "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
    "num_attention_heads": 32, "num_key_value_heads": 2, "n_routed_experts": 128, "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856, "n_shared_experts": 1, "moe_shared_expert_intermediate_size": 3712,
    "intermediate_size": 1856, "mlp_hidden_act": "relu2", "max_position_embeddings": 262144,
}  # fmt: skip
# NemotronHForCausalLM of transformers 5.24 on the meta device, without multi-token prediction
COUNTED = {
    "nemotron-nano-9b-v2": 8_888_227_328,
    "nemotron-3-nano-30b-a3b": 31_577_937_344,
    "nemotron-3-super-120b-a12b": 120_668_687_360,
}


def imported(**changes):
    mapping, _ = model_from_config(Document("config.json", NANO | changes, {}))
    return Model.model_validate(mapping)


def test_models_have_the_parameters_that_the_library_builds():
    found = {name: catalog.model(name).model_copy(update={"mtp": 0}).parameters() for name in COUNTED}

    assert found == COUNTED
    assert imported().parameters() == COUNTED["nemotron-3-nano-30b-a3b"]


def test_layers_of_a_config_become_blocks_of_a_mixer_and_what_follows_it():
    model = imported(hybrid_override_pattern="MM*EM-", num_hidden_layers=6)

    assert [(block.mixer.kind, block.feed_forward.kind) for block in model.blocks] == [
        ("gated_delta", "none"),
        ("attention", "experts"),
        ("gated_delta", "mlp"),
    ]
    assert [block.count for block in model.blocks] == [2, 1, 1]


@all_cases(
    ("changes", "allowed"),
    [
        ({"hybrid_override_pattern": "MEX", "num_hidden_layers": 3}, "3 letters: M (Mamba-2)"),
        ({"hybrid_override_pattern": "ME", "num_hidden_layers": 3}, "3 letters: M (Mamba-2)"),
        (
            {"hybrid_override_pattern": "EM", "num_hidden_layers": 2},
            "a mixer before every feed-forward layer",
        ),
        ({"hybrid_override_pattern": None}, "one letter for each layer"),
    ],
)
def test_a_pattern_that_names_no_blocks_is_an_error(changes, allowed):
    with pytest.raises(SpecError) as error:
        imported(**changes)

    (problem,) = error.value.problems
    assert (problem.field, allowed in problem.allowed) == ("hybrid_override_pattern", True)


def layer_items(experts, hidden=4096):
    return {item.name: item for item in experts.forward(hidden, WHOLE)}


def test_experts_in_a_narrower_space_exchange_and_multiply_narrower_rows():
    plain = Experts(num_experts=512, top_k=22, expert_hidden=2688, activation="relu2", shared_experts=1)
    narrow = plain.model_copy(update={"latent_hidden": 1024})
    wide_items, items = layer_items(plain), layer_items(narrow)

    for name in ("experts.up", "experts.down"):
        flop = [found[name].work.work().flop.item() for found in (wide_items, items)]
        assert flop[0] == 4 * flop[1]
    for name in ("experts.dispatch", "experts.combine"):
        sent = [found[name].work.message_bytes.item() for found in (wide_items, items)]
        assert sent[0] == 4 * sent[1]
    assert items["experts.router"].work.work().flop == wide_items["experts.router"].work.work().flop
    assert items["experts.latent_in"].output == ENTERED
    assert items["experts.latent_out"].inputs == (LEFT,)
    # every product of the layer, for one token, is one of its weights
    products = sum(
        item.work.work().flop.item()
        for item in items.values()
        if isinstance(item.work, Matmul | GroupedMatmul)
    )
    assert products == pytest.approx(2 * narrow.linear_elements(4096), rel=1e-12)


def job(name, plan, **fields):
    parts = {"model": name, "cluster": "dgx-h100:1", "stack": "megatron-core", "batch": {"seq": 1024}}
    return job_of(Document("job", parts | {"plan": plan} | fields, {}))


def test_ranks_together_compute_what_one_computes():
    """The model's FLOP per step, which time and MFU give together, do not depend on tensor parallelism."""
    flop = []
    for degree in (1, 2, 4):
        report = predict(job("nemotron-nano-9b-v2", f"dp={8 // degree} tp={degree} mbs=1 gbs=16 zero=1"))
        flop.append(report.metrics.mfu_ratio * report.step_time_s)

    assert flop == pytest.approx([flop[0]] * 3, rel=1e-9)


def test_a_hybrid_is_not_exported_and_shares_no_sequence():
    hybrid = job("nemotron-nano-9b-v2", "dp=8 mbs=1 gbs=16 zero=1 precision=bf16")

    with pytest.raises(SpecError, match="linear attention' cannot be exported"):
        export_megatron(hybrid)
    with pytest.raises(SpecError, match="context parallelism of linear attention is not supported yet"):
        job("nemotron-nano-9b-v2", "dp=4 cp=2 mbs=1 gbs=16 zero=1")


def test_the_backward_pass_of_a_state_space_computes_what_its_kernels_do():
    """Five products with the state for two forward, and three inside a chunk for one."""
    model = catalog.model("nemotron-3-nano-30b-a3b")
    block = next(block for block in model.blocks if block.mixer.kind == "gated_delta")
    (core,) = [
        item.work for item in block.forward(model.hidden, WHOLE) if isinstance(item.work, GatedDelta)
    ]

    ((name, gradient),) = core.gradients()
    forward, backward = core.work().flop.item(), gradient.work().flop.item()

    state = 2 * 64 * 2 * 128 * 64  # two products of a state of 64 heads, for a token
    assert (name, gradient.kernel) == ("dgrad", "state_space.backward")
    assert backward == pytest.approx(2.5 * state + 3 * (forward - state), rel=1e-12)


def test_the_kernels_of_mamba2_take_the_times_of_profiles_on_h100():
    """Nanoseconds for a token and layer of Nemotron 3 Nano (mfu/results of Automodel-scalingai-f26)."""
    nano, h100 = catalog.model("nemotron-3-nano-30b-a3b"), catalog.device("h100-sxm5-80gb")
    block = next(block for block in nano.blocks if block.mixer.kind == "gated_delta")
    works = [item.work for item in block.forward(nano.hidden, WHOLE)]
    (core,) = (work for work in works if isinstance(work, GatedDelta))
    (convolution,) = (
        work for work in works if isinstance(work, MemoryBound) and work.kind == "causal_convolution"
    )

    def nanoseconds(work):
        return cycle_seconds(work.work().cycles, h100).item() * 1e9

    def backward(work):
        return nanoseconds(work.gradients()[0][1])

    assert nanoseconds(core) == pytest.approx(73, rel=0.02)
    assert nanoseconds(core) + backward(core) == pytest.approx(192, rel=0.02)
    assert nanoseconds(convolution) == pytest.approx(15.9, rel=0.02)
    assert backward(convolution) == pytest.approx(
        15.9 + 29.7, rel=0.02
    )  # the backward pass convolves again


def test_the_gated_delta_rule_trains_in_the_times_of_flash_linear_attention():
    """Milliseconds forward, and forward and backward, on GB200 (README.md, section Benchmarks)."""
    measured = {
        (1, 8192, 96): (1.265, 4.738),
        (2, 16384, 16): (1.029, 3.616),
        (4, 4096, 64): (1.581, 5.964),
    }
    book = load_book(catalog.cluster("gb200-nvl72"))
    device = catalog.device("gb200-192gb")

    def milliseconds(work):
        curve = book.find(device.name, work.kernel, device.kernel_launch_s, device.relatives).curve
        return unscaled_times([work], curve, device).alone_s.item() * 1e3

    for (sequences, tokens, heads), (forward_ms, both_ms) in measured.items():
        sizes = {"sequences": sequences, "tokens": tokens, "heads": heads, "key_heads": heads}
        sizes |= {"key_size": 128, "value_size": 128}
        arrays = {name: constant(size) for name, size in sizes.items()}
        core = GatedDelta(**arrays, dtype="bf16")
        forward, backward = milliseconds(core), milliseconds(core.gradients()[0][1])
        assert forward == pytest.approx(forward_ms, rel=0.25)
        assert forward + backward == pytest.approx(both_ms, rel=0.15)
        assert milliseconds(replace(core, is_served=True)) <= forward  # engines have faster kernels


def test_a_model_of_mamba2_alone_trains_at_the_published_rates():
    """state-spaces/mamba, issue 904: model TFLOP/s of a 1.3B model, 4 sequences of 4096 tokens, in bf16.

    The profiles of H100 determined the kernels of Mamba-2; these rates show that they carry over.
    """
    mixer = {"kind": "gated_delta", "rule": "additive", "heads": 64, "key_heads": 1, "key_size": 128}
    block = {"count": 48, "norm": "rmsnorm", "mixer": mixer | {"value_size": 64}}
    model = {"hidden": 2048, "vocabulary": 50288, "context_length": 4096, "tied_embeddings": True}
    model["blocks"] = [block | {"feed_forward": {"kind": "none"}}]
    measured = {"dgx-a100": 102.5, "dgx-h200": 239.2, "gb200-nvl72": 360.4}

    rates = {}
    for cluster in measured:
        plan = "dp=1 mbs=4 gbs=4 precision=bf16"
        run = one_job(model=model, cluster=cluster, gpus=1, plan=plan, stack="pytorch-ddp", seq=4096)
        rates[cluster] = 6 * run.model.parameters() * 4 * 4096 / predict(run).step_time_s / 1e12

    assert rates == pytest.approx(measured, rel=0.15)
