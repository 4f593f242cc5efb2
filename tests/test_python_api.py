"""The public functions: the words of the command line in Python, and jobs that are kept."""

import ast
import doctest
import inspect
import json
from pathlib import Path

import pytest
from all_cases import all_cases
from children import ran
from conftest import PACKAGE
from pages import output_of

import flopcast
from flopcast.explanations import explain
from flopcast.render.explanation import as_json as explanation_json
from flopcast.render.report_json import as_json

PLAN = "dp=32 tp=2 mbs=1 gbs=512 sp zero=1"
WORDS = {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": 64, "plan": PLAN}
FUNCTIONS = [name for name in flopcast.__all__ if inspect.isfunction(getattr(flopcast, name))]


@pytest.fixture(scope="module")
def asked():
    return flopcast.job(**WORDS)


def told(command, **words):
    """What a command prints as data, of words that it has as options."""
    options = " ".join(f'--{name} "{value}"' for name, value in words.items())
    printed, code = output_of(f"flopcast {command} {options} --json")
    assert code == 0, printed
    return json.loads(printed)


@all_cases(
    ("words", "changes"),
    [
        (WORDS, ()),
        (WORDS | {"seq": 4096, "stack": "megatron-core-2026"}, ()),
        (WORDS | {"price": "2.10 USD/h"}, ("plan.recompute=full", "model.num_layers=16")),
        (WORDS | {"plan": "auto tp=8 mbs=1 gbs=512"}, ()),
    ],
)
def test_words_in_python_are_those_of_the_command_line(words, changes):
    report = flopcast.predict(flopcast.job(**words, changes=changes))

    assert as_json(report) == told(f"predict {' '.join(changes)}", **words)


def test_memory_and_comparison_are_those_of_the_command_line(asked):
    other = flopcast.job(**WORDS, changes=["plan.recompute=full"])

    compared = flopcast.compare(asked, other)

    wanted = told("compare plan.recompute=full", **WORDS)
    assert compared.time_ratio == pytest.approx(wanted["time_per_token_ratio"])
    assert compared.sure == wanted["settled"]
    wanted = told("memory", **WORDS)["memory"]
    assert flopcast.predict_memory(asked).device_used_bytes == pytest.approx(wanted["device_used_bytes"])


def test_explanations_are_those_of_the_command_line(asked):
    words = {"engine": "vllm", "cluster": "dgx-h100:1", "plan": "tp=1", "traffic": "requests=20"}
    serving = flopcast.serving_job("llama-3.1-8b", **words)

    assert explanation_json(explain(asked, "mlp")) == told("explain mlp", **WORDS)
    found = explain(serving, "ttft")
    assert explanation_json(found) == told("explain ttft llama-3.1-8b", **words)
    assert explain(flopcast.predict_serving(serving), "ttft") == found
    assert explain(asked).name == "step"
    assert explain(serving).name == "tpot"


def test_reports_compare_as_their_jobs(asked):
    other = flopcast.job(**WORDS, changes=["plan.recompute=full"])

    by_job, by_report = (
        flopcast.compare(asked, other),
        flopcast.compare(flopcast.predict(asked), flopcast.predict(other)),
    )

    assert (by_job.low_ratio, by_job.high_ratio) == (by_report.low_ratio, by_report.high_ratio)


def test_a_model_may_be_described_or_be_a_file(tmp_path, asked):
    described = flopcast.job(**WORDS | {"model": {"base": "llama-3-8b", "num_layers": 16}})
    model = tmp_path / "model.yaml"
    model.write_text("{base: llama-3-8b, num_layers: 16}", encoding="utf-8")

    assert flopcast.job(**WORDS | {"model": model}).model == described.model
    assert 2 * described.model.blocks[0].count == asked.model.blocks[0].count


def test_where_no_plan_is_given_one_is_chosen_and_said():
    chosen = flopcast.job(model="llama-3-8b", cluster="dgx-h100", gpus=8)

    assert flopcast.predict_memory(chosen).fits
    assert any(text.startswith("plan chosen") for text in chosen.assumptions)


def test_a_number_of_devices_that_nothing_states_is_an_assumption():
    size = "gpus 256, the number of devices of dgx-h100 in the catalogue"
    plan = "tp=1 pp=1 cp=1 mbs=1 gbs=512 zero=1 recompute=full"
    cases = (
        ({}, True),
        ({"cluster": "dgx-h100"}, True),
        ({"gpus": 256}, False),
        ({"plan": "dp=256 gbs=512"}, False),
    )
    for words, assumed in (*cases, ({"cluster": "dgx-h100:32"}, False)):
        job = flopcast.job(**{"model": "llama-3-8b", "plan": plan} | words)
        assert (size in job.assumptions) == assumed, words


def test_where_no_plan_fits_the_error_says_so():
    with pytest.raises(flopcast.InfeasibleError, match="no plan fits"):
        flopcast.job(model="llama-2-70b", cluster="dgx-h100", gpus=1)


def test_every_fault_of_the_words_is_told_at_once():
    with pytest.raises(flopcast.SpecError) as caught:
        flopcast.job(**WORDS | {"plan": "dp=31 tp=3 gbs=512"}, changes=["batch.sequence_length=0"])

    assert {problem.field for problem in caught.value.problems} >= {"batch.sequence_length"}
    assert all(problem.fix for problem in caught.value.problems)


@all_cases(
    ("words", "place", "fix"),
    [
        ({"plan": "dp=30 gbs=512"}, "plan.data_parallel", "set data_parallel to 32"),
        ({"cluster": "h100"}, "cluster", "did you mean dgx-h100"),
        ({"seq": 0}, "argument seq", "set seq to a value such as 4096"),
        ({"model": None}, "arguments", 'such as model="llama-3-8b"'),
        ({"gpus": 12}, "gpus", "set gpus to 64"),
        ({"gpus": 0}, "gpus", "set gpus to 8"),
        ({"gpus": "64"}, "gpus", "set gpus to 64"),
        ({"gpus": 64.5}, "gpus", "set gpus to 64"),
        ({"lora": True}, "argument lora", "set lora to a value such as 16"),
        ({"gpu": 64}, "gpu", "did you mean gpus?"),
        ({"tp": 2}, "tp", 'write plan="tp=2"'),
        ({"microbatch": 2}, "microbatch", 'write plan="micro_batch=2"'),
        ({"sequence": 4096}, "sequence", "did you mean seq?"),
    ],
)
def test_faults_name_arguments_and_no_options(words, place, fix):
    with pytest.raises(flopcast.SpecError) as caught:
        flopcast.job(**WORDS | words)

    assert any(place in (each.where, each.field) and fix in each.fix for each in caught.value.problems)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize("slow", [("host=3", 0.5), [("host=3", 0.5)], {"host=3": 0.5}])
def test_a_slow_part_that_is_written_as_a_pair_has_its_text_as_the_fix(slow):
    with pytest.raises(flopcast.SpecError, match=r"fix:     set slow to host=3:0\.5"):
        flopcast.job(**WORDS, slow=slow)


def test_a_search_marks_the_recommended_plan(asked):
    found = flopcast.search_plans(asked, "gbs=512 dp=32,64 cp=1 zero=1 mbs=1 recompute=none")

    lines = str(found).splitlines()[2:]
    assert [line.startswith("1 recommended") for line in lines] == [True] + [False] * (len(lines) - 1)


def test_values_without_their_names_are_reported():
    with pytest.raises(flopcast.SpecError, match="write NAME='dgx-h100'"):
        flopcast.job("llama-3-8b", "dgx-h100", gpus=8)
    with pytest.raises(flopcast.SpecError, match=r"write flopcast.job\(model=\{"):
        flopcast.job({"hidden": 4096})


def test_memory_and_comparisons_of_serving_jobs_are_those_of_the_reports():
    plans = ("tp=1", "prefill.tp=1 decode.tp=1")
    one, pools = (
        flopcast.serving_job(
            "llama-3.1-8b", engine="sglang", gpus=2, plan=plan, traffic="rate=2/s requests=40"
        )
        for plan in plans
    )
    reports = [flopcast.predict_serving(each) for each in (one, pools)]
    for each, report in zip((one, pools), reports, strict=True):
        assert flopcast.predict_memory(each) == report.memory
    assert flopcast.compare(one, pools).ratios == flopcast.compare(*reports).ratios
    found = flopcast.search_deployments(one, "tp=1 replicas=1 max_sequences=64 max_tokens=8192", ("ttft",))
    assert found.deployments[0].report.job.plan.tensor_parallel == 1


def test_a_value_in_the_place_of_a_job_is_reported_with_the_call_that_makes_one(asked):
    serving = flopcast.serving_job("llama-3.1-8b", gpus=2, plan="tp=1")
    calls = {
        "flopcast.job('llama-3-8b')": lambda: flopcast.predict("llama-3-8b"),
        "flopcast.job(model='llama-3-8b')": lambda: flopcast.predict_memory({"model": "llama-3-8b"}),
        "flopcast.job('run.sh')": lambda: flopcast.search_plans("run.sh"),
        "flopcast.job('llama-2-7b')": lambda: flopcast.compare(asked, "llama-2-7b"),
        "plan=flopcast.Plan(...)": lambda: flopcast.predict(asked.model_copy(update={"plan": "tp=2"})),
        "write model= before a description of a model": lambda: flopcast.job(asked.model),
        "flopcast.predict(job)": lambda: flopcast.report_page(asked),
        "flopcast.report_page(flopcast.predict_serving(job))": lambda: flopcast.report_page(serving),
        "flopcast.predict_serving(...)": lambda: flopcast.Predictor().predict(serving),
        "write flopcast.predict_serving(": lambda: flopcast.predict(serving),
        "write flopcast.search_deployments(": lambda: flopcast.search_plans(serving),
        "compare two training jobs or two serving jobs": lambda: flopcast.compare(serving, asked),
        "plan.tensor_parallel": lambda: flopcast.predict_memory(
            serving.with_part("plan", tensor_parallel=3)
        ),
        "did you mean tp?": lambda: flopcast.search_plans(asked, {"tpp": 2}),
        "write total_tokens=1000000000000": lambda: flopcast.search_plans(asked, total_tokens="1TT"),
        "write trace='FILE'": lambda: flopcast.diagnose(asked, trace=5),
        "set zero to 3": lambda: flopcast.predict_memory("gpt2", gpus=8, plan="zero=7"),
    }
    for fix, call in calls.items():
        with pytest.raises(flopcast.SpecError) as caught:
            call()
        assert fix in str(caught.value)


def test_changes_may_be_a_mapping_or_one_text():
    several = [["plan.recompute=full"], "plan.recompute=full", {"plan.recompute": "full"}]

    assert len({flopcast.job(**WORDS, changes=changes) for changes in several}) == 1
    together = ["plan.recompute=full plan.mbs=1", "plan.recompute=full, plan.mbs=1"]
    apart = flopcast.job(**WORDS, changes=["plan.recompute=full", "plan.mbs=1"])
    assert {apart} == {flopcast.job(**WORDS, changes=text) for text in together}


def test_a_job_that_is_kept_comes_back(tmp_path, asked):
    kept = tmp_path / "kept.yaml"

    kept.write_text(flopcast.dump_job(asked), encoding="utf-8")

    assert flopcast.load_job(kept) == asked


def test_an_exported_script_is_read_back_as_the_same_job(tmp_path, asked):
    ((name, script),) = flopcast.export_job(asked, "megatron").files
    (tmp_path / name).write_bytes(script)

    again = flopcast.job(tmp_path / name, cluster="dgx-h100")

    assert again.cluster.num_devices == 64
    assert again.plan == asked.plan


def test_an_unknown_kind_of_export_is_refused_with_those_that_there_are(asked):
    with pytest.raises(flopcast.SpecError, match="megatron"):
        flopcast.export_job(asked, "slides")


def test_type_checkers_see_the_same_names_as_programs():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    seen = next(node.body for node in tree.body if isinstance(node, ast.If))

    found = {alias.name: node.module for node in seen for alias in node.names}

    assert found == flopcast._HOMES
    assert sorted(found) == sorted(flopcast.__all__)


@all_cases("name", FUNCTIONS)
def test_every_public_function_is_annotated_and_shows_how_it_is_called(name):
    function = getattr(flopcast, name)
    signature = inspect.signature(function)

    (found,) = doctest.DocTestFinder(recurse=False).find(function, name)

    assert found.examples
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(each.annotation is not inspect.Parameter.empty for each in signature.parameters.values())


def test_options_of_a_job_that_a_prediction_gets_are_an_error_with_the_right_call():
    with pytest.raises(
        flopcast.SpecError, match=r"write flopcast.predict\(flopcast.job\('llama-3-8b', gpus=8\)\)"
    ):
        flopcast.predict("llama-3-8b", gpus=8)
    with pytest.raises(flopcast.SpecError, match="pass gpus to"):
        flopcast.search_plans(flopcast.job(**WORDS), gpus=8)


def test_importing_flopcast_loads_neither_numpy_nor_pydantic():
    import sys

    program = "import sys, flopcast; print(sorted({'numpy', 'pydantic'} & set(sys.modules)))"

    done = ran([sys.executable, "-c", program], text=True, check=True, cwd=Path(PACKAGE).parent)

    assert done.stdout == "[]\n"


CALLS = {  # a call with a wrong value → the field and the fix of its error
    'Plan(tp="a")': ("Plan.tp", "write tp=1"),
    "Plan(tensor_parallel=0)": ("Plan.tensor_parallel", "write tensor_parallel=1"),
    "Plan(tensor_paralel=2)": ("Plan.tensor_paralel", "did you mean tensor_parallel?"),
    'Plan("tp=2")': ("Plan", "write Plan(tp=2)"),
    'Batch(sequence_length="long")': ("Batch.sequence_length", "write sequence_length=8192"),
    'Space(recompute="any")': ("Space.recompute", "write recompute='selective'"),
}


@all_cases("call", list(CALLS))
def test_a_wrong_field_of_a_noun_has_an_error_with_an_edit_that_helps(call):
    with pytest.raises(flopcast.SpecError) as error:
        eval(f"flopcast.{call}")

    (problem,) = error.value.problems
    assert (problem.field, problem.fix) == CALLS[call]
