"""Ladder residuals (arXiv:2501.06589): all-reduces that run beside the next half of a block.

Public facts: Llama 3 70B and 8B in 16 bits on eight H100, prompts of 1,024 tokens and outputs of 512,
batches of 1, 4, 16 and 64. The script of the authors (scripts/throughput-70B.sh of
mayank31398/ladder-residual-inference) turns on PyTorch's all-reduce inside a node; engines have one too.
No interference between messages and products is published, and none is assumed. Nothing is fitted.
"""

import pytest
import yaml
from all_cases import all_cases
from command_line import flopcast

from flopcast import predict_serving, serving_job
from flopcast.library.curves import load_serving_book
from flopcast.search.deployments.space import DeploymentSpace, deployments_of
from flopcast.serving.instances import times_of
from flopcast.spec.iteration_cost import IterationCost

PROMPT, OUTPUT = 1024, 512
WORDS = ["predict", "llama-3.1-8b", "--engine", "vllm", "--cluster", "dgx-h100:1"]


def headline(shared):
    found = yaml.safe_load((shared / "validation" / "headlines.yaml").read_text(encoding="utf-8"))
    return next(row for row in found["headlines"] if row["id"] == "ladder_residual_tp8")


def job_of(residual, model="llama-3.1-70b", ranks=8, sequences=64):
    job = serving_job(
        model,
        engine="vllm",
        cluster="dgx-h100",
        gpus=8,
        plan=f"tp={ranks} replicas=1 weights=bf16 residual={residual}",
        traffic=f"concurrency={sequences} prompt={PROMPT} output={OUTPUT} requests={2 * sequences}",
    )
    bare = IterationCost(host_s=0.0)  # gpt-fast: compiled graphs, and no server
    return job.model_copy(update={"engine": job.engine.model_copy(update={"iteration": bare})})


def batch_s(residual, model, sequences):
    """Seconds of one batch: all prompts in one pass, then a pass for each further token."""
    job = job_of(residual, model, sequences=sequences)
    run = times_of(job, load_serving_book(job.cluster), PROMPT + OUTPUT)
    prompts = run(
        float(sequences * PROMPT), float(sequences), float(sequences * PROMPT), sequences * PROMPT**2 / 2
    )
    contexts = (PROMPT + 1.0 + place for place in range(OUTPUT - 1))
    return prompts + sum(
        run(float(sequences), float(sequences), sequences * each, sequences * each) for each in contexts
    )


def test_ladder_residuals_of_70b_are_as_much_faster_as_published_with_full_batches(shared):
    """The gain is 1.24 with 64 sequences (published: 1.29), and 1.07 to 1.17 with fewer.

    The text that we read does not say which batch the published ratio is of.
    """
    found = headline(shared)
    ratios = {
        sequences: batch_s("sequential", "llama-3.1-70b", sequences)
        / batch_s("ladder", "llama-3.1-70b", sequences)
        for sequences in found["workload"]["batches"]
    }

    assert ratios[64] == pytest.approx(found["results"]["70B_p2p"], abs=0.06)
    assert sorted(ratios.values()) == list(ratios.values())
    assert ratios[1] > 1.05


def test_the_smaller_model_gains_more(shared):
    """1.37 with 64 sequences; a summary of the paper states 1.46 and no batch."""
    small = batch_s("sequential", "llama-3.1-8b", 64) / batch_s("ladder", "llama-3.1-8b", 64)

    assert small == pytest.approx(headline(shared)["results"]["8B_p2p_reported_in_summary"], abs=0.1)


@all_cases("ranks", (2, 8))
def test_a_ladder_hides_messages_and_nothing_else(ranks):
    plain, ladder = (
        predict_serving(job_of(each, "llama-3.1-8b", ranks, 8)) for each in ("sequential", "ladder")
    )
    mean_s = [each.latencies["tpot"]["mean"].value for each in (plain, ladder)]

    assert mean_s[1] < mean_s[0]
    assert mean_s[1] > mean_s[0] * (1 - plain.shares["communication"]) * 0.98
    assert ladder.shares["communication"] < 0.01
    assert sum(ladder.shares.values()) == pytest.approx(1)


def test_a_search_compares_residuals_and_a_report_names_them():
    space = DeploymentSpace(tp="8", residual="sequential,ladder")

    assert {each.residual for each in deployments_of(job_of("sequential"), space)} == {
        "sequential",
        "ladder",
    }
    assert "residual=ladder" in flopcast(*WORDS, "--plan", "tp=2 residual=ladder").out


@all_cases(
    "model, engine, plan, because",
    (
        ("llama-3.1-8b", "vllm", "tp=1", "has no communication"),
        ("llama-3.1-8b", "nanoflow", "tp=2", "already overlaps communication"),
        ("gpt-neox-20b", "vllm", "tp=2", "have the same input"),
    ),
)
def test_where_no_message_can_run_beside_the_next_half_a_ladder_is_refused(model, engine, plan, because):
    words = ["predict", model, "--engine", engine, "--cluster", "dgx-h100:1"]

    ended = flopcast(*words, "--plan", f"{plan} residual=ladder")

    assert ended.code == 1
    assert because in ended.err
