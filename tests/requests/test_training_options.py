"""Options of what is trained and for how long: the same as in a job file, on every surface."""

import json

import pytest
from all_cases import all_cases
from command_line import flopcast

import flopcast as library
from flopcast import job
from flopcast.errors import SpecError
from flopcast.jobs import dump_job
from flopcast.render.report_json import as_json
from flopcast.search.usual_training import usual_batch
from flopcast.ui.responses import compare_data, predict_data

PLAN = "dp=8 mbs=2 gbs=64 zero=1"
SETUP = {"gpus": 8, "seq": 1024, "plan": PLAN}
TUNED = SETUP | {"lora": 16, "samples": "52k", "epochs": 3}


def described(made):
    """All that a job says but its assumptions."""
    return dump_job(made.model_copy(update={"assumptions": ()}))


def options(words):
    """The words of Python as options of a command."""
    return [part for name, value in words.items() for part in (f"--{name}", value)]


def refused(**words):
    with pytest.raises(SpecError) as caught:
        job("llama-3-8b", **SETUP | words)
    return caught.value.problems


@all_cases(
    ("words", "adapters"),
    [
        ({"lora": 16}, "{rank: 16, targets: [q, k, v, out, gate, up, down]}"),
        ({"qlora": 8}, "{rank: 8, targets: [q, k, v, out, gate, up, down], base_dtype: nf4}"),
    ],
)
def test_a_rank_is_the_adapter_of_a_job_file(words, adapters, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        f'model: {{base: llama-3-8b, adapters: {adapters}}}\ncluster: dgx-h100:1\nplan: "{PLAN}"\n'
        "batch: {seq: 1024}\nstack: megatron-core\n",
        encoding="utf-8",
    )

    assert described(job("llama-3-8b", **SETUP | words)) == described(job(path))


def test_adapters_on_all_linears_have_as_many_parameters_as_their_shapes_say():
    tuned = job("llama-3-8b", **TUNED)

    rows_and_columns = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    assert tuned.model.trained_parameters() == 16 * 32 * rows_and_columns == 41_943_040
    assert "adapters on all linear layers: q, k, v, out, gate, up, down" in tuned.assumptions


@all_cases(
    ("model", "targets"),
    [
        ("gpt2", ("q", "k", "v", "out", "up", "down")),  # its MLP has no gate
        ("mixtral-8x7b", ("q", "k", "v", "out")),  # adapters of experts are not supported
    ],
)
def test_adapters_stand_beside_the_linears_that_a_model_has(model, targets):
    tuned = job(model, gpus=8, seq=512, lora=8, plan="dp=8 gbs=64 zero=1")

    assert tuned.model.adapters.targets == targets


def test_a_change_beats_an_option_and_an_option_a_file(tmp_path):
    changed = job("llama-3-8b", **TUNED, changes=["model.adapters.targets=[q, v]", "run.epochs=5"])
    path = tmp_path / "job.yaml"
    path.write_text(dump_job(changed), encoding="utf-8")
    again = job(path, lora=4, samples=1000)

    assert (changed.model.adapters.rank, changed.model.adapters.targets) == (16, ("q", "v"))
    assert (changed.run.samples, changed.run.epochs) == (52_000, 5)
    assert (again.model.adapters.rank, again.model.adapters.targets) == (4, ("q", "v"))
    assert (again.run.samples, again.run.epochs) == (1000, 5)
    assert job(path, tokens="1B").run.samples is None


def test_a_model_that_a_change_names_has_the_adapters_of_the_option():
    changed = job("llama-3-8b", **TUNED, changes=["model=gpt2"])

    assert described(changed) == described(job("gpt2", **TUNED))


def test_adapters_and_length_are_the_same_on_the_command_line_in_python_and_over_http():
    printed = flopcast("predict", "llama-3-8b", *options(TUNED), "--json")
    report = library.predict(job("llama-3-8b", **TUNED))
    # a request that states a part of a plan is completed, so the assumptions differ
    _, over_http = predict_data({"model": "llama-3-8b"} | TUNED, lambda _: None)

    assert printed.code == 0
    assert json.loads(printed.out) == as_json(report)
    same = json.loads(over_http) | {"assumptions": list(report.assumptions)}
    assert same == as_json(report)


def test_samples_times_epochs_times_the_length_are_the_tokens_of_the_run():
    samples = as_json(library.predict(job("llama-3-8b", **SETUP, samples=52_000, epochs=3)))
    tokens = as_json(library.predict(job("llama-3-8b", **SETUP, tokens=52_000 * 3 * 1024)))

    assert samples["run"] == tokens["run"]
    assert samples["run"]["steps"] == pytest.approx(52_000 * 3 / 64)
    assert samples["run"]["days"] > samples["run"]["steps"] * samples["step_time_s"] / 86_400
    assert samples["run"]["days"] == pytest.approx(
        samples["run"]["tokens"] / samples["tokens_per_s"] / 86400, rel=0.01
    )


def test_the_length_of_a_run_changes_no_step():
    plain, long = (library.predict(job("llama-3-8b", **SETUP, **more)) for more in ({}, {"tokens": "2T"}))

    assert as_json(plain) == as_json(long) | {"run": None}


def test_predict_and_run_say_the_same_of_a_run():
    words = ("llama-3-8b", *options(TUNED))

    predicted = json.loads(flopcast("predict", *words, "--json").out)["run"]
    ran = json.loads(flopcast("run", *words, "--json").out)
    text = flopcast("predict", *words).out
    lines = flopcast("run", *words).out.splitlines()

    assert predicted == {key: ran[key] for key in predicted}
    assert "\nthe whole run: 52,000 samples, 3 epochs\n" in text
    assert all(f"\n  {line}\n" in text for line in lines[1:7])


def test_a_comparison_tells_the_time_and_the_cost_of_both_runs():
    words = ("llama-3-8b", *options(TUNED), "plan.recompute=full")
    _, over_http = compare_data({side: {"model": "llama-3-8b"} | TUNED for side in "ab"}, lambda _: None)

    rows = [line.split("  ")[0] for line in flopcast("compare", *words).out.splitlines()]

    assert {"time of the run", "cost of the run"} <= set(rows)
    assert json.loads(over_http)["first"]["run"]["tokens"] == 52_000 * 3 * 1024


def test_a_search_finishes_the_run_of_samples_in_time():
    words = (
        "llama-3-8b",
        "--gpus",
        8,
        "--seq",
        1024,
        "--plan",
        "mbs=2 tp=1 pp=1 cp=1 zero=1 recompute=none",
    )

    found = flopcast(
        "search", *words, *options({"lora": 16, "samples": "52k"}), "--objective", "time_to_train"
    )

    assert found.code == 0
    assert "gbs=128" in found.out


@all_cases(("gpus", "sequences"), [(1, 128), (8, 128), (6, 96), (128, 128), (256, 256)])
@all_cases("words", [{"lora": 16}, {"qlora": 16}, {"samples": 52_000}])
def test_a_fine_tune_has_the_batch_of_published_recipes(gpus, sequences, words):
    tuned = job("llama-3.2-1b", gpus=gpus, plan=f"dp={gpus} gbs={gpus}", **words)

    assert tuned.fine_tunes
    assert usual_batch(tuned) == sequences


def test_a_run_of_tokens_has_the_batch_of_pretraining():
    run = job("llama-3.2-1b", gpus=8, plan="dp=8 gbs=8", tokens="1T")

    assert not run.fine_tunes
    assert usual_batch(run) * 8192 == 2**22


def test_the_batch_of_a_fine_tune_is_told_as_assumed():
    tuned = job("llama-3.2-1b", gpus=8, seq=1024, samples=1000, plan="auto tp=1 pp=1 mbs=2 recompute=none")

    assert tuned.plan.global_batch == 128
    assert "global_batch 128 (131,072 tokens, as in recipes of fine-tuning)" in tuned.assumptions


@all_cases(
    ("words", "place", "fix"),
    [
        ({"lora": 8, "qlora": 8}, "qlora", "leave out lora or qlora"),
        ({"lora": 0}, "lora", "set lora to a value such as 16"),
        ({"tokens": "1B", "samples": 5}, "argument samples", "remove samples, or tokens"),
        ({"epochs": 3}, "argument epochs", "samples=52000"),
        ({"qlora": 8, "plan": "dp=8 gbs=64 precision=fp8"}, "plan", "set precision to bf16"),
    ],
)
def test_contradictions_are_told_by_the_argument_that_states_them(words, place, fix):
    problems = refused(**words)

    assert any(place in (each.where, each.field) or each.field.startswith(place) for each in problems)
    assert any(fix in each.fix for each in problems)
    assert "--" not in str(SpecError(problems))


def test_a_model_without_linears_to_adapt_is_refused_by_the_option():
    ended = flopcast("predict", "deepseek-v3", "--gpus", 256, "--lora", 16)

    assert ended.code == 1
    assert ended.err.startswith("1 error in the input\n\n--lora = 16 is not allowed")


def test_every_fault_of_a_command_line_is_told_beside_those_of_the_training():
    ended = flopcast("predict", "llama-3-8b", "--gpus", 12, "--lora", 8, "--qlora", 8, "--epochs", 2)

    assert ended.err.startswith("3 errors in the input\n")


def test_phases_and_a_length_are_not_given_together(tmp_path):
    path = tmp_path / "phases.yaml"
    path.write_text("phases: [{tokens: 1T}]", encoding="utf-8")

    both = flopcast("run", "llama-3-8b", *options(SETUP), "--samples", 5, "--epochs", 2, "--phases", path)
    neither = flopcast("run", "llama-3-8b", *options(SETUP))

    assert (both.code, neither.code) == (1, 1)
    assert "leave out --samples, or --phases" in both.err
    assert "--tokens is missing" in neither.err


FILE = "model: llama-3-8b\ncluster: dgx-h100:1\nbatch: {seq: 1024}\nstack: megatron-core\nplan: PLAN\n"


def test_the_option_for_the_plan_changes_only_the_fields_that_it_states(tmp_path):
    path = tmp_path / "job.yaml"
    for own in ("{dp: 4, tp: 2, mbs: 2, gbs: 32}", "dp=4 tp=2 gbs=32 recompute=full"):
        path.write_text(FILE.replace("PLAN", own))
        for plan in ("recompute=none", "mbs=4 gbs=64", "sequence_parallel", "tp=4 dp=2"):
            words = (f"{word}=true" if "=" not in word else word for word in plan.split())

            changed = job(path, changes=[f"plan.{word}" for word in words])

            assert job(path, plan=plan) == changed, (own, plan)


def test_fields_that_contradict_the_plan_of_the_file_are_an_error(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(FILE.replace("PLAN", "dp=4 tp=2 gbs=32"))

    ended = flopcast("predict", path, "--plan", "tp=4")

    assert ended.code == 1
    assert "4 replicas need at least 16 devices" in ended.err
    assert "set data_parallel to 2" in ended.err


def test_a_whole_plan_replaces_that_of_the_file_and_says_so(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(FILE.replace("PLAN", "{dp: 4, pp: 2, mbs: 2, gbs: 32, recompute: full}"))

    made = job(path, plan="dp=8 mbs=1 gbs=64 zero=1 precision=bf16")

    assert made.plan.short() == "dp=8 mbs=1 gbs=64 zero=1 precision=bf16"
    note = f"the given plan replaces the whole plan of {path}, including its pipeline_parallel, recompute"
    assert note in made.assumptions
    opened = job(path, plan="auto tp=8")
    assert (opened.plan.tensor_parallel, opened.plan.global_batch) == (8, 32)
