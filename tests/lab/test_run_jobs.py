"""Jobs of published runs: what rows say, what software does where they are silent, what is missing."""

import re
from functools import partial

import pytest
from all_cases import all_cases
from run_tables import row_of, run_in, written

from flopcast.api import predict
from flopcast.errors import SpecError
from flopcast.lab.published.job import chunk_layers, reproduce
from flopcast.lab.published.known_names import clusters, model_of, models, software
from flopcast.lab.published.model import packed_documents, trains_mtp
from flopcast.lab.published.table import read_table
from flopcast.library import catalog

BRIDGE = {"framework": "Megatron-Bridge/Megatron-Core", "software_version": "NeMo 26.04", "year": "2026"}
LLAMA = {
    "model_name": "LLAMA3_70B",
    "layers": "80",
    "hidden": "8192",
    "ffn_hidden": "28672",
    "kv_heads": "8",
    "vocab": "128256",
    "gated_mlp": "True",
    "recompute": "",
}
DEEPSEEK = {
    "model_name": "DeepSeekV3",
    "layers": "61",
    "hidden": "7168",
    "heads": "128",
    "kv_heads": "",
    "vocab": "129280",
    "n_experts": "256",
    "gated_mlp": "True",
    "recompute": "",
    "gpu_model": "GB200",
    "num_gpus": "256",
    "tp": "1",
    "pp": "4",
    "vpp": "4",
    "dp": "64",
    "ep": "64",
    "micro_batch": "1",
    "global_batch": "2048",
    "seq_len": "4096",
}


@pytest.fixture
def run_of(tmp_path):
    return partial(run_in, tmp_path)


@pytest.fixture
def job_of_row(run_of):
    return lambda **changes: reproduce(run_of(**changes))


def reasons(run):
    with pytest.raises(SpecError) as told:
        reproduce(run)
    return {problem.field for problem in told.value.problems}


def test_a_row_becomes_the_job_that_it_describes(job_of_row):
    job = job_of_row()

    assert job.plan.short() == "tp=4 pp=2 mbs=4 gbs=16 recompute=full precision=fp16"
    assert (job.stack.name, job.cluster.num_devices) == ("megatron-2022", 8)
    assert job.model.parameters() == pytest.approx(22e9, rel=0.02)  # arXiv:2205.05198, table 3


def test_what_a_row_does_not_say_is_an_assumption_with_its_reason(job_of_row):
    silent, loud = job_of_row(precision=""), job_of_row(precision="fp16")

    assert any(told.startswith("precision fp16:") for told in silent.assumptions)
    assert not any(told.startswith("precision") for told in loud.assumptions)


def test_a_recompute_that_is_said_wins_over_the_recipe(job_of_row):
    silent, said = (
        job_of_row(**DEEPSEEK, **BRIDGE),
        job_of_row(**(DEEPSEEK | BRIDGE | {"recompute": "none"})),
    )

    assert silent.plan.recompute_modules == ("mla_up_proj",)
    assert said.plan.recompute == "none"


def test_replicas_that_are_not_said_are_what_other_degrees_leave(job_of_row):
    assert job_of_row(dp="", num_gpus="32", global_batch="64").plan.data_parallel == 4


@pytest.mark.parametrize(
    ("network", "gigabytes_per_s"),
    [("4x 100 Gb/s RoCE per node", 6.25), ("800 Gb/s per node (from the repo)", 12.5), ("", 25.0)],
)
def test_a_printed_network_is_shared_by_the_devices_of_a_node(job_of_row, network, gigabytes_per_s):
    job = job_of_row(inter_node_link=network, num_gpus="32", dp="4", global_batch="64")

    assert job.cluster.tiers[-1].bytes_per_s == gigabytes_per_s * 1e9


def test_fewer_devices_than_a_node_has_are_one_smaller_node(job_of_row):
    cluster = job_of_row(num_gpus="2", tp="2", pp="1").cluster

    assert (cluster.num_devices, cluster.node.devices) == (2, 2)


@pytest.mark.parametrize(
    ("printed", "zero", "shard"),
    [
        ("FULL_SHARD", 3, 0),
        ("FSDP2 size 1", 0, 0),
        ("FSDP2 size 8", 3, 8),
        ("FSDP2 size 64", 3, 0),
        ("HSDP", 3, 8),
    ],
)
def test_words_for_sharded_parameters_are_one_field_and_its_group(job_of_row, printed, zero, shard):
    row = LLAMA | {"framework": "PyTorch FSDP", "tp": "1", "pp": "1", "dp": "64", "num_gpus": "64"}

    plan = job_of_row(**row, fsdp=printed, global_batch="256").plan

    assert (plan.zero, plan.data_shard) == (zero, shard)


def test_blocks_of_deepseek_v3_are_dealt_out_as_its_recipes_say():
    """Layouts of deepseek_workload_base_configs.py: "Et*4|(t*4|)*14tmL" and "Et|(tt|)*30mL"."""
    assert chunk_layers(61, 16) == (*[4] * 15, 1)
    assert chunk_layers(61, 32) == (1, *[2] * 30, 0)


@all_cases(("blocks", "chunks"), [(126, 64), (126, 8), (94, 32), (61, 8), (61, 3), (7, 4)])
def test_every_block_is_dealt_to_one_chunk(blocks, chunks):
    layers = chunk_layers(blocks, chunks)

    assert (len(layers), sum(layers)) == (chunks, blocks)
    assert min(layers[1:-1]) > 0


def test_layers_beyond_the_first_kinds_are_cut_short(job_of_row):
    """SimuMax's DeepSeek-V2 of 4 layers: its one dense layer, and 3 of experts."""
    row = {
        "model_name": "deepseek-v2 truncated to 4 layers",
        "layers": "4",
        "hidden": "5120",
        "heads": "128",
    }
    row |= {
        "gated_mlp": "True",
        "vocab": "102400",
        "n_experts": "160",
        "tp": "1",
        "pp": "1",
        "num_gpus": "8",
    }
    row |= {
        "dp": "8",
        "ep": "8",
        "gpu_model": "B200",
        "seq_len": "4096",
        "recompute": "none",
        "global_batch": "32",
    }

    model = job_of_row(**row, framework="Megatron-LM core @23e00ed0", precision="bf16").model

    assert [block.count for block in model.blocks] == [1, 3]


def test_a_row_says_how_many_of_its_layers_are_dense(job_of_row):
    row = DEEPSEEK | {
        "layers": "16",
        "pp": "4",
        "vpp": "1",
        "framework": "Megatron-LM",
        "precision": "bf16",
    }

    for dense in ("3", "1"):
        job = job_of_row(**row, n_dense_layers=dense)

        assert [block.count for block in job.model.blocks] == [int(dense), 16 - int(dense)]
        assert job.model.mtp == 0
        assert any("mtp 0" in told for told in job.assumptions)
    assert job_of_row(**row, notes="with MTP").model.mtp == 1


def test_experts_without_a_gate_are_read_and_experts_of_a_dense_model_are_refused(job_of_row, run_of):
    experts = {"n_experts": "8", "top_k": "2", "moe_ffn_hidden": "1024", "ep": "1"}
    experts |= {"tp": "1", "dp": "4"}
    model = job_of_row(model_name="some model of ours", **experts).model

    assert model.family == "experts"
    assert model.blocks[0].feed_forward.activation == "gelu"
    assert reasons(run_of(model_name="nanochat with experts", **experts)) == {"n_experts"}


def test_a_pattern_of_blocks_is_cut_where_the_row_has_fewer_layers(job_of_row):
    """GPT-OSS alternates a window and full attention: 12 layers are 6 of each."""
    row = DEEPSEEK | {"model_name": "GPT-OSS 20B", "layers": "12", "hidden": "2880", "heads": "64"}
    row |= {"vocab": "201088", "n_experts": "32", "pp": "1", "vpp": "", "dp": "256", "ep": "8"}

    job = job_of_row(**row, framework="Megatron-LM", precision="bf16")

    assert [block.count for block in job.model.blocks] == [6, 6]


def test_columns_that_decide_the_answer_change_the_job(job_of_row, run_of):
    """Schedule, kernel of attention, site, and a network in words; an unknown schedule is refused."""
    job = job_of_row(
        pp_schedule="ZB-1p",
        recompute="none",
        flash_attention="True",
        inter_node_link="4x Omni-Path links per node",
        site="",
        num_gpus="16",
        dp="2",
        global_batch="32",
    )

    assert job.plan.schedule == "zb_h1"
    assert job_of_row().stack.attention_kernel == "materialised"
    assert job.stack.attention_kernel == "flash"
    assert job.cluster.tiers[-1].bytes_per_s == pytest.approx(4 * 12.5e9 / 8)
    assert reasons(run_of(pp_schedule="chimera")) == {"pp_schedule"}


def test_a_row_names_a_site_as_a_job_does(job_of_row, run_of):
    name = next(iter(catalog.names("sites")))

    assert job_of_row(site=name).site.name == name
    assert "site" in str(reasons(run_of(site="nowhere-at-all")))


def test_a_cell_that_nothing_uses_is_an_assumption_of_the_job(tmp_path):
    row = row_of() | {"weather": "rain"}

    job = reproduce(read_table(written(tmp_path, [row])).runs[0])

    assert "flopcast does not use the column weather = rain" in job.assumptions


def test_the_printed_flop_of_a_token_tell_whether_a_second_token_is_predicted(run_of):
    """DeepSeek-V3, causal: 249.7 GFLOP a token, and 260 with its module (arXiv:2412.19437: 37 B active)."""
    model = catalog.model("deepseek-v3")
    rates = {"with": "260", "without": "249.7", "neither": "180"}

    found = {
        name: trains_mtp(
            run_of(**DEEPSEEK, tflops_per_gpu=flop, tokens_per_s_per_gpu="1000", step_time_s=""), model
        )
        for name, flop in rates.items()
    }

    assert found == {"with": True, "without": False, "neither": None}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kind": "inference"}, "kind"),
        ({"gpu_model": "TPUv3"}, "gpu_model"),
        ({"seq_len": ""}, "sequence_length"),
        ({"micro_batch": ""}, "micro_batch"),
        ({"num_gpus": ""}, "num_gpus"),
        ({"model_name": "Nemotron_3_Nano", "layers": "", "hidden": ""}, "model"),
        (LLAMA | {"hidden": "4096"}, "model"),
        ({"offload": "CPU offload"}, "plan.offload"),
        ({"num_gpus": "24"}, "plan.data_parallel"),
        ({"notes": "task SFT; packed SQuAD sequences"}, "batch.packed"),
    ],
)
def test_a_row_that_cannot_be_expressed_says_what_is_missing(run_of, changes, field):
    assert field in reasons(run_of(**changes))


def test_everything_that_is_in_the_way_is_told_at_once(run_of):
    run = run_of(framework="MaxText", gpu_model="TPUv3", global_batch="", seq_len="")

    assert reasons(run) == {"gpu_model", "global_batch", "sequence_length"}


def test_faults_of_a_rule_stand_at_the_row(run_of):
    with pytest.raises(SpecError) as told:
        reproduce(run_of(tp="5", num_gpus="10"))

    assert all(problem.where.endswith("runs.csv:2") for problem in told.value.problems)


def test_software_that_nobody_names_is_the_generic_stack_with_a_wider_doubt(job_of_row):
    unknown, known = job_of_row(framework="in-house").stack, job_of_row().stack

    assert unknown.name == "generic"
    assert unknown.derate.log_sigma_factor >= 2 * known.derate.log_sigma_factor


def test_years_choose_the_era_of_one_framework(job_of_row):
    eras = [job_of_row(year=year).stack.name for year in ("2021", "2022", "2024")]

    assert eras == ["megatron-2021", "megatron-2022", "megatron-core"]


def test_entries_of_the_tables_name_what_the_catalogue_holds():
    assert {known.cluster for known in clusters()} <= set(catalog.names("clusters"))
    assert {known.replaces for known in clusters()} - {""} <= set(catalog.names("devices"))
    assert {known.base for known in models() if not known.refused} <= set(catalog.names("models"))
    assert {known.stack for known in software()} <= set(catalog.names("stacks"))


def test_every_default_of_a_software_says_where_it_stands():
    told = [default.because for known in software() for default in known.defaults]

    assert len(told) > 30
    assert all(len(because) >= 10 for because in told)


@all_cases("known", software())
def test_patterns_of_the_table_are_patterns_of_known_facts(known):
    facts = ["model", "device", "devices", "precision", "fsdp", "zero", "tensor", "pipeline", "context"]
    facts += ["expert", "recompute", "framework", "version", "year", "notes"]
    patterns = [(name, text) for default in known.defaults for name, text in default.where.items()]

    assert re.compile(known.software)
    assert {name for name, _ in patterns} <= set(facts)
    assert all(re.compile(text) for _, text in patterns)


@pytest.mark.parametrize(("name", "word"), [("DeepSeekV4 Flash", "attention")])
def test_a_model_of_blocks_that_are_not_built_is_refused_with_their_name(run_of, name, word):
    with pytest.raises(SpecError) as told:
        reproduce(run_of(model_name=name, layers="", hidden="", heads=""))

    assert any(problem.field == "model" and word in problem.because for problem in told.value.problems)


def test_nemotron_340b_is_no_hybrid_though_its_name_begins_alike(job_of_row):
    job = job_of_row(
        **BRIDGE | NEMOTRON, model_name="Nemotron-340B", num_gpus="64", tp="8", pp="8", micro_batch="1"
    )

    assert job.model.hidden == 18432


NEMOTRON = dict.fromkeys(("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab", "recompute"), "")


@pytest.mark.parametrize(("name", "token_gflop"), [("Nemotron-8B", 51.41), ("Nemotron-22B", 130.3)])
def test_the_launchers_sizes_count_the_flop_that_are_printed_for_a_token(job_of_row, name, token_gflop):
    """643 TFLOP/s at 12507 tokens/s and 562 at 4312: tables of NeMo 24.07, full attention."""
    framework = {"framework": "NeMo/Megatron-Core", "software_version": "NeMo 24.07", "year": "2024"}

    model = job_of_row(**framework | NEMOTRON, model_name=name, seq_len="4096").model

    assert 3 * model.forward_flop(4096) / 4096 == pytest.approx(token_gflop * 1e9, rel=1e-3)


def test_shard_grad_op_is_zero_3_whose_parameters_stay_from_forward_to_backward(job_of_row):
    composer = {"framework": "llm-foundry/Composer FSDP", "year": "2023", "recompute": "none"}
    parts = {"tp": "1", "pp": "1", "dp": "8", "zero_stage": "2", "micro_batch": "2"}

    grad = job_of_row(**composer | parts, fsdp="SHARD_GRAD_OP")
    full = job_of_row(**composer | parts | {"zero_stage": "3"}, fsdp="FULL_SHARD")

    assert grad.plan == full.plan
    assert (grad.stack.sharding.gathers, full.stack.sharding.gathers) == ("every_micro_batch", "every_pass")


PAX = {"tp": "1", "pp": "1", "dp": "8", "micro_batch": "2", "recompute": "", "year": "2023"}


@pytest.mark.parametrize(
    ("name", "recompute"),
    [("GPT 126M", "none"), ("GPT 5B", "selective:core_attention,layernorm"), ("GPT 175B", "full")],
)
def test_programs_of_pax_keep_what_their_policy_says(job_of_row, name, recompute):
    job = job_of_row(**PAX, framework="Pax (JAX) bf16", model_name=name)

    assert job.stack.name == "xla"
    said = re.search(r"recompute=(\S+)", job.plan.short())
    assert (said[1] if said else "none") == recompute
    assert job.model.blocks[0].dropout == 0.0


def test_transformer_engine_gives_pax_a_fused_attention(job_of_row):
    kernels = [
        job_of_row(**PAX, framework=f"Pax (JAX) {word}bf16").stack.attention_kernel for word in ("", "TE ")
    ]

    assert kernels == ["materialised", "flash"]


def test_a_core_of_trainium_is_a_rank_and_nothing_of_it_was_measured(job_of_row):
    parts = {"framework": "NxD", "software_version": "Neuron 2.16.0", "year": "2024", "recompute": ""}

    job = job_of_row(**parts, gpu_model="Trainium1 NeuronCore", gpus_per_node="32", num_gpus="32", dp="4")

    report = predict(job)
    assert (job.cluster.num_devices, job.stack.name, job.plan.recompute) == (32, "neuron", "selective")
    assert any("times come from the data sheet" in warning for warning in report.warnings)
    assert report.step_time_high_s / report.step_time_low_s > 2


PACKED_SFT = {  # LLAMA2-7B of NeMo 24.07, task SFT
    "framework": "NeMo/Megatron-Core",
    "software_version": "NeMo 24.07",
    "year": "2024",
    "model_name": "LLAMA2-7B",
    "seq_len": "4096",
    "notes": "task SFT; packed SQuAD sequences",
    "step_time_s": "",
}


def packed(run_of, attention, products=1.0):
    """A row that prints so much of Llama 2 7B's products, and of its whole attention, for a token."""
    linear = 6 * (32 * (4 * 4096**2 + 3 * 4096 * 11008) + 4096 * 32000)
    whole = 12 * 32 * 4096 * 4096
    rate = 1e-12 * 15000 * (products * linear + attention * whole)
    return run_of(**NEMOTRON | PACKED_SFT, tokens_per_s_per_gpu="15000", tflops_per_gpu=f"{rate:.3f}")


@pytest.mark.parametrize(("attention", "count"), [(1.0, 1), (0.5, 2), (0.25, 4), (0.03, 33), (0.0, 64)])
def test_packed_documents_are_as_many_as_leave_the_printed_flop_their_attention(run_of, attention, count):
    documents = packed_documents(packed(run_of, attention), catalog.model("llama-2-7b"))

    assert len(documents) == count
    assert sum(documents) == 4096


def test_packed_documents_are_an_assumption_of_the_job(run_of):
    job = reproduce(packed(run_of, 0.03))

    assert len(job.batch.documents) == 33
    assert (
        "33 documents of 124 tokens: this follows from the FLOP per token that the source prints"
        in job.assumptions
    )


def test_fine_tunes_of_megatron_bridge_train_on_packed_documents_and_pretraining_does_not(job_of_row):
    fine_tuned = job_of_row(**LLAMA, **BRIDGE, seq_len="4096", notes="task SFT").batch
    pretrained = job_of_row(**LLAMA, **BRIDGE, seq_len="4096", notes="task Pre-Training").batch

    assert len(fine_tuned.documents) == 20  # of 200 tokens
    assert sum(fine_tuned.documents) == 4096
    assert not pretrained.documents


@pytest.mark.parametrize(("attention", "products"), [(0.03, 2 / 3), (1.2, 1.0)])
def test_flop_of_other_trainings_say_nothing_of_documents(run_of, attention, products):
    assert reasons(packed(run_of, attention, products)) == {"batch.packed"}


@pytest.mark.parametrize(
    ("framework", "dropout"), [("Megatron-LM", 0.1), ("Pax (JAX) TE bf16", 0.0)], ids=["Megatron-LM", "Pax"]
)
def test_models_of_one_name_are_their_softwares_own(run_of, framework, dropout):
    """GPT 175B of arXiv:2205.05198 was trained with dropout, that of Pax's configurations without."""
    known = model_of(run_of(framework=framework, model_name="GPT 175B", gated_mlp="False"))

    assert known.changes.get("blocks", {"0": {"dropout": 0.1}})["0"]["dropout"] == dropout
