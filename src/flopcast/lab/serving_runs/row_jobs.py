"""The serving job of a row of a table, from the facts that tables state.

Answers: which job do these facts describe, or why can it not be predicted?
Elsewhere: which facts a table states (one file a table), predicting jobs (score.py).
"""

from collections.abc import Mapping

from flopcast.errors import SpecError
from flopcast.library import catalog
from flopcast.records import dataclass
from flopcast.requests.serving_request import with_degree
from flopcast.serving.arrivals import requests_of
from flopcast.serving.checks import serving_problems
from flopcast.serving.requests import Requests
from flopcast.spec.deployment import Deployment
from flopcast.spec.engine import Engine
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic

SAME_SHAPES = {  # models that differ from one of the catalogue in their weights alone
    "deepseek-ai/DeepSeek-R1": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3.1": "deepseek-v3",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-v3",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3",
    "moonshotai/Kimi-K2.5": "kimi-k2",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3-235B-A22B-Instruct-2507": "qwen3-235b-a22b",
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3-235B-A22B-Thinking-2507": "qwen3-235b-a22b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
    "Qwen/Qwen3-30B-A3B-Thinking-2507": "qwen3-30b-a3b",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-30b-a3b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Llama-3.1-405B-Instruct": "llama-3.1-405b",
    "meta-llama/Llama-3.3-70B-Instruct": "llama-3.1-70b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "google/gemma-3-12b-it": "gemma-3-12b",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFacts:
    """What a row says of a deployment and its traffic.

    `plan` holds fields of a Deployment; without a tensor-parallel degree, it is the one that flopcast
    chooses. `traffic` holds fields of a Traffic, `trace` the requests if it names a trace. Instances fill
    `devices` devices, by default those of one. Requests of `in_process` reach the engine without a front
    end. `receive_interval`, `wait_passes`, `wait_fraction` and `sampling` are those of the engine.
    """

    model: str
    cluster: str
    engine: str
    plan: Mapping[str, object]
    traffic: Mapping[str, object]
    devices: int = 0
    trace: Requests | None = None
    in_process: bool = False
    receive_interval: int = 1
    wait_passes: int = 0
    wait_fraction: float = 1.0
    sampling: str = "greedy"


def job_of_row(facts: RowFacts) -> tuple[ServingJob | None, str]:
    """Return the job of a row and no reason, or no job and the reason.

    Parameters
    ----------
    facts : RowFacts
        What the row states. Replicas fill the devices that it states; a plan without a degree gets the
        smallest one with which the model fits.
    """
    name = SAME_SHAPES.get(facts.model, facts.model)
    if catalog.known("models", name) is None:
        return None, f"the catalogue has no model {facts.model}"
    plan = Deployment.model_validate(facts.plan)
    per_node = catalog.cluster(facts.cluster).node.devices
    devices = facts.devices or plan.devices
    job = ServingJob(
        model=catalog.model(name),
        cluster=catalog.cluster(facts.cluster, -(-devices // per_node)),
        engine=_engine(facts),
        plan=plan,
        traffic=Traffic.model_validate(facts.traffic),
    )
    try:
        job, _ = with_degree(job)
        replicas = max(devices // job.plan.devices, 1)
        job = job.model_copy(update={"plan": job.plan.model_copy(update={"replicas": replicas})})
        requests = requests_of(job.traffic, facts.trace)
        problems = serving_problems(job, int((requests.prompt_tokens + requests.output_tokens).max()))
    except SpecError as error:
        problems = list(error.problems)
    if problems:
        return None, f"{problems[0].field} = {problems[0].value}: {problems[0].because}"
    return job, ""


def _engine(facts: RowFacts) -> Engine:
    stated = ("receive_interval", "wait_passes", "wait_fraction", "sampling")
    engine = catalog.engine(facts.engine).model_copy(update={name: getattr(facts, name) for name in stated})
    if not facts.in_process:
        return engine
    cost = engine.iteration.model_copy(update={"request_s": 0.0, "request_tpot_ratio": 0.0})
    return engine.model_copy(update={"iteration": cost})
