"""What the commands print: data on stdout, talk on stderr, exit codes, changes on the command line."""

import json
import re

import pytest
from all_cases import all_cases
from command_line import JOB, PLAN, WORDS, flopcast

from flopcast import load_job, predict
from flopcast.cli import main as command_line
from flopcast.cli.main import COMMANDS
from flopcast.errors import InfeasibleError, InternalError, Problem, SpecError
from flopcast.lab.calibration.collective_files import FABRICS, WITH_LATENCY, WITHOUT_LATENCY
from flopcast.lab.published.suite_files import load_suite
from flopcast.library import catalog

KEYS = {  # DESIGN: keys may be added, never renamed
    "format_version",
    "job",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "tokens_per_s",
    "tokens_per_s_per_device",
    "model_tflops_per_device",
    "mfu",
    "hfu",
    "mfu_peak",
    "flop_convention",
    "model_parameters",
    "active_parameters",
    "model_flop",
    "hardware_flop",
    "breakdown",
    "factors",
    "memory",
    "assumptions",
    "evidence",
    "warnings",
}
MEMORY_KEYS = {
    "allocated_bytes",
    "reserved_bytes",
    "device_used_bytes",
    "capacity_bytes",
    "fits",
    "by_category",
    "per_stage",
}


@pytest.fixture
def path(tmp_path):
    """A job file."""
    made = tmp_path / "job.yaml"
    made.write_text(JOB, encoding="utf-8")
    return made


def report(*words):
    """The report that a call prints as JSON."""
    ended = flopcast("predict", *words, "--json")
    assert (ended.code, ended.err) == (0, "")
    return json.loads(ended.out, parse_constant=refuse)


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def test_the_json_report_has_every_key_that_is_promised(path):
    found = report(path)

    assert set(found) >= KEYS
    assert set(found["job"]) >= {"model", "cluster", "plan", "stack", "site"}
    assert set(found["mfu_peak"]) >= {"dtype", "flop_per_s"}
    assert set(found["memory"]) >= MEMORY_KEYS
    assert all(set(each) >= {"name", "log_sigma", "d_log_step"} for each in found["factors"])
    evidence = {"curve", "source", "relative_error", "extrapolated"}
    assert all(set(each) >= evidence for each in found["evidence"])


def test_the_json_report_says_what_was_asked(path):
    found = report(path)

    assert found["job"]["model"] == "megatron-1.7b"
    assert found["job"]["stack"] == "megatron-2022@2022-05"
    assert found["job"]["plan"]["data_parallel"] == 8
    assert found["mfu_peak"] == {"dtype": "fp16", "flop_per_s": 312e12}


def test_the_command_line_and_the_library_predict_the_same(path):
    found, made = report(path), predict(load_job(path))

    assert found["step_time_s"] == pytest.approx(made.step_time_s, rel=1e-8)
    assert found["memory"]["allocated_bytes"] == pytest.approx(made.memory.allocated_bytes, rel=1e-8)


def test_the_same_call_prints_the_same_bytes(path):
    assert flopcast("predict", path, "--json") == flopcast("predict", path, "--json")
    assert flopcast("predict", path) == flopcast("predict", path)


def test_words_on_the_command_line_mean_what_the_file_says(path):
    assert report(*WORDS, "--plan", PLAN, "--seq", 2048) == report(path)


def test_an_assumed_sequence_length_is_said_aloud():
    found = report(*WORDS, "--plan", PLAN)

    assert found["assumptions"] == ["sequence_length 2048"]


def test_framework_is_another_name_of_stack(path):
    assert report(path, "--framework", "megatron-2021") == report(path, "--stack", "megatron-2021")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("plan.micro_batch=2",), "  micro_batch: 2"),
        (("plan.mbs=2",), "  micro_batch: 2"),
        (("plan.precision=bf16",), "  precision: bf16"),
        (("batch.sequence_length=1024",), "batch: {sequence_length: 1024}"),
        (("--seq", 1024), "batch: {sequence_length: 1024}"),
        (("--stack", "megatron-2021"), "stack: megatron-2021"),
        (("stack.attention_kernel=flash",), "stack: {base: megatron-2022, attention_kernel: flash}"),
        (("stack.rewrites=[fused_softmax]",), "stack: {base: megatron-2022, rewrites: [fused_softmax]}"),
        (("stack.gradients.overlap=true",), "stack: {base: megatron-2022, gradients: {overlap: true}}"),
        (("model.vocabulary=32000",), "model: {base: megatron-1.7b, vocabulary: 32000}"),
        (("--model", "megatron-3.6b"), "model: megatron-3.6b"),
    ],
)
def test_a_change_on_the_command_line_is_a_change_of_the_file(path, tmp_path, words, line):
    key = line.partition(":")[0]
    changed = tmp_path / "changed.yaml"
    lines = [line if old.startswith(f"{key}:") else old for old in JOB.splitlines()]
    changed.write_text("\n".join(lines), encoding="utf-8")
    assert lines != JOB.splitlines()

    assert report(path, *words) == report(changed)


def test_changes_may_stand_before_a_file_is_named_by_options():
    assert report("plan.mbs=2", *WORDS, "--plan", PLAN) == report(*WORDS, "--plan", PLAN, "plan.mbs=2")


def test_a_jittery_cluster_lengthens_the_step_by_just_its_jitter(path):
    calm, shaken = (report(path, f"cluster.jitter.ratio={ratio}") for ratio in (1.0, 1.5))

    assert shaken["step_time_s"] == pytest.approx(1.5 * calm["step_time_s"], rel=1e-6)
    assert shaken["job"]["cluster"] == calm["job"]["cluster"]


def test_a_site_file_changes_the_factors_that_it_names(path, tmp_path):
    site = tmp_path / "site.yaml"
    site.write_text(
        "name: here\nfactors:\n  - {name: 'gemm_level[a100-sxm4-80gb]', ratio: 2}\n", encoding="utf-8"
    )

    found = report(path, "--site", site)

    assert found["job"]["site"] == "here"
    assert found["step_time_s"] > 1.2 * report(path)["step_time_s"]


@pytest.mark.parametrize(("gpus", "nodes"), [(8, 1), (16, 2), (64, 8)])
def test_gpus_are_whole_nodes_of_the_cluster(gpus, nodes):
    plan = f"dp={gpus} mbs=1 gbs={gpus} precision=fp16"

    asked = report(*WORDS, "--plan", plan, "--gpus", gpus)

    assert asked["job"]["devices"] == gpus
    words = [f"dgx-a100:{nodes}" if word == "dgx-a100" else word for word in WORDS]
    assert asked == report(*words, "--plan", plan)


def test_a_few_gpus_are_a_part_of_one_node_and_no_more():
    found = report(*WORDS, "--plan", "dp=4 mbs=1 gbs=4 precision=fp16", "--gpus", 4)

    assert found["job"]["devices"] == 4


def test_gpus_that_fill_no_node_are_refused_with_the_size_of_a_node():
    ended = flopcast("predict", *WORDS, "--plan", "dp=12 gbs=12", "--gpus", "12")

    assert ended.code == 1
    assert "--gpus = 12 is not allowed\n  allowed: a multiple of 8" in ended.err


def test_the_plain_report_names_the_job_and_its_step(path):
    ended = flopcast("predict", path)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("megatron-1.7b on dgx-a100: 8 × a100-sxm4-80gb, megatron-2022@2022-05\n")
    assert "step " in ended.out
    assert "90 %" in ended.out
    (line,) = [line for line in ended.out.splitlines() if line.startswith("what would help most: ")]
    assert "a step (" in line or "no single setting" in line


def test_a_page_and_a_trace_are_written_and_told_beside_clean_json(path, tmp_path):
    page, trace = tmp_path / "page.html", tmp_path / "trace.pftrace"

    ended = flopcast("predict", path, "--json", "--report", page, "--trace", trace)

    assert ended.code == 0
    assert json.loads(ended.out) == report(path)
    assert ended.err.splitlines() == [f"wrote {page}", f"wrote {trace}: open it in ui.perfetto.dev"]
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert "megatron-1.7b" in page.read_text(encoding="utf-8")
    assert trace.read_bytes()[0] == 0x0A  # field 1, length-delimited: a packet of a Perfetto trace


def test_memory_is_the_memory_part_of_the_prediction(path):
    ended = flopcast("memory", path, "--json")

    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["memory"] == report(path)["memory"]


def test_memory_in_words_says_whether_it_fits(path):
    small, large = flopcast("memory", path), flopcast("memory", path, "--model", "gpt3-175b")

    assert (small.code, large.code) == (0, 0)
    assert "GiB: fits" in small.out
    assert "GiB: DOES NOT FIT" in large.out


@all_cases("kind", catalog.KINDS)
def test_the_catalogue_lists_the_names_of_a_kind(kind):
    ended = flopcast("catalog", kind)

    assert (ended.code, ended.err) == (0, "")
    names = [line.split()[0] for line in ended.out.splitlines()]
    assert [name for name in names if f"{name}s" != kind] == list(catalog.names(kind))
    assert max(map(len, ended.out.splitlines())) <= 100


def test_a_warning_lists_the_devices_whose_measurements_are_used():
    shown = flopcast("predict", "llama-3.2-1b", "--cluster", "hgx-h800:1", "--plan", "dp=8 gbs=8").out

    assert "and uses those of a100-sxm4-80gb, gh200-96gb and h100-sxm5-80gb\n" in shown


def test_the_lists_of_devices_and_clusters_show_what_they_consist_of():
    assert re.search(
        "h100-sxm5-80gb +80.0 GiB +3.35 TB/s +989 TFLOP/s\n", flopcast("catalog", "devices").out
    )
    assert re.search("dgx-h100 +32 +8 × h100-sxm5-80gb\n", flopcast("catalog", "clusters").out)
    assert re.search("llama-3-8b +8.03 B\n", flopcast("catalog", "models").out)


def test_the_whole_catalogue_names_all_entries_of_every_kind():
    lines = flopcast("catalog").out.splitlines()

    listed = " ".join(line.strip() for line in lines)
    assert listed == " ".join(f"{kind}: {', '.join(catalog.names(kind))}" for kind in catalog.KINDS)
    assert max(map(len, lines)) <= 100


def test_an_entry_is_shown_with_its_sources():
    ended = flopcast("catalog", "devices", "gh200-96gb")

    shown = json.loads(ended.out)
    assert ended.code == 0
    assert shown["memory_bytes"] == "96 GiB"
    assert "data sheet" in shown["source"][0]["title"]


def test_the_schema_is_one_json_document():
    ended = flopcast("schema")

    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["title"] == "Job"


def test_a_suite_is_validated_row_by_row():
    ended = flopcast("validate", "--suite", "korthikanti", "--json")

    found = json.loads(ended.out, parse_constant=refuse)
    assert (ended.code, ended.err) == (0, "")
    assert [row["id"] for row in found["rows"]] == [row.id for row in load_suite("korthikanti").rows]
    assert all(row["source"] == "korthikanti" for row in found["rows"])


def test_a_suite_in_words_names_every_run():
    ended = flopcast("validate", "--suite", "korthikanti")

    assert ended.code == 0
    assert all(row.id in ended.out for row in load_suite("korthikanti").rows)


def test_jitter_is_the_mean_step_over_the_best_by_system():
    ended = flopcast("calibrate", "jitter", "--suite", "paper")

    assert ended.code == 0
    assert {line.partition(":")[0] for line in ended.out.splitlines()} == {
        row.system for row in load_suite("paper").rows
    }


def test_fabrics_are_fitted_to_the_catalogue_though_no_operator_was_measured(shared, tmp_path):
    data, out = tmp_path / "data", tmp_path / "curves"
    (data / "operators").mkdir(parents=True)
    for path in {file.path for file in (*FABRICS, *WITH_LATENCY, *WITHOUT_LATENCY)}:
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).symlink_to(shared / "data" / path)

    ended = flopcast("calibrate", "fit", "--data", data, "--out", out)

    assert ended.code == 0, ended.err
    for fabric in ("a100-nvswitch", "perlmutter-nvlink", "perlmutter-tcp", "vista-ndr"):
        shipped = catalog.folder("curves") / f"{fabric}.json"
        assert (out / f"{fabric}.json").read_text() == shipped.read_text()


def test_a_folder_without_any_known_measurement_is_told(tmp_path):
    (tmp_path / "operators").mkdir()

    ended = flopcast("calibrate", "fit", "--data", tmp_path, "--out", tmp_path / "curves")

    assert ended.code == 1
    assert "--data" in ended.err


def test_the_demo_compares_with_the_measured_run_and_writes_both_files(tmp_path):
    ended = flopcast("demo", "--out", tmp_path / "new" / "folder")

    assert ended.code == 0
    assert "gpt-neox-20b" in ended.out
    assert "measured" in ended.out
    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} == {
        "report.html",
        "trace.pftrace",
    }
    assert "wrote" in ended.err


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_lists_every_command_with_what_it_answers(word):
    ended = flopcast(word)

    plain = " ".join(ended.out.split())
    assert (ended.code, ended.err) == (0, "")
    assert all(f"{name} {text}" in plain for name, text in COMMANDS.items())


@all_cases("name", COMMANDS)
def test_every_command_has_help_of_its_own(name):
    ended = flopcast(name, "--help")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: flopcast {name}")
    assert len(ended.out.splitlines()) > 5


def test_the_version_is_that_of_the_package():
    from flopcast import __version__

    assert flopcast("--version").out == f"flopcast, version {__version__}\n"


@pytest.mark.parametrize(
    ("wrong", "right"), [("predikt", "predict"), ("memroy", "memory"), ("catalogue", "catalog")]
)
def test_a_misspelt_command_is_told_the_right_one(wrong, right):
    ended = flopcast(wrong)

    assert ended.code == 1
    assert f"fix:     write flopcast {right}" in ended.err


def test_the_examples_in_the_help_of_predict_run(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    selene = ["--model", "gpt3-175b", "--cluster", "selene", "--gpus", "1024", "--stack", "megatron-2022"]
    plan = "dp=16 tp=8 pp=8 mbs=1 gbs=1536 recompute=full precision=fp16"
    shown = " ".join(flopcast("predict", "--help").out.split())

    for words in (
        ["job.yaml"],
        ["job.yaml", "plan.tensor_parallel=4", "plan.data_parallel=2"],
        [*selene, "--plan", plan, "--json"],
    ):
        assert flopcast("predict", *words).code == 0
    assert f'{" ".join(selene[:-2])} --stack megatron-2022 \\ --plan "{plan}"' in shown


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (InfeasibleError("nothing fits; 16 nodes would"), 2, "nothing fits; 16 nodes would"),
        (InternalError("a broken invariant"), 3, "This is a bug of flopcast"),
        (KeyError("x"), 3, "This is a bug of flopcast"),
        (
            SpecError([Problem(field="f", value=1, allowed="2", because="so", fix="f=2")]),
            1,
            "1 error in the input\n\nf = 1 is not allowed",
        ),
    ],
    ids=lambda part: type(part).__name__,
)
def test_an_error_has_its_exit_code(capsys, error, code, told):
    assert command_line._report_error(error) == code

    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err


def test_the_format_of_a_file_is_refused_where_no_file_is_read():
    told = flopcast("predict", "llama-3-8b", "--gpus", "8", "--kind", "megatron")

    assert told.code == 1
    assert "remove --kind megatron, or name a file" in told.err
