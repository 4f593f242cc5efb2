"""Megatron-LM's flags of sliding windows: how many tokens a query sees, and in which layers."""

import pytest
from all_cases import all_cases
from megatron_cases import document_of, job_on, script_of, told

from flopcast.library import catalog
from flopcast.spec.model import Model

LAYERS = 24


def told_of(flags):
    """Every fault of a small script with these flags."""
    return told(script_of(flags))


def windows(flags, **changes):
    """The window of every layer, None where it sees all."""
    model = Model.model_validate(document_of(flags, **changes).data["model"])
    return [
        model.blocks[place - 1].mixer.window
        for place, count in model.runs()
        for _ in range(count)
        if 1 <= place <= len(model.blocks)
    ]


@all_cases(
    ("written", "seen"), [("127,0", 128), ("'(127, 0)'", 128), ("0,0", 1), ("127,-1", 128), ("-1,0", None)]
)
def test_a_query_sees_itself_and_as_many_tokens_before_it_as_the_flag_says(written, seen):
    """Transformer Engine's pair counts what lies to the left and to the right; -1 is no bound."""
    assert windows(f"--window-size {written}") == [seen] * LAYERS


@all_cases("written", ["127", "127,1", "-2,0", "a,b", "1,2,3", "127;0"])
def test_a_window_that_looks_ahead_or_is_no_pair_is_refused(written):
    (fault,) = told_of(f"--window-size '{written}'")

    assert (fault.field, fault.allowed) == ("--window-size", "LEFT,0, such as 127,0, or -1,0 for all")


@all_cases(
    ("frequency", "full"),
    [
        ("2", range(1, LAYERS, 2)),
        ("6", range(5, LAYERS, 6)),
        ("1", range(LAYERS)),
        ("'([1]*5+[0]*1)'", None),
        ("'([0]*4+[1]*20)'", range(4)),
        ("'[1,1,0]*8'", range(2, LAYERS, 3)),
    ],
)
def test_layers_without_a_window_are_those_that_are_skipped(frequency, full):
    """`is_layer_window_attention`: of layers counted from 1 every N-th is full; in a list 0 is."""
    flags = f"--window-size 127,0 --window-attn-skip-freq {frequency}"
    if full is None:
        assert [fault.field for fault in told_of(flags)] == ["--window-attn-skip-freq"]
        return

    assert [layer for layer, window in enumerate(windows(flags)) if window is None] == list(full)


def test_a_frequency_alone_is_without_effect_and_told():
    notes = document_of("--window-attn-skip-freq 2").data["assumptions"]

    assert windows("--window-attn-skip-freq 2") == [None] * LAYERS
    assert [note for note in notes if "--window-attn-skip-freq has no effect" in note]


def test_experts_and_windows_in_different_layers_make_four_kinds_of_blocks():
    flags = "--num-experts 8 --moe-layer-freq 2 --window-size 127,0 --window-attn-skip-freq 3"
    model = Model.model_validate(document_of(f"{flags} --moe-grouped-gemm").data["model"])

    kinds = {(block.feed_forward.kind, block.mixer.window): block.count for block in model.blocks}
    assert kinds == {("experts", 128): 8, ("experts", None): 4, ("mlp", 128): 8, ("mlp", None): 4}
    order = [
        (model.blocks[kind].feed_forward.kind, model.blocks[kind].mixer.window) for kind in model.pattern
    ]
    assert order == [(("mlp" if i % 2 else "experts"), None if i % 3 == 2 else 128) for i in range(6)]


def test_latents_have_no_window():
    flags = "--multi-latent-attention --kv-lora-rank 512 --position-embedding-type rope --window-size 127,0"

    assert "--window-size" in [fault.field for fault in told_of(flags)]


def test_what_a_rule_says_of_a_window_is_told_by_the_line_of_its_flag():
    document = document_of("--window-size 127,0 --num-experts 4 --moe-layer-freq 2")

    assert (
        document.lines[("model", "blocks", 1, "mixer", "window")]
        == document.lines[("model", "blocks", 0, "mixer", "window")]
    )
    assert document.lines[("model", "blocks", 0, "feed_forward", "num_experts")] > 1


def test_a_script_with_windows_is_the_model_of_the_catalogue():
    """Mistral 7B: 32 layers with a window of 4096 tokens."""
    own = catalog.model("mistral-7b")
    flags = (
        "--swiglu --disable-bias-linear --untie-embeddings-and-output-weights --normalization RMSNorm"
        " --ffn-hidden-size 14336 --group-query-attention --num-query-groups 8 --window-size 4095,0"
        " --position-embedding-type rope --attention-dropout 0 --hidden-dropout 0"
        " --make-vocab-size-divisible-by 1"
    )
    sizes = {"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 32000}

    job = job_on(document_of(flags, seq_length=8192, max_position_embeddings=8192, **sizes))

    assert job.model.parameters() == own.parameters()
    assert job.model.forward_flop(8192) == own.forward_flop(8192)


@pytest.mark.parametrize(
    ("kind", "sinks"), [("vanilla", False), ("off-by-one", False), ("learnable", True)]
)
def test_a_learnt_offset_of_the_softmax_is_a_sink_for_each_head(kind, sinks):
    """TransformerConfig.softmax_type: "learnable" has a parameter a head, the others have none."""
    block = document_of(f"--softmax-type {kind}").data["model"]["blocks"][0]

    assert block["mixer"].get("sinks", False) is sinks


@all_cases(
    ("flags", "is_told"),
    [
        ("--softmax-type vanilla", False),
        ("--softmax-type learnable", False),
        ("--softmax-type off-by-one", True),
        ("--softmax-type learnable --multi-latent-attention --kv-lora-rank 512", True),
    ],
)
def test_a_softmax_that_is_not_counted_is_told(flags, is_told):
    notes = document_of(f"--position-embedding-type rope {flags}").data["assumptions"]

    assert any("flopcast predicts an ordinary softmax instead" in note for note in notes) is is_told
