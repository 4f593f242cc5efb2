"""States of optimizers on the ranks of a plan, and copies of gradients beside them."""

import csv

import numpy as np
import pytest
from all_cases import all_cases
from memory_cases import BLOCKS, GPT, HIDDEN, LENGTH, MEGATRON, VOCABULARY, Kept, stack_with

from flopcast.layers.attention import Attention
from flopcast.layers.block import Block
from flopcast.layers.experts import Experts
from flopcast.layers.latent_attention import LatentAttention
from flopcast.layers.mlp import Mlp
from flopcast.library import catalog
from flopcast.spec.batch import Batch
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, one_plan
from flopcast.workload.lower import lower

BLOCK_PARAMETERS = 12 * HIDDEN**2 + 13 * HIDDEN
PARAMETERS = BLOCKS * BLOCK_PARAMETERS + 2 * VOCABULARY * HIDDEN + 2 * HIDDEN
EXPERTS = Experts(num_experts=8, top_k=2, expert_hidden=256, shared_experts=1)


def named(items, ending):
    """The one item whose name has this ending."""
    (found,) = [item for item in items if item.name.endswith(f".{ending}")]
    return found


def states(text, model=GPT, stack=MEGATRON):
    return Kept(text, model=model, stack=stack).category("optimizer_states")


@all_cases(
    ("name", "each_bytes"), [("adamw", 12), ("adamw_8bit", 6 + 1 / 32), ("sgd_momentum", 8), ("sgd", 4)]
)
@all_cases("replicas", [1, 8])
def test_states_are_so_many_bytes_a_parameter_over_the_replicas(name, each_bytes, replicas):
    kept = states(f"dp={replicas} zero=1 gbs={replicas} optimizer={name}")

    assert kept == pytest.approx([each_bytes * PARAMETERS / replicas])


@pytest.mark.parametrize("ranks", [1, 4])
def test_adafactor_keeps_a_number_for_each_row_and_column_of_its_rank_s_matrices(ranks):
    kept = states(f"tp={ranks} optimizer=adafactor")
    plain = states(f"tp={ranks} optimizer=sgd")

    h, t = HIDDEN, ranks
    # q k v: h × 3h, out: h × h, up: h × 4h, down: 4h × h, each cut once; two tables of VOCABULARY rows
    matrices = BLOCKS * ((h + 3 * h / t) + (h / t + h) + (h + 4 * h / t) + (4 * h / t + h))
    tables = 2 * (VOCABULARY / t + h)
    # whole second moments of vectors: biases of 3h and 4h cut, two of h whole; two norms of 2h
    vectors = BLOCKS * (7 * h / t + 2 * h + 4 * h) + 2 * h
    assert kept[0] - plain[0] == pytest.approx(4 * (matrices + tables + vectors))


def test_a_factored_moment_of_stacked_experts_has_rows_and_columns_for_each():
    block = Block(count=2, norm="rmsnorm", mixer=Attention(heads=8), feed_forward=EXPERTS)
    model = Model(hidden=HIDDEN, vocabulary=VOCABULARY, blocks=(block,))
    dense = model.model_copy(
        update={
            "blocks": (block.model_copy(update={"feed_forward": Mlp(ffn_hidden=256, activation="swiglu")}),)
        }
    )

    extra = [
        states(f"optimizer={name}", model=one)[0] for one in (model, dense) for name in ("adafactor", "sgd")
    ]

    each = (HIDDEN + 512) + (256 + HIDDEN)  # gate and value together; down
    router = HIDDEN + 8
    # eight experts and the shared one against the one dense MLP
    assert (extra[0] - extra[1]) - (extra[2] - extra[3]) == pytest.approx(2 * 4 * (8 * each + router))


@all_cases(
    "mixer",
    [
        Attention(heads=8, kv_heads=4, qkv_bias=True),
        LatentAttention(
            heads=8,
            q_lora_rank=96,
            kv_lora_rank=64,
            qk_nope_head_size=32,
            qk_rope_head_size=16,
            value_head_size=32,
        ),
    ],
)
@all_cases("feed_forward", [Mlp(ffn_hidden=1024, activation="swiglu"), EXPERTS])
@all_cases("text", [{}, {"tp": 4}, {"tp": 2, "ep": 2, "dp": 2, "etp": 1}])
def test_the_matrix_of_a_weight_is_that_of_its_elements(mixer, feed_forward, text):
    block = Block(count=2, norm="rmsnorm", mixer=mixer, feed_forward=feed_forward)
    model = Model(hidden=HIDDEN, vocabulary=VOCABULARY, learned_positions=LENGTH, mtp=1, blocks=(block,))

    workload = lower(model, one_plan(Plan(gbs=8, **text)), Batch(sequence_length=LENGTH))

    weights = [weight for layer in workload.layers for weight in layer.weights]
    stacked = [
        float((w.elements / (w.matrix[0] * w.matrix[1])).item()) for w in weights if w.matrix is not None
    ]
    vectors = [float(np.max(w.elements)) for w in weights if w.matrix is None]
    assert set(stacked) <= {1.0, 8.0 / text.get("ep", 1)}  # one, or as many as a rank has experts
    assert max(vectors) <= 4 * HIDDEN  # whatever is no matrix is a vector


def test_gradients_in_16_bits_are_copied_where_the_update_reads_fp32():
    core = catalog.stack("megatron-core")
    half = core.model_copy(update={"gradients": core.gradients.model_copy(update={"dtype": "fp16"})})
    text = "dp=4 zero=1 gbs=4 precision=fp16"

    whole, copied = (
        [item.name for item in Kept(text, stack=stack).programs.update] for stack in (core, half)
    )

    assert "optimizer.main_gradients" not in whole
    assert copied[0] == "optimizer.main_gradients"


@pytest.mark.parametrize("replicas", [1, 4])
def test_an_update_moves_its_bytes_for_each_parameter_of_the_shard(replicas):
    text = f"dp={replicas} zero=1 gbs={replicas} optimizer="
    moved = {
        name: named(Kept(text + name).programs.update, "update").work.work().moved_bytes.item()
        for name in ("adamw", "sgd")
    }

    # two fp32 moments, read and written: 16 bytes of a parameter
    assert moved["adamw"] - moved["sgd"] == pytest.approx(16 * PARAMETERS / replicas)


def test_copies_of_gradients_are_there_while_the_step_ends():
    half = stack_with(
        gradients={"dtype": "fp16"}, optimizer={"fp32_gradients": True}, memory={"update_bytes": 1e4}
    )

    kept = Kept("dp=4 zero=1 gbs=4 precision=fp16", stack=half)

    assert kept.of(kept.memory.at_update) == [True]
    assert kept.category("main_gradients") == pytest.approx([4 * PARAMETERS / 4])


@pytest.mark.parametrize(
    ("fp16", "each_bytes"),
    [
        ("true", 2 + 2 + 4 + 12),  # fp16 weight and gradient, its fp32 copy, states
        ("", 2 + 4 + 12),  # bf16 weight, fp32 gradient, states
    ],
)
def test_three_blocks_more_on_a_stage_leave_as_many_bytes_as_measured(shared, fp16, each_bytes):
    """Twelve blocks of width 512 on two and on four stages: the last ones differ by three blocks alone."""
    with (shared / "validation" / "megatron_functional_8gpu.csv").open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["family"] == "gpt"
            and row["median_mem_allocated_bytes"]
            and (row["fp16"], row["use_distributed_optimizer"]) == (fp16, "")
            and (row["num_layers"], row["hidden_size"], row["tensor_model_parallel_size"])
            == ("12", "512", "1")
            and not any(
                row[n]
                for n in ("num_experts", "context_parallel_size", "num_layers_per_virtual_pipeline_stage")
            )
        ]
    found = {
        stages: np.median(
            [
                float(r["median_mem_allocated_bytes"])
                for r in rows
                if r["pipeline_model_parallel_size"] == stages
            ]
        )
        for stages in ("2", "4")
    }

    measured = (found["2"] - found["4"]) / (3 * (12 * 512**2 + 13 * 512))

    assert measured == pytest.approx(each_bytes, rel=0.02)
