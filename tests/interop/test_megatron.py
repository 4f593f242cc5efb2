"""Launch scripts of Megatron-LM as jobs: shape, plan, batch and stack of scripts of many styles."""

import pytest
from all_cases import all_cases
from megatron_cases import (
    EXPECTED,
    REFUSED_BY_RULES,
    SCRIPTS,
    block_of,
    document_of,
    job_on,
    script,
    script_of,
    stack_of,
)
from megatron_cases import told as faults_of

from flopcast.api import predict
from flopcast.errors import SpecError
from flopcast.interop.megatron.flags import KNOWN, NOT_MODELLED, REFUSED, SILENT, is_known, is_silent
from flopcast.interop.megatron.flags import MODELLED as MODELLED_FLAGS
from flopcast.interop.megatron.launch_script import launch_document, ranks_of
from flopcast.interop.megatron.stack import SIGNS
from flopcast.library import catalog
from flopcast.library.edits import plan_words
from flopcast.spec.plan import Plan

ON_HOST = "--optimizer-cpu-offload --use-precision-aware-optimizer"
EVERY_SCRIPT = pytest.mark.parametrize("name", EXPECTED)
PREDICTED = [name for name in EXPECTED if name not in REFUSED_BY_RULES]
PARAMETERS = {  # published, of models whose table has no padding
    "llama2_7b_arrays.sh": 6_738_415_616,  # meta-llama/Llama-2-7b
    "llama2_70b_torchrun.sh": 68_976_648_192,  # meta-llama/Llama-2-70b
    "ds_llama_7b_pipeline.sh": 6_738_415_616,
    "patch_style_13b.sh": 13_015_864_320,  # meta-llama/Llama-2-13b
    "llama3_70b_slurm.sh": 70_553_706_496,  # meta-llama/Meta-Llama-3-70B
    "bloom_176b.slurm": 176_247_271_424,  # bigscience/bloom
    "gpt3_175b_srun.sh": 174.6e9,  # arXiv:2104.04473, Table 2
    "weak_scaling_1t.sh": 1008.0e9,  # arXiv:2104.04473, Table 1
    "mt_nlg_530b_interleaved.sh": 529.6e9,  # arXiv:2104.04473, Table 1
}


def test_every_script_of_the_folder_has_its_expected_job():
    assert sorted(path.name for path in SCRIPTS.iterdir()) == sorted(EXPECTED)
    assert len(EXPECTED) >= 20


@EVERY_SCRIPT
def test_the_plan_of_a_script_is_that_of_its_flags(name):
    document = script(name)

    assert Plan(**document.data["plan"]) == EXPECTED[name].as_plan()
    assert ranks_of(document) == EXPECTED[name].ranks


@EVERY_SCRIPT
def test_the_shape_of_a_script_is_that_of_its_flags(name):
    expected = EXPECTED[name]

    document = script(name)

    model, block = document.data["model"], block_of(document)
    mixer, inner = block["mixer"], block["feed_forward"]
    assert (block["count"], model["hidden"], inner["ffn_hidden"], mixer["heads"]) == expected.shape
    assert mixer.get("kv_heads") == expected.kv_heads
    assert model["vocabulary"] == expected.vocabulary
    assert document.data["batch"] == {"sequence_length": expected.sequence_length}


@EVERY_SCRIPT
def test_positions_dropout_biases_and_ties_of_a_script_are_those_of_its_flags(name):
    expected = EXPECTED[name]

    document = script(name)

    model, mixer = document.data["model"], block_of(document)["mixer"]
    positions = (
        f"rope {mixer['rotary_fraction']}" if mixer["rotary_fraction"] else f"{model['learned_positions']}"
    )
    assert ("alibi" if mixer.get("alibi") else positions) == expected.positions
    assert {mixer["dropout"], block_of(document)["dropout"], model["embedding_dropout"]} == {
        expected.dropout
    }
    assert {mixer["out_bias"], block_of(document)["feed_forward"]["bias"]} == {expected.bias}
    assert model["tied_embeddings"] == expected.tied


@EVERY_SCRIPT
def test_the_stack_of_a_script_is_a_catalogue_entry_with_what_its_flags_switch(name):
    expected = EXPECTED[name]

    stack = script(name).data["stack"]

    assert stack == ({"base": expected.stack} | expected.changes if expected.changes else expected.stack)
    assert expected.stack in catalog.names("stacks")


@all_cases("name", PREDICTED)
def test_a_script_with_a_cluster_gives_a_prediction(name):
    report = predict(job_on(script(name)))

    assert 0 < report.step_time_low_s < report.step_time_s < report.step_time_high_s


def test_what_rules_refuse_is_told_on_the_line_of_the_flag():
    with pytest.raises(SpecError) as told:
        job_on(script("llama3_8b_fp8.sh"))

    places = {problem.field: problem.where for problem in told.value.problems}
    assert places["plan.precision"] == "llama3_8b_fp8.sh:44"


@all_cases("name", PARAMETERS)
def test_a_script_describes_a_model_with_the_published_number_of_parameters(name):
    model = job_on(script(name)).model

    published = PARAMETERS[name]
    rounding = 5e-4 if isinstance(published, float) else 0
    assert model.parameters() == pytest.approx(published, rel=rounding, abs=0)


@pytest.mark.parametrize(
    ("name", "model"),
    [("weak_scaling_1t.sh", "megatron-1t"), ("mt_nlg_530b_interleaved.sh", "megatron-530b")],
)
def test_a_script_of_a_catalogued_model_describes_that_model(name, model):
    described = job_on(script(name)).model
    known = catalog.model(model)

    assert described.blocks == known.blocks
    own = ("hidden", "vocabulary", "learned_positions", "tied_embeddings", "embedding_dropout")
    assert [getattr(described, key) for key in own] == [getattr(known, key) for key in own]


@all_cases(
    ("name", "measured_s"),
    [
        ("mt_nlg_530b_interleaved.sh", 37.83),  # arXiv:2205.05198, Table 5
        ("weak_scaling_1t.sh", 102.6),  # arXiv:2104.04473, Table 1: 163 TFLOP/s by equation 3
        ("gpt3_175b_srun.sh", 31.5),  # the same, section 5.1: 140 TFLOP/s on 1024 devices, batch 1536
        ("bloom_176b.slurm", 104.5),  # model card of bigscience/bloom: 150 TFLOP/s, by the same equation
    ],
)
def test_a_script_of_a_published_run_predicts_its_step(name, measured_s):
    report = predict(job_on(script(name)))

    assert report.step_time_s == pytest.approx(measured_s, rel=0.1)


def test_the_lines_of_a_document_are_those_of_the_values():
    document = document_of()

    lines = {path: line for path, line in document.lines.items() if len(path) > 1}
    assert lines["model", "blocks", 0, "count"] == 2
    assert lines["model", "hidden"] == 3
    assert lines["batch", "sequence_length"] == 5
    assert lines["plan", "micro_batch"] == 7
    assert document.where(("plan", "data_parallel")) == "run.sh:1"


@all_cases(
    ("flags", "size"),
    [("", 4096), ("--swiglu", 2688), ("--swiglu --ffn-hidden-size 2816", 2816), ("--squared-relu", 4096)],
)
def test_the_inner_width_has_megatrons_default(flags, size):
    """Of a gated MLP int(4 h 2/3 / 64) 64: 2730.7 rounded down to a multiple of 64."""
    assert block_of(document_of(flags))["feed_forward"]["ffn_hidden"] == size


@all_cases(
    ("flags", "activation"),
    [
        ("", "gelu"),
        ("--swiglu", "swiglu"),
        ("--squared-relu", "relu2"),
        ("--quick-geglu", "geglu"),
        ("--glu-activation geglu", "geglu"),
    ],
)
def test_the_activation_is_that_of_its_flag(flags, activation):
    assert block_of(document_of(flags))["feed_forward"]["activation"] == activation


@all_cases(
    ("flags", "vocabulary", "multiple"),
    [
        ("--vocab-size 1000", 1000, 128),
        ("--vocab-size 1000 --tokenizer-type NullTokenizer", 1001, 128),
        ("--padded-vocab-size 1024", 1024, 1),
        ("--vocab-size 1000 --make-vocab-size-divisible-by 8", 1000, 8),
        ("--tokenizer-type Llama2Tokenizer", 32000, 128),
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-8B", 128256, 128),
        ("--patch-tokenizer-type LLama3Tokenizer --extra-vocab-size 256", 128256, 128),
        ("--patch-tokenizer-type Qwen2Tokenizer --extra-vocab-size 293", 151936, 128),
        ("", 50257, 128),
    ],
)
def test_the_vocabulary_is_given_or_follows_from_the_tokenizer(flags, vocabulary, multiple):
    model = document_of(flags, vocab_size=None).data["model"]

    assert (model["vocabulary"], model["vocabulary_multiple"]) == (vocabulary, multiple)


def test_a_vocabulary_that_cannot_be_known_is_missed():
    text = script_of("--tokenizer-type HuggingFaceTokenizer --tokenizer-model mine", vocab_size=None)

    (problem,) = faults_of(text)

    assert (problem.field, problem.fault) == ("--vocab-size", "is missing")
    assert "HuggingFaceTokenizer mine" in problem.because


def test_a_tokenizer_named_after_a_model_of_the_catalogue_has_its_vocabulary():
    for path in ("EleutherAI/gpt-neox-20b", "/data/Qwen2.5-7B/tokenizer.json"):
        flags = f"--tokenizer-type HuggingFaceTokenizer --tokenizer-model {path}"

        vocabulary = document_of(flags, vocab_size=None).data["model"]["vocabulary"]

        assert vocabulary == catalog.model("gpt-neox-20b" if "neox" in path else "qwen2.5-7b").vocabulary


OTHER_PROGRAMS = {
    "pretrain_bert.py": "encoder", "/workspace/megatron-lm/pretrain_bart.py": "decoder",
    "pretrain_vision_classify.py": "vision", "pretrain_vision_dino.py": "vision",
    "pretrain_vision_inpaint.py": "vision", "pretrain_vit.py": "vision", "pretrain_ict.py": "retrieval",
    "pretrain_retro.py": "retrieval", "pretrain_mamba.py": "state-space", "pretrain_vlm.py": "vision",
}  # fmt: skip


def test_a_program_that_trains_another_model_is_refused_by_its_name():
    for program, what in OTHER_PROGRAMS.items():
        (problem,) = faults_of(script_of(launcher=f"torchrun --nproc_per_node 8 {program}"))

        assert (problem.field, problem.value) == ("training program", program)
        assert what in problem.because, program
        assert "pretrain_gpt.py" in problem.fix


def test_programs_of_decoders_are_read_whatever_their_name():
    for program in ("pretrain_gpt.py", "pretrain_llama.py", "pretrain_gpt2.py", "train.py"):
        assert faults_of(script_of(launcher=f"torchrun --nproc_per_node 8 {program}")) == (), program


@all_cases(
    ("flags", "rows", "rotary_fraction"),
    [
        ("", 1024, 0.0),
        ("--position-embedding-type rope", 0, 1.0),
        ("--use-rotary-position-embeddings --rotary-percent 0.25", 0, 0.25),
        ("--position-embedding-type none", 0, 0.0),
        ("--no-position-embedding", 0, 0.0),
        ("--max-position-embeddings 4096", 4096, 0.0),
    ],
)
def test_positions_are_learned_unless_a_flag_says_otherwise(flags, rows, rotary_fraction):
    document = document_of(flags)

    assert document.data["model"]["learned_positions"] == rows
    assert block_of(document)["mixer"]["rotary_fraction"] == rotary_fraction


@pytest.mark.parametrize(
    ("flags", "biases"),
    [
        ("", (True, True, True)),
        ("--disable-bias-linear", (False, False, False)),
        ("--disable-bias-linear --add-qkv-bias", (True, False, False)),
    ],
)
def test_biases_are_there_unless_they_are_disabled(flags, biases):
    block = block_of(document_of(flags))

    assert (block["mixer"]["qkv_bias"], block["mixer"]["out_bias"], block["feed_forward"]["bias"]) == biases


def test_query_groups_count_only_with_group_query_attention():
    alone = document_of("--num-query-groups 4")
    together = document_of("--group-query-attention --num-query-groups 4")

    assert "kv_heads" not in block_of(alone)["mixer"]
    assert any("--num-query-groups has no effect" in text for text in alone.data["assumptions"])
    assert block_of(together)["mixer"]["kv_heads"] == 4


@all_cases(
    ("flags", "recompute"),
    [
        ("", "none"),
        ("--recompute-activations", "selective"),
        ("--recompute-granularity selective", "selective"),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "full"),
        ("--checkpoint-activations", "full"),
        ("--activations-checkpoint-method uniform", "full"),
        ("--checkpoint-granularity full --checkpoint-method block", "full"),
    ],
)
def test_recompute_has_been_spelt_in_several_ways(flags, recompute):
    assert Plan(**document_of(flags).data["plan"]).recompute == recompute


@all_cases(
    ("flags", "optimizer"),
    [
        ("", "adamw"),
        ("--optimizer adam", "adamw"),
        ("--optimizer sgd", "sgd_momentum"),
        ("--optimizer lion", "lion"),
        ("--optimizer sgd --sgd-momentum 0.0", "sgd"),
    ],
)
def test_the_optimizer_is_read(flags, optimizer):
    assert Plan(**document_of(flags).data["plan"]).optimizer == optimizer


def test_an_optimizer_that_is_not_built_is_counted_as_adam_aloud():
    document = document_of("--optimizer sophia")

    assert Plan(**document.data["plan"]).optimizer == "adamw"
    assert any("instead of sophia" in text for text in document.data["assumptions"])


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        (
            "--exp-avg-dtype bf16 --exp-avg-sq-dtype fp8",
            {"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "fp8"},
        ),
        ("--main-grads-dtype bf16", {"fp32_gradients": False}),
        ("", {}),
    ],
)
def test_a_precision_aware_optimizer_keeps_each_state_in_its_type(flags, kept):
    document = document_of(f"--use-precision-aware-optimizer --use-mcore-models {flags}")

    # `store_param_remainders`: what bf16 leaves out of an fp32 weight are 16 bits
    assert document.data["stack"]["optimizer"] == kept | {"main_parameter_bytes": "2 B"}


def test_types_of_states_mean_nothing_without_the_precision_aware_optimizer():
    document = document_of("--exp-avg-dtype bf16 --use-mcore-models")

    assert "optimizer" not in dict(
        document.data["stack"] if isinstance(document.data["stack"], dict) else {}
    )
    assert any("--exp-avg-dtype has no effect" in text for text in document.data["assumptions"])


@all_cases(
    ("flags", "word"),
    [
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 3",
            "full:uniform:3",
        ),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 2", "full:block:2"),
        ("--activations-checkpoint-method block", "full:block:1"),  # its number's default was 1
        ("--recompute-activations --recompute-modules core_attn", "selective"),
        ("--recompute-granularity selective --recompute-modules layernorm mlp", "selective:layernorm,mlp"),
    ],
)
def test_method_layers_and_modules_of_recompute_are_read(flags, word):
    plan = Plan(**document_of(flags).data["plan"])

    assert f" recompute={word} " in plan.short()


@all_cases(
    ("flags", "plan"),
    [
        ("--tensor-model-parallel-size 2 --sequence-parallel", "dp=4 tp=2 mbs=2 gbs=16 sp"),
        ("--sequence-parallel", "dp=8 mbs=2 gbs=16"),
        (
            "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
            "dp=2 pp=4 vpp=3 mbs=2 gbs=16",
        ),
        (
            "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2",
            "dp=2 pp=4 vpp=2 mbs=2 gbs=16",
        ),
        (  # 24 layers: 5 and 3 at the ends, 8 on each of the others
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5"
            " --decoder-last-pipeline-num-layers 3",
            "dp=2 pp=4 mbs=2 gbs=16 stage_layers=5,8,8,3",
        ),
        (  # (24 - 4) / 2 on the last stage; each stage in two equal chunks
            "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 4"
            " --num-virtual-stages-per-pipeline-rank 2",
            "dp=4 pp=2 vpp=2 mbs=2 gbs=16 stage_layers=2,10,2,10",
        ),
        (  # 26 places for 24 layers, embedding and loss
            "--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split"
            " --account-for-loss-in-pipeline-split",
            "dp=4 pp=2 mbs=2 gbs=16 stage_layers=12,12",
        ),
        (
            "--pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split"
            " --account-for-loss-in-pipeline-split --num-layers 30",
            "dp=2 pp=4 mbs=2 gbs=16 stage_layers=7,8,8,7",
        ),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*5|t*9|(tt|)*3t*4,L'",
            "dp=4 pp=2 vpp=3 mbs=2 gbs=16 stage_layers=5,9,2,2,2,4",
        ),
        (
            "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
            "dp=8 mbs=2 gbs=16 zero=1",
        ),
        ("--use-torch-fsdp2", "dp=8 mbs=2 gbs=16 zero=3"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "dp=8 mbs=2 gbs=16 zero=2"),
        ("--deepspeed --zero-stage 2", "dp=8 mbs=2 gbs=16 zero=2"),
        ("--zero-stage 2", "dp=8 mbs=2 gbs=16"),
        ("--ds-sequence-parallel-size 2", "dp=4 cp=2 mbs=2 gbs=16 context_exchange=all_to_all"),
        ("--use-tp-pp-dp-mapping", "dp=8 mbs=2 gbs=16 rank_order=tp-cp-pp-dp"),
        (f"{ON_HOST}", "dp=8 mbs=2 gbs=16 offload=optimizer:host"),
        (
            f"{ON_HOST} --optimizer-offload-fraction 0.3 --use-distributed-optimizer",
            "dp=8 mbs=2 gbs=16 zero=1 offload=optimizer:host:0.3",
        ),
        (f"{ON_HOST} --optimizer-offload-fraction 0.0", "dp=8 mbs=2 gbs=16"),
        ("--cpu-offloading-num-layers 18", "dp=8 mbs=2 gbs=16 offload=activations:host:0.75"),
        (
            "--cpu-offloading --cpu-offloading-num-layers 12",
            "dp=8 mbs=2 gbs=16 offload=activations:host:0.5",
        ),
        ("--cpu-offloading", "dp=8 mbs=2 gbs=16"),
        (
            f"{ON_HOST} --cpu-offloading-num-layers 6",
            "dp=8 mbs=2 gbs=16 offload=optimizer:host,activations:host:0.25",
        ),
        (
            "--deepspeed --zero-stage 2 --cpu-optimizer --checkpoint-activations --checkpoint-in-cpu",
            "dp=8 mbs=2 gbs=16 zero=2 recompute=full offload=optimizer:host,activations:host",
        ),
        ("--checkpoint-in-cpu", "dp=8 mbs=2 gbs=16"),
        ("--fp8-format hybrid", "dp=8 mbs=2 gbs=16 precision=fp8"),
        ("--fp8-hybrid", "dp=8 mbs=2 gbs=16 precision=fp8"),
        ("--fp8-format e4m3 --fp8-recipe tensorwise", "dp=8 mbs=2 gbs=16 precision=fp8_current"),
        ("--fp8-format e4m3 --fp8-recipe blockwise", "dp=8 mbs=2 gbs=16 precision=fp8_blockwise"),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", "dp=8 mbs=2 gbs=16 precision=mxfp8"),
        ("--fp8-recipe mxfp8", "dp=8 mbs=2 gbs=16"),
        ("--fp4-format e2m1", "dp=8 mbs=2 gbs=16 precision=nvfp4"),
        ("--micro-batch-size 1", "dp=8 mbs=1 gbs=16"),
    ],
)
def test_flags_of_a_plan_become_its_fields(flags, plan):
    assert Plan(**document_of(flags).data["plan"]) == Plan(**plan_words(plan))


@all_cases(
    ("flags", "field"),
    [
        ("--optimizer-cpu-offload", "--optimizer-cpu-offload"),
        (f"{ON_HOST} --optimizer-offload-fraction 1.5", "--optimizer-offload-fraction"),
        ("--cpu-offloading-num-layers 24", "--cpu-offloading-num-layers"),
        ("--cpu-offloading-num-layers 4 --recompute-activations", "--cpu-offloading-num-layers"),
        ("--cpu-offloading-num-layers 4 --pipeline-model-parallel-size 2", "--cpu-offloading-num-layers"),
        ("--fine-grained-activation-offloading", "--fine-grained-activation-offloading"),
        ("--offload-modules core_attn", "--offload-modules"),
    ],
)
def test_offload_that_megatron_or_flopcast_has_not_is_refused_by_its_flag(flags, field):
    assert {problem.field for problem in faults_of(script_of(flags))} == {field}


def test_optimizers_on_the_host_keep_fp32_states():
    plain = stack_of(f"{ON_HOST} --exp-avg-dtype bf16")
    narrow = stack_of(f"{ON_HOST} --main-grads-dtype bf16 --no-pin-cpu-grads")

    assert "optimizer" not in plain
    assert narrow["optimizer"] == {"fp32_gradients": False}
    assert narrow["offload"] == {"gradient_copies": "pageable"}
    beside = stack_of(f"{ON_HOST} --overlap-cpu-optimizer-d2h-h2d")
    assert beside["offload"] == {"gradient_flush": "beside_update"}
    notes = document_of(f"{ON_HOST} --exp-avg-dtype bf16").data["assumptions"]
    assert any("--exp-avg-dtype has no effect with --optimizer-cpu-offload" in note for note in notes)


@pytest.mark.parametrize(
    ("kinds", "exchange"), [("p2p", "ring"), ("a2a a2a", "all_to_all"), ("allgather p2p", "all_gather")]
)
def test_the_exchange_of_context_may_be_given_for_each_layer_and_is_that_of_the_first(kinds, exchange):
    plan = document_of(f"--context-parallel-size 2 --cp-comm-type {kinds}").data["plan"]

    assert plan["context_exchange"] == exchange


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ("p2p p2p", []),
        ("p2p a2a", ["p2p in every layer, including layers for which the script states a2a (run.sh:11)"]),
    ],
)
def test_layers_that_exchange_context_otherwise_than_the_first_are_told(kinds, told):
    assumptions = document_of(f"--context-parallel-size 2 --cp-comm-type {kinds}").data["assumptions"]

    found = [
        text.partition("context parallelism uses ")[2] for text in assumptions if "parallelism uses" in text
    ]
    assert found == told


@all_cases(
    ("flag", "path"),
    [
        ("--glu-activation geglu", ("model", "blocks", 0, "feed_forward", "activation")),
        ("--use-rotary-position-embeddings", ("model", "blocks", 0, "mixer", "rotary_fraction")),
        ("--disable-bias-linear", ("model", "blocks", 0, "mixer", "qkv_bias")),
        ("--normalization RMSNorm", ("model", "blocks", 0, "norm_bias")),
        ("--ds-sequence-parallel-size 2", ("plan", "context_exchange")),
    ],
)
def test_a_value_is_told_by_the_line_of_the_flag_that_set_it(flag, path):
    assert document_of(flag).where(path) == "run.sh:11"


def test_a_step_without_a_global_batch_is_one_micro_batch_of_every_replica():
    document = document_of(global_batch_size=None)

    assert document.data["plan"]["global_batch"] == 16
    assert any(
        "--global-batch-size 16, because Megatron-LM's default" in a for a in document.data["assumptions"]
    )


def test_the_batch_after_its_ramp_up_is_forecast():
    document = document_of("--rampup-batch-size 8 8 1000")

    assert document.data["plan"]["global_batch"] == 16
    assert any("batch size of 16, which is reached" in text for text in document.data["assumptions"])


@all_cases(
    ("flags", "name", "because"),
    [
        ("", "megatron-core", "no flag shows which release of Megatron the script is for"),
        ("--use-flash-attn", "megatron-core", "--use-flash-attn was introduced"),
        ("--checkpoint-activations --swiglu", "megatron-core", "--swiglu was introduced"),
        ("--sequence-parallel --data-impl mmap", "megatron-2022", "--sequence-parallel was introduced"),
        ("--checkpoint-activations", "megatron-2021", "--checkpoint-activations was introduced"),
        ("--deepspeed --zero-stage 1", "gpt-neox-deepspeed", "most similar to Megatron-DeepSpeed"),
        ("--use-legacy-models --use-flash-attn", "megatron-2022", "preceded Megatron-Core"),
    ],
)
def test_the_stack_is_dated_by_the_newest_flag_and_says_why(flags, name, because):
    document = document_of(flags)

    stack = document.data["stack"]
    (reason,) = [text for text in document.data["assumptions"] if text.startswith("stack ")]
    assert (stack["base"] if isinstance(stack, dict) else stack) == name
    assert f"stack {name}" in reason
    assert because in reason


@all_cases(
    ("flags", "changes"),
    [
        ("--use-mcore-models", {}),
        ("--overlap-grad-reduce", {"gradients": {"overlap": True}}),
        ("--use-mcore-models --no-gradient-accumulation-fusion", {"gradients": {"accumulate_passes": 1}}),
        ("--grad-reduce-in-bf16", {"gradients": {"dtype": "bf16"}}),
        ("--use-mcore-models --fp16", {"gradients": {"dtype": "fp16"}}),  # wgrad_gemm_accum_fp16
        ("--sequence-parallel --fp16", {"gradients": {"dtype": "fp16", "accumulate_passes": 1}}),
        ("--use-mcore-models --no-check-for-nan-in-loss-and-grad", {"gradients": {"overflow_checks": 0}}),
        ("--transformer-impl local --use-flash-attn", {}),
        (
            "--fp8-format hybrid --first-last-layers-bf16",
            {"narrow": {"wide_first_blocks": 1, "wide_last_blocks": 1}},
        ),
        (
            "--fp8-format hybrid --first-last-layers-bf16 --num-layers-at-end-in-bf16 4",
            {"narrow": {"wide_first_blocks": 1, "wide_last_blocks": 4}},
        ),
        ("--fp8-format hybrid --fp8-param-gather", {"narrow": {"narrow_parameters": True}}),
        (
            "--fp8-format hybrid --fp8-param-gather --first-last-layers-bf16",
            {"narrow": {"narrow_parameters": True, "wide_first_blocks": 1, "wide_last_blocks": 1}},
        ),
        ("--fp8-format hybrid --fp8-dot-product-attention", {"narrow": {"attention": True}}),
        ("--fp8-format hybrid --fp8-multi-head-attention", {"narrow": {"attention": True}}),
        ("--fp8-format hybrid --fp8-recipe mxfp8 --fp8-output-proj", {"narrow": {"output_layer": True}}),
        ("--fp8-format hybrid --keep-mtp-spec-in-bf16", {"narrow": {"wide_mtp": True}}),
        ("--fp8-format hybrid --disable-parameter-transpose-cache", {"narrow": {"weight_caching": False}}),
        (
            "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te",
            {"fused_loss": "all", "memory": {"logit_bytes": "2 B"}},
        ),
        ("--cross-entropy-loss-fusion", {}),  # native: several compiled functions
        ("--cross-entropy-fusion-impl te", {}),
        ("--no-rope-fusion", {"rewrites": [*catalog.stack("megatron-core").rewrites, "unfused_rope"]}),
        (
            "--use-legacy-models --use-flash-attn",
            {"attention_kernel": "flash", "gradients": {"overflow_checks": 0}},
        ),
    ],
)
def test_switches_become_changes_of_the_stack(flags, changes):
    stack = stack_of(flags, **{"bf16": None} if "--fp16" in flags else {})

    assert {key: value for key, value in stack.items() if key != "base"} == changes


def test_a_bucket_of_a_given_size_does_not_grow_with_the_replicas():
    """distributed_data_parallel.py: only the default of bucket_size depends on the number of ranks."""
    changes = stack_of("--overlap-grad-reduce --ddp-bucket-size 5000000")["gradients"]

    gradients = catalog.stack("megatron-core").gradients.model_copy(update=changes)
    assert gradients.smallest_bucket(512) == 5_000_000


@all_cases(
    ("launcher", "ranks"),
    [
        ("python pretrain_gpt.py", 1),
        ("WORLD_SIZE=4 python pretrain_gpt.py", 4),
        ("torchrun --standalone --nproc-per-node=4 pretrain_gpt.py", 4),
        ("torchrun --nnodes 2:4 --nproc_per_node 8 pretrain_gpt.py", 16),
        ("python -u -m torch.distributed.launch --nproc_per_node=8 --nnodes=2 pretrain_gpt.py", 16),
        ("deepspeed --num_nodes=2 --num_gpus=8 pretrain_gpt.py", 16),
        ("deepspeed --include localhost:0,1,2,3 pretrain_gpt.py", 4),
        ("accelerate launch --num_processes 16 pretrain_gpt.py", 16),
        ("mpirun -np 32 -x PATH python pretrain_gpt.py", 32),
        ("mpiexec -n 8 -ppn 4 python pretrain_gpt.py", 8),
        ("srun -N 2 --ntasks-per-node=4 python pretrain_gpt.py", 8),
        ("srun --ntasks=16 python pretrain_gpt.py", 16),
        ("srun -N 2 torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py", 16),
        ("uv run torchrun --nproc_per_node 2 pretrain_gpt.py", 2),
    ],
)
def test_each_launcher_starts_the_ranks_that_it_says(launcher, ranks):
    document = launch_document(script_of(launcher=launcher, global_batch_size="64"), "run.sh", None)

    assert ranks_of(document) == ranks


def test_a_program_that_a_variable_starts_is_read_from_its_first_flag():
    text = script_of(launcher="$PROGRAM")

    document = launch_document(text, "run.sh", 8)

    assert block_of(document)["count"] == 24
    assert document.data["plan"]["data_parallel"] == 8


def test_tasks_come_from_slurm_where_srun_does_not_say():
    text = "#SBATCH --nodes=4\n#SBATCH --gpus-per-node=4\n"

    document = launch_document(text + script_of(launcher="srun python pretrain_gpt.py"), "run.sh", None)

    assert ranks_of(document) == 16


def test_devices_that_are_asked_for_win_over_those_of_the_script():
    document = document_of(devices=4)

    assert document.data["plan"]["data_parallel"] == 4
    assert "4 devices as requested, instead of 8 ranks in the script" in document.data["assumptions"]


def test_of_several_training_commands_the_fullest_is_read_and_the_others_are_told():
    text = f"{script_of()}\n{script_of('--swiglu', num_layers='12')}"

    document = launch_document(text, "run.sh", None)

    assert block_of(document)["count"] == 12
    assert any("ignores those in line 1" in text for text in document.data["assumptions"])


def test_a_flag_without_effect_on_time_is_silent():
    usual = document_of().data["assumptions"]
    many = document_of("--lr 1e-4 --save out --log-interval 10 --wandb-project p --seed 3 --split 98,2,0")

    assert many.data["assumptions"] == usual


def test_a_flag_that_is_not_modelled_yet_says_what_it_would_change():
    assumptions = document_of("--use-sharp").data["assumptions"]

    assert any(
        a.startswith("--use-sharp is not supported yet: flopcast predicts reductions") for a in assumptions
    )


def test_a_script_may_hide_messages_of_tensor_parallelism_under_products():
    assert document_of("--tp-comm-overlap").data["stack"]["tensor_overlap"] == "chunks"


@all_cases(
    "flag",
    [
        "--ddp-num-buckets 4",
        "--ddp-reduce-scatter-with-fp32-accumulation",
        "--zero-reduce-bucket-size 50000000",
        "--zero-allgather-bucket-size 50000000",
        "--fp16-lm-cross-entropy",
        "--disable-bf16-reduced-precision-matmul",
        "--split-transformers",
        "--scattered-embeddings",
    ],
)
def test_a_flag_that_changes_a_kernel_a_message_or_what_is_kept_is_never_silent(flag):
    name = flag.split()[0]

    (said,) = [text for text in document_of(flag).data["assumptions"] if text.startswith(name)]
    assert said.startswith(f"{name} is not supported yet: ")


def test_a_loss_in_several_compiled_functions_is_told():
    said = (
        "--cross-entropy-loss-fusion is not supported yet: flopcast predicts the loss as separate kernels"
    )
    for flags, told in (("", True), (" --cross-entropy-fusion-impl te", False)):
        assumptions = document_of(f"--cross-entropy-loss-fusion{flags}").data["assumptions"]
        assert any(text.startswith(said) for text in assumptions) is told, flags


def test_an_unknown_flag_is_told_with_its_line_and_the_nearest_known():
    assumptions = document_of("--no-bias-silu-fusion 3").data["assumptions"]

    (unknown,) = [text for text in assumptions if "is not known" in text]
    assert unknown.startswith("--no-bias-silu-fusion is not known and is ignored; did you mean --no-bias-")
    assert unknown.endswith("(run.sh:11)")


def test_options_that_the_script_never_sets_are_told():
    assumptions = document_of("--swiglu $EXTRA_ARGS").data["assumptions"]

    assert (
        "the variable $EXTRA_ARGS (run.sh:11) is not set, so flags in its value are ignored" in assumptions
    )


def test_dropout_of_megatron_is_said_aloud_where_it_is_not_given():
    given = document_of("--attention-dropout 0 --hidden-dropout 0")
    usual = document_of()

    assert not any("dropout" in text for text in given.data["assumptions"])
    assert sum("dropout 0.1, Megatron-LM's default" in text for text in usual.data["assumptions"]) == 2


def test_every_flag_has_one_meaning():
    groups = [MODELLED_FLAGS, SILENT, frozenset(REFUSED), frozenset(NOT_MODELLED)]

    assert sum(len(group) for group in groups) == len(KNOWN)
    assert all(flag.startswith("--") for flag in KNOWN)
    assert not any(
        is_silent(flag) for flag in MODELLED_FLAGS | frozenset(REFUSED) | frozenset(NOT_MODELLED)
    )


@all_cases("flag", ["--lr-warmup-iters", "--moe-token-drop-policy", "--inference-max-requests", "--seed"])
def test_families_of_flags_are_known_by_their_beginning(flag):
    assert is_known(flag)
    assert is_silent(flag)


def test_flags_that_date_a_script_are_flags_of_one_release_each():
    flags = [flag for _, named in SIGNS for flag in named.split()]

    assert all(is_known(flag) for flag in flags)
    assert len(flags) == len(set(flags))
    assert {name for name, _ in SIGNS} <= set(catalog.names("stacks"))


def test_the_stack_of_megatron_core_hides_nothing_unless_it_is_told_to():
    stack = catalog.stack("megatron-core")

    assert stack.attention_kernel == "flash"
    assert not stack.gradients.overlap
    assert stack.gradients.dtype == "fp32"
    assert stack.derate.ratio == 1.0


def test_overlapped_reductions_make_no_step_longer():
    usual = predict(job_on(document_of("--use-mcore-models", 64, global_batch_size="128")))
    hidden = predict(
        job_on(document_of("--use-mcore-models --overlap-grad-reduce", 64, global_batch_size="128"))
    )

    assert hidden.step_time_s <= usual.step_time_s
