"""Commands with what plans and models can say now: what they print, where, and how they end."""

import json
import sys

import pytest
from command_line import JOB, flopcast
from command_line import PLAN as PLAN_IN_WORDS
from command_line import WORDS as JOB_IN_WORDS

MODEL = {
    "name": "small",
    "hidden": 1024,
    "vocabulary": 32000,
    "blocks": [{"count": 8, "mixer": {"heads": 16}, "feed_forward": {"ffn_hidden": 4096}}],
}
MIXTURE = MODEL | {
    "blocks": [MODEL["blocks"][0] | {"feed_forward": {"num_experts": 8, "top_k": 2, "expert_hidden": 1024}}]
}
PLAN = {"data_parallel": 8, "micro_batch": 1, "global_batch": 16, "precision": "bf16"}


def job(tmp_path, plan=None, model=None, **parts):
    """A job file; YAML is a superset of JSON."""
    path = tmp_path / "job.yaml"
    whole = {
        "model": model or MODEL,
        "cluster": "dgx-b200:1",
        "stack": "megatron-core",
        "batch": {"sequence_length": 1024},
        "plan": PLAN | (plan or {}),
    }
    path.write_text(json.dumps(whole | parts), encoding="utf-8")
    return path


def report(path, *words):
    """What predict prints as JSON."""
    ended = flopcast("predict", path, *words, "--json")
    assert (ended.code, ended.err) == (0, "")
    return json.loads(ended.out)


def memory(path, *words):
    """What memory prints as JSON."""
    ended = flopcast("memory", path, *words, "--json")
    assert ended.code == 0
    return json.loads(ended.out)["memory"]


CHOICES = {
    "groups of blocks recomputed": {"recompute": "full:uniform:2"},
    "modules recomputed": {"recompute": "selective:mlp,layernorm"},
    "blocks of 8 bits": {"precision": "mxfp8"},
    "4 bits": {"precision": "nvfp4"},
    "states in 8 bits": {"optimizer": "adamw_8bit"},
    "factored states": {"optimizer": "adafactor"},
    "fully sharded": {"zero": 3},
    "sharded in groups": {"zero": 3, "data_shard": 4},
    "sequences shared in a ring": {"data_parallel": 4, "context_parallel": 2},
    "heads exchanged": {"data_parallel": 4, "context_parallel": 2, "context_exchange": "all_to_all"},
    "uneven stages": {"data_parallel": 4, "pipeline_parallel": 2, "stage_layers": "5,3"},
}
WORDS = {
    "groups of blocks recomputed": "recompute=full:uniform:2",
    "modules recomputed": "recompute=selective:mlp,layernorm",
    "blocks of 8 bits": "precision=mxfp8",
    "4 bits": "precision=nvfp4",
    "states in 8 bits": "optimizer=adamw_8bit",
    "factored states": "optimizer=adafactor",
    "fully sharded": "zero=3",
    "sharded in groups": "zero=3 dp_shard=4",
    "sequences shared in a ring": "dp=4 cp=2",
    "heads exchanged": "dp=4 cp=2 context_exchange=all_to_all",
    "uneven stages": "dp=4 pp=2 stage_layers=5,3",
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_in_a_file_and_in_words_is_one_plan_and_one_answer(tmp_path, name):
    named = report(job(tmp_path, CHOICES[name]))

    words = f"dp=8 mbs=1 gbs=16 precision=bf16 {WORDS[name]}"
    pairs = dict(word.split("=") for word in words.split())  # the last of two words for one field
    asked = report(job(tmp_path), "--plan", " ".join(f"{key}={value}" for key, value in pairs.items()))

    assert asked["job"]["plan"] == named["job"]["plan"]
    assert asked["step_time_s"] == named["step_time_s"]
    assert asked["memory"] == named["memory"]


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_changes_the_answer(tmp_path, name):
    plain, chosen = report(job(tmp_path)), report(job(tmp_path, CHOICES[name]))

    assert (chosen["step_time_s"], chosen["memory"]["allocated_bytes"]) != (
        plain["step_time_s"],
        plain["memory"]["allocated_bytes"],
    )


@pytest.mark.parametrize("name", CHOICES)
def test_breakdown_memory_and_factors_of_every_choice_add_up(tmp_path, name):
    found = report(job(tmp_path, CHOICES[name]))

    assert sum(found["breakdown"].values()) == pytest.approx(found["step_time_s"], rel=1e-6)
    sizes = found["memory"]["by_category"]
    assert sum(sizes.values()) == pytest.approx(found["memory"]["allocated_bytes"], rel=1e-6)
    assert all(size >= 0 for size in sizes.values())
    assert found["step_time_low_s"] < found["step_time_s"] < found["step_time_high_s"]
    assert found["hfu"] >= found["mfu"] > 0


def test_adapters_split_the_parameters_into_trained_and_frozen(tmp_path):
    adapters = {"rank": 16, "targets": ["q", "v"]}

    found = report(job(tmp_path, model=MODEL | {"adapters": adapters}))

    # a product into 16 columns and one out of them, beside q and beside v, in each of eight blocks
    assert found["trained_parameters"] == 8 * 2 * 16 * (1024 + 1024)
    assert found["trained_parameters"] + found["frozen_parameters"] == found["model_parameters"]


def test_without_adapters_nothing_is_frozen(tmp_path):
    found = report(job(tmp_path))

    assert found["frozen_parameters"] == 0
    assert found["trained_parameters"] == found["model_parameters"]


def test_every_stage_says_which_task_runs_when_it_is_fullest(tmp_path):
    plan = {"data_parallel": 4, "pipeline_parallel": 2, "stage_layers": "5,3"}

    stages = memory(job(tmp_path, plan))["per_stage"]

    assert [stage["stage"] for stage in stages] == [0, 1]
    for stage in stages:
        none = stage["moment"] == "update"
        assert none == (stage["micro_batch"] == -1)
        assert -1 <= stage["micro_batch"] < 4
        assert stage["allocated_bytes"] < stage["reserved_bytes"] < stage["device_used_bytes"]


def test_the_fullest_stage_is_the_memory_of_the_job(tmp_path):
    found = memory(job(tmp_path, {"data_parallel": 4, "pipeline_parallel": 2, "stage_layers": "6,2"}))

    assert found["device_used_bytes"] == max(stage["device_used_bytes"] for stage in found["per_stage"])


WRONG = {  # words of a plan, and what the answer must name
    "zero=5": ("plan.zero", "0, 1, 2 or 3"),
    "recompute=full:blocks:2": ("recompute_method", "uniform, block or every"),
    "recompute=full:block:0": ("recompute_layers", "number of at least 1"),
    "recompute=full:block:9": ("full:block:9", "1 to 8, because a chunk has 8 blocks"),
    "recompute=selective:norm": ("selective:norm", "core_attention"),
    "optimizer=sophia": ("optimizer", "adamw_8bit"),
    "optimizer=adafactor zero=1": ("plan.optimizer", "set zero to 0"),
    "precision=fp4": ("precision", "nvfp4"),
    "cp=3": ("plan.context_parallel", "set context_parallel to"),
    "dp_shard=3 zero=3": ("plan.data_shard", "a divisor of data_parallel (8)"),
    "dp_shard=4": ("plan.data_shard", "set zero to"),
    "stage_layers=4,4": ("plan.stage_layers", "one number (pipeline_parallel"),
    "stage_layers=7": ("plan.stage_layers", "set stage_layers to 8"),
    "ep=2": ("plan.expert_parallel", "1, or a model with experts"),
    "schedule=dualpipe": ("plan.pipeline_parallel", "an even number"),
    "context_exchange=zigzag": ("context_exchange", "ring, all_gather or all_to_all"),
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_choice_ends_with_1_says_why_and_leaves_stdout_empty(tmp_path, words):
    field, allowed = WRONG[words]
    pairs = dict(word.split("=") for word in f"dp=8 mbs=1 gbs=16 precision=bf16 {words}".split())
    plan = " ".join(f"{key}={value}" for key, value in pairs.items())

    ended = flopcast("predict", job(tmp_path), "--plan", plan)

    assert (ended.code, ended.out) == (1, "")
    assert field in ended.err
    assert allowed in ended.err
    assert "because" in ended.err
    assert "fix" in ended.err
    assert "Traceback" not in ended.err


MODELS_WRONG = {
    "an adapter of no columns": ({"adapters": {"rank": 0, "targets": ["q"]}}, "adapters.rank"),
    "adapters of nothing": ({"adapters": {"rank": 4, "targets": []}}, "adapters.targets"),
    "an adapter of no linear": ({"adapters": {"rank": 4, "targets": ["router"]}}, "adapters.targets"),
    "one matrix adapted twice": ({"adapters": {"rank": 4, "targets": ["q", "qkv"]}}, "adapters"),
    "frozen weights in an unknown format": (
        {"adapters": {"rank": 4, "targets": ["q"], "base_dtype": "int4"}},
        "adapters.base_dtype",
    ),
    "adapters beside further predictions": ({"adapters": {"rank": 4, "targets": ["q"]}, "mtp": 1}, "mtp"),
    "less than no further predictions": ({"mtp": -1}, "mtp"),
    "a pattern of an entry that is not there": ({"pattern": [0, 1]}, "pattern"),
    "a window of nothing": (
        {"blocks": [MODEL["blocks"][0] | {"mixer": {"heads": 16, "window": -4}}]},
        "window",
    ),
    "a window of another kind": (
        {
            "blocks": [
                MODEL["blocks"][0] | {"mixer": {"heads": 16, "window": 128, "window_kind": "dilated"}}
            ]
        },
        "window_kind",
    ),
}


@pytest.mark.parametrize("name", MODELS_WRONG)
def test_a_wrong_model_ends_with_1_and_names_the_field(tmp_path, name):
    changed, field = MODELS_WRONG[name]

    ended = flopcast("memory", job(tmp_path, model=MODEL | changed))

    assert (ended.code, ended.out) == (1, "")
    assert field in ended.err
    assert "fix" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(("ratio", "allowed"), [(0.5, "number of at least 1"), ("seven", "number")])
def test_an_oversubscription_that_cannot_be_is_refused_with_its_field(tmp_path, ratio, allowed):
    tiers = [
        {"name": "inside", "devices": 8, "bytes_per_s": "900 GB/s", "latency_s": "5 us"},
        {
            "name": "beyond",
            "devices": 0,
            "bytes_per_s": "50 GB/s",
            "latency_s": "8 us",
            "oversubscription_ratio": ratio,
        },
    ]

    ended = flopcast("predict", job(tmp_path, cluster={"base": "dgx-b200:1", "tiers": tiers}))

    assert (ended.code, ended.out) == (1, "")
    assert "tiers[1].oversubscription_ratio" in ended.err
    assert allowed in ended.err


def test_a_trace_without_torch_says_what_to_install(tmp_path, monkeypatch):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it fails, as where it is absent

    ended = flopcast("import", "hf-model", config, "--trace")

    assert (ended.code, ended.out) == (1, "")
    assert "torch" in ended.err
    assert "install" in ended.err
    assert "Traceback" not in ended.err


def test_the_suite_of_memory_prints_rows_and_their_summary_as_json():
    ended = flopcast("validate", "--suite", "memory", "--json")

    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)["memory"]["memory"]
    errors = [abs(row["predicted_bytes"] / row["measured_bytes"] - 1) for row in found["rows"]]
    assert found["summary"]["rows"] == len(errors)
    assert found["summary"]["mean"] == pytest.approx(sum(errors) / len(errors), rel=1e-6)
    assert found["summary"]["largest"] == pytest.approx(max(errors), rel=1e-6)


def test_a_suite_that_nobody_knows_is_told_with_those_there_are():
    ended = flopcast("validate", "--suite", "memories")

    assert (ended.code, ended.out) == (1, "")
    assert "memory" in ended.err
    assert "korthikanti" in ended.err


def test_a_table_of_runs_that_is_absent_is_told():
    ended = flopcast("validate", "--runs", "none.csv")

    assert (ended.code, ended.out) == (1, "")
    assert "none.csv" in ended.err


def test_a_mixture_says_how_many_parameters_a_token_uses(tmp_path):
    found = report(job(tmp_path, {"expert_parallel": 4}, model=MIXTURE))

    # two of eight gated experts, of three matrices each: six experts less than all, in eight blocks
    unused = 8 * 6 * 3 * 1024 * 1024
    assert found["model_parameters"] - found["active_parameters"] == unused


def test_micro_batches_that_differ_are_a_list_in_a_file_or_on_the_command_line(tmp_path):
    path = tmp_path / "long-tail.yaml"
    listed = "{seq: 512}, {seq: 2048}"
    path.write_text(JOB.replace("{sequence_length: 2048}", f"{{seq: 2048, micro_batches: [{listed}]}}"))

    told = [flopcast("predict", str(path), "--json")]
    told += [
        flopcast(
            "predict",
            *JOB_IN_WORDS,
            "--plan",
            PLAN_IN_WORDS,
            "--seq",
            "2048",
            f"batch.micro_batches=[{listed}]",
            "--json",
        )
    ]

    found = [json.loads(one.out) for one in told]
    assert found[0]["step_time_s"] == found[1]["step_time_s"]
    assert found[0]["job"]["batch"] == found[1]["job"]["batch"]
    assert "all 8 data-parallel ranks run the same" in found[0]["assumptions"][-1]


def test_no_plan_is_chosen_for_micro_batches_that_are_listed():
    told = flopcast(
        "predict", *JOB_IN_WORDS, "--seq", "2048", "batch.micro_batches=[{seq: 512}, {count: 3}]"
    )

    assert told.code == 1
    assert "batch.micro_batches = '2 kinds of micro-batches' is not allowed" in told.err
    assert "a list of micro-batches fits only one plan" in told.err
