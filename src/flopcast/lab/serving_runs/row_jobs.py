"""The serving job of a row of a table, from the facts that tables state.

Answers: which job do these facts describe, or why can it not be predicted?
Elsewhere: which facts a table states (aiconfigurator.py), predicting jobs (score.py).

InferenceMAX sends ten times as many requests as are open at once, with lengths drawn between 0.8 of the
stated ones and these, without a shared prefix (README of InferenceMAX: CONC, RANDOM_RANGE_RATIO). Rows with
its three pairs of lengths are read so, all others with the stated lengths.
"""

from dataclasses import dataclass

from flopcast.errors import SpecError
from flopcast.library import catalog
from flopcast.serving.checks import serving_problems
from flopcast.spec.deployment import Deployment
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic

SAME_SHAPES = {  # models that differ from one of the catalogue in their weights alone
    "deepseek-ai/DeepSeek-R1": "deepseek-v3",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-v3",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3",
    "moonshotai/Kimi-K2.5": "kimi-k2",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
}
ROUNDS = 10  # requests of each place of the concurrency
INFERENCE_MAX = ((1024, 1024), (1024, 8192), (8192, 1024))  # longest prompts and outputs of its benchmarks
SHORTEST_SHARE = 0.8  # of the longest: lengths are drawn evenly between the two


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFacts:
    """What a row says of a deployment and its traffic."""

    model: str
    cluster: str
    engine: str
    tensor_parallel: int
    data_parallel: int
    expert_parallel: int
    weights: str
    expert_weights: str
    cache: str
    concurrency: int
    prompt_tokens: int
    output_tokens: int


def job_of_row(facts: RowFacts) -> tuple[ServingJob | None, str]:
    """Return the job of a row and no reason, or no job and the reason."""
    name = SAME_SHAPES.get(facts.model, facts.model)
    if catalog.known("models", name) is None:
        return None, f"the catalogue has no model {facts.model}"
    per_node = catalog.cluster(facts.cluster).node.devices
    plan = Deployment.model_validate(
        {
            "tensor_parallel": facts.tensor_parallel,
            "data_parallel": facts.data_parallel,
            "expert_parallel": facts.expert_parallel,
            "weights": facts.weights,
            "expert_weights": facts.expert_weights,
            "cache": facts.cache,
            "replicas": 1,
        }
    )
    job = ServingJob(
        model=catalog.model(name),
        cluster=catalog.cluster(facts.cluster, -(-facts.tensor_parallel * facts.data_parallel // per_node)),
        engine=catalog.engine(facts.engine),
        plan=plan,
        traffic=Traffic.model_validate(
            {
                "concurrency": facts.concurrency,
                "prompt_tokens": _lengths(facts.prompt_tokens, facts),
                "output_tokens": _lengths(facts.output_tokens, facts),
                "requests": ROUNDS * facts.concurrency,
            }
        ),
    )
    try:
        problems = serving_problems(job, facts.prompt_tokens + facts.output_tokens)
    except SpecError as error:
        problems = list(error.problems)
    if problems:
        return None, f"{problems[0].field} = {problems[0].value}: {problems[0].because}"
    return job, ""


def _lengths(tokens: int, facts: RowFacts) -> str | int:
    """Return the lengths of requests whose longest has so many tokens."""
    if (facts.prompt_tokens, facts.output_tokens) not in INFERENCE_MAX:
        return tokens
    return f"uniform({int(SHORTEST_SHARE * tokens)},{tokens})"
