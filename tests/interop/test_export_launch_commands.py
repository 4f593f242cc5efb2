"""Launch commands that are written say the deployment: read back, they are the same job."""

import itertools

import pytest
from all_cases import all_cases
from command_line import flopcast as command

import flopcast
from flopcast.errors import SpecError
from flopcast.interop.exports.kinds import SERVING
from flopcast.requests.job_request import JobRequest
from flopcast.requests.serving_request import resolve_serving
from flopcast.requests.sources import source_of

DENSE, EXPERTS = "llama-3.1-8b", "deepseek-v3"
LIMITS = ("", "max_sequences=64 max_tokens=4096")
FORMATS = ("", "weights=fp8 cache=fp8")
DRAFTS = ("", "draft=eagle drafted=3", "draft=ngram drafted=2 accepted=1.5")
CHANGES = ({}, {"memory_fraction": 0.8, "prefix_cache": False, "block_tokens": 64}, {"launch_s": "31 us"})
POOLS = "prefill.tp=2 prefill.replicas=2 decode.tp=4 decode.max_sequences=32"
DEGREES = {  # degrees that every engine has
    DENSE: ("tp=1 replicas=8", "tp=2 replicas=2", "tp=2 pp=2 replicas=1", POOLS),
    EXPERTS: ("tp=8 replicas=1", "tp=8 ep=8 replicas=1", "dp=8 ep=8 tp=1 replicas=1"),
}


def cases():
    for model, degrees in DEGREES.items():
        formats = FORMATS if model == DENSE else ("", "cache=fp8")
        for kind, words in itertools.product(SERVING, itertools.product(degrees, LIMITS, formats, DRAFTS)):
            degree, limits, *_ = words
            if not (limits and "prefill" in degree) and not (words[3] and "pp=" in degree):
                for change in CHANGES:
                    yield kind, model, " ".join(filter(None, words)), change


def job_of(kind, model, plan, change):
    engine = {"base": SERVING[kind].engine, **change}
    return resolve_serving(
        JobRequest(model=model, engine=engine, plan=plan, cluster="dgx-h200:2", traffic="concurrency=4")
    )


def said(job):
    """Degrees, formats, limits and settings of an engine that commands state."""
    pools = [
        (
            kind.plan.tensor_parallel,
            kind.plan.data_parallel,
            kind.plan.expert_parallel,
            kind.plan.pipeline_parallel,
            kind.replicas,
            kind.plan.max_sequences or job.engine.max_sequences,
            kind.plan.max_tokens or job.engine.max_tokens,
        )
        for kind in job.kinds
    ]
    plan, drafting = job.plan, job.plan.drafting
    formats = plan.weights, plan.format_of_experts, plan.cache
    draft = drafting and (drafting.drafter, drafting.drafted)
    return pools, formats, draft, plan.adapter_rank, job.adapter_slots, engine_of(job)


def engine_of(job):
    """The engine without the longest prompt, which TensorRT-LLM takes from the tokens of a pass."""
    longest = job.engine.max_prompt_tokens
    assert longest in (0, job.plan.max_tokens)
    return job.engine.model_copy(update={"max_prompt_tokens": 0})


@all_cases("kind, model, plan, change", list(cases()))
def test_written_commands_are_read_back_as_the_same_engine_deployment_and_limits(kind, model, plan, change):
    job = job_of(kind, model, plan, change)

    made = SERVING[kind].export(job)
    source = source_of(made.files[0][1], "serve.sh", JobRequest())
    accepted = () if job.plan.drafting is None else (f"plan.accepted={job.plan.drafting.accepted}",)
    again = resolve_serving(
        JobRequest(source=source, cluster="dgx-h200:2", traffic="concurrency=4", changes=accepted)
    )

    assert [note for note in made.notes if "has no flag for" in note] == []
    assert said(again) == said(job)
    assert again.model == job.model


NOTES = (  # what an engine has no word for → the field of its note
    ("vllm", EXPERTS, "tp=8 ep=4 replicas=1", {}, "expert_parallel 4"),
    ("trtllm", EXPERTS, "tp=2 dp=4 ep=8 replicas=1", {}, "tensor_parallel 2"),
    ("sglang", DENSE, "tp=2 weights=mxfp4_mxfp8 replicas=1", {}, "weights mxfp4_mxfp8"),
    ("vllm", DENSE, "tp=2 replicas=1", {"preemption": "none"}, "engine.preemption none"),
    ("trtllm", DENSE, "tp=2 replicas=1 adapter_rank=16", {}, "adapter_rank 16"),
)


@all_cases("kind, model, plan, change, field", NOTES)
def test_a_value_that_an_engine_cannot_take_is_a_note(kind, model, plan, change, field):
    notes = SERVING[kind].export(job_of(kind, model, plan, change)).notes

    assert [
        note for note in notes if f" has no flag for {field.replace(' ', '=')}; the commands use " in note
    ]


@all_cases("kind", ("vllm", "sglang"))
def test_adapters_are_written_and_read(kind):
    job = job_of(kind, DENSE, "tp=2 replicas=1 adapter_rank=32 adapter_slots=4", {})

    text = SERVING[kind].export(job).files[0][1]

    plan = source_of(text, "serve.sh", JobRequest()).document.data["plan"]
    assert (plan["adapter_rank"], plan["adapter_slots"]) == (32, 4)


def test_waits_for_other_prompts_are_written_and_read():
    changes = {"wait_passes": 20, "wait_fraction": 0.9}

    text = SERVING["trtllm"].export(job_of("trtllm", DENSE, "tp=2 replicas=1", changes)).files[0][1]

    assert source_of(text, "serve.sh", JobRequest()).document.data["engine"].items() >= changes.items()


def test_the_number_of_tokens_that_are_sent_together_is_written_and_read():
    change = {"stream_interval": 20}

    text = SERVING["vllm"].export(job_of("vllm", DENSE, "tp=2 replicas=1", change)).files[0][1]

    assert b"--stream-interval 20" in text
    assert source_of(text, "serve.sh", JobRequest()).document.data["engine"].items() >= change.items()


def test_each_instance_has_devices_and_a_port_of_its_own():
    text = SERVING["vllm"].export(job_of("vllm", DENSE, "tp=4 replicas=3", {})).files[0][1].decode()

    devices = [line.split()[0] for line in text.splitlines() if line.startswith("CUDA")]
    assert devices == [f"CUDA_VISIBLE_DEVICES={ids}" for ids in ("0,1,2,3", "4,5,6,7", "0,1,2,3")]
    assert [line for line in text.splitlines() if line.startswith("#")][2:] == [
        "# on node 1",
        "# on node 1",
        "# on node 2",
    ]
    assert len({line for line in text.splitlines() if "--port" in line}) == 3


def test_jobs_that_train_and_jobs_that_serve_have_kinds_of_their_own():
    served = job_of("vllm", DENSE, "tp=2 replicas=1", {})
    trained = flopcast.job(model=DENSE, cluster="dgx-h100:1", plan="dp=8 gbs=64")

    with pytest.raises(SpecError, match="the job serves"):
        flopcast.export_job(served, "megatron")
    with pytest.raises(SpecError, match="the job trains"):
        flopcast.export_job(trained, "vllm")
    assert b"vllm serve" in flopcast.export_job(served, "vllm").files[0][1]


def test_a_training_job_is_told_to_be_one_instead_of_each_of_its_keys():
    ended = command("export", "vllm", "llama-3-8b", "--gpus", "8", "--plan", "dp=8 mbs=1 gbs=64")

    assert ended.code == 1
    assert "the job trains" in ended.err
    assert "is not a known key" not in ended.err
