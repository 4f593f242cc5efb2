"""`flopcast diagnose`: text and JSON for the same log, and clear errors."""

import json

from command_line import PLAN, WORDS, flopcast
from conftest import REPOSITORY

JOB = (*WORDS, "--gpus", "8", "--plan", PLAN)
LOG = REPOSITORY / "tests" / "lab" / "logs" / "megatron-lm.log"


def test_text_and_json_name_the_same_suspects_in_the_same_order():
    text = flopcast("diagnose", *JOB, "--log", LOG)
    found = json.loads(flopcast("diagnose", *JOB, "--log", LOG, "--json").out)

    assert text.code == 0
    titles = [line[4:] for line in text.out.splitlines() if line[:1].isdigit()]
    assert titles == [suspect["title"] for suspect in found["suspects"]]
    assert found["suspects"][0]["name"] == "attention_not_fused"
    unsure = [each["name"] for each in found["suspects"] if each["basis"] == "unsettled"]
    assert unsure
    assert [each["name"] for each in found["suspects"][-len(unsure) :]] == unsure
    assert found["measured_s"] == found["measured_step"]["median_s"]


def test_without_a_log_the_settings_are_judged():
    changes = ("plan.recompute=full", "stack.attention_kernel=flash")

    found = json.loads(flopcast("diagnose", *JOB, *changes, "--json").out)

    assert found["measured_s"] is None
    assert "recompute_not_needed" in [suspect["name"] for suspect in found["suspects"]]


def test_a_report_begins_with_the_measured_steps_and_so_does_that_of_a_prediction_with_a_log(tmp_path):
    """LOG states another length of sequences than JOB, which both pages say."""
    for command in ("diagnose", "predict"):
        ended = flopcast(command, *JOB, "--log", LOG, "--report", tmp_path / f"{command}.html")

        page = (tmp_path / f"{command}.html").read_text(encoding="utf-8")
        assert ended.code == 0
        assert page.index("Measured and predicted steps") < page.index("Where the time goes")
        assert "sequence length" in page[page.index('id="measured"') : page.index('id="time"')]


def test_without_a_cluster_the_fix_is_to_name_the_machine_of_the_run(tmp_path):
    script, job = tmp_path / "run.sh", tmp_path / "job.yaml"
    script.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 256 --bf16"
        " --num-attention-heads 4 --seq-length 512 --micro-batch-size 1 --max-position-embeddings 512\n"
    )
    job.write_text("model: llama-3-8b\nbatch: {seq: 4096}\n")

    for described in ((script,), (job,), ("llama-3-8b", "--gpus", "8")):
        ended = flopcast("diagnose", *described, "--log", LOG, "--json")

        (missing,) = json.loads(ended.out)["faults"]
        assert ended.code == 1
        assert missing["message"] == "cluster is missing"
        assert missing["fix"].startswith("add --cluster NAME")
        assert "dgx-h100" not in missing["fix"]


def test_a_file_that_is_no_log_or_no_trace_is_refused_by_name(tmp_path):
    place = tmp_path / "words.txt"
    place.write_text("nothing of interest\n", encoding="utf-8")

    for option in ("--log", "--trace"):
        ended = flopcast("diagnose", *JOB, option, place)

        assert ended.code == 1
        assert "words.txt" in ended.err
