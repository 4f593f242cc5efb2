"""Launch commands of vLLM: `vllm serve`, its older module, its container, and Dynamo's workers of it.

Answers: which instance does a command of vLLM start?
Elsewhere: flags and keys (tables/vllm.yaml, settings.py), several commands (launch.py), the command of a
deployment (`written`).

Sources: vLLM documentation, Engine Arguments (https://docs.vllm.ai/en/stable/configuration/engine_args.html),
Data Parallel Deployment (https://docs.vllm.ai/en/stable/serving/data_parallel_deployment.html) and
Expert Parallel Deployment (https://docs.vllm.ai/en/stable/serving/expert_parallel_deployment.html): with
--enable-expert-parallel, experts are spread over tensor-parallel x data-parallel ranks; without it these
ranks cut each expert. Replicas of a model without experts share nothing.
"""

import json

from flopcast.interop.serving.common import (
    draft_model,
    has_experts,
    note_longest,
    put_adapters,
    put_copies,
    put_count,
    put_draft,
    put_memory,
    read_cache,
    read_dtype,
    read_model,
    read_weights,
)
from flopcast.interop.serving.settings import LaunchReader
from flopcast.interop.serving.written import HEAD, MODEL, Launch, draft_name, limits, quantised, usual
from flopcast.spec.serving_job import ServingJob

FORMATS = {  # --quantization → weights; "" where the checkpoint says how it is stored
    "fp8": "fp8",
    "ptpc_fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "modelopt": "fp8",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "bitsandbytes": "int4",
    "compressed-tensors": "",
    "none": "",
}
DRAFTERS = {
    "eagle": "eagle",
    "eagle3": "eagle",
    "mtp": "mtp",
    "deepseek_mtp": "mtp",
    "ngram": "ngram",
    "draft_model": "model",
}
ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "", "prefill": "prefill",
         "decode": "decode", "agg": "", "none": ""}  # fmt: skip
QUANTISED = {"fp8": "fp8", "int4": "awq", "nvfp4": "modelopt_fp4", "mxfp4": "mxfp4"}
METHODS = {"eagle": "eagle3", "mtp": "mtp", "ngram": "ngram", "model": "draft_model"}
RANK = 16  # --max-lora-rank, by default
SENDERS = {"prefill": "kv_producer", "decode": "kv_consumer"}


def read(reader: LaunchReader) -> None:
    """Read the instance that a command starts."""
    entry = read_model(reader, "model")
    ranks, groups = reader.count("tensor-parallel-size"), reader.count("data-parallel-size")
    spread, experts = reader.flag("enable-expert-parallel"), has_experts(entry)
    reader.put(("plan", "tensor_parallel"), ranks, "tensor-parallel-size")
    if reader.has("pipeline-parallel-size"):
        reader.put(("plan", "pipeline_parallel"), reader.count("pipeline-parallel-size"))
    if experts is False and spread:
        because = f"{entry} has no experts, so vLLM would not start with this flag"
        reader.remove("enable-expert-parallel", "no such flag, unless the model has experts", because)
    if experts or spread:
        reader.put(("plan", "data_parallel"), groups, "data-parallel-size")
        if spread:
            reader.put(("plan", "expert_parallel"), ranks * groups, "enable-expert-parallel")
            put_copies(reader, "eplb-config.num-redundant-experts", "num-redundant-experts")
    elif groups > 1:
        reader.replicas = groups
        reader.assume(
            f"data-parallel-size {groups}: the deployment has {groups} independent replicas",
            "data-parallel-size",
        )
    read_weights(reader, "quantization", FORMATS, entry, "the format that the model was published in")
    read_cache(reader, "kv-cache-dtype")
    read_dtype(reader)
    _read_limits(reader)
    _read_drafting(reader)
    if reader.flag("enable-lora"):
        put_adapters(reader, "max-lora-rank", reader.count("max-lora-rank", RANK), "max-loras")
    _read_role(reader)


def _read_limits(reader: LaunchReader) -> None:
    """Read what bounds a pass and the cache."""
    put_count(reader, "max_sequences", "max-num-seqs")
    put_count(reader, "max_tokens", "max-num-batched-tokens")
    put_memory(reader, "gpu-memory-utilization")
    note_longest(reader, "max-model-len")
    plan = reader.part("plan")
    sequences, tokens = plan.get("max_sequences"), plan.get("max_tokens")
    if isinstance(sequences, int) and isinstance(tokens, int) and tokens < sequences:
        because = (
            f"an iteration needs at least one token for each of {sequences} sequences, so vLLM would not "
            "start"
        )
        reader.contradiction("max-num-batched-tokens", "max-num-seqs", because, sequences)
    if reader.has("block-size"):
        reader.put(("engine", "block_tokens"), reader.count("block-size"), "block-size")
    if reader.has("stream-interval"):
        reader.put(("engine", "stream_interval"), reader.count("stream-interval"), "stream-interval")
    if reader.has("enable-prefix-caching"):
        cached = reader.flag("enable-prefix-caching")
        reader.put(("engine", "prefix_cache"), cached, "enable-prefix-caching")
    if reader.has("enable-chunked-prefill"):
        parts = "chunked" if reader.flag("enable-chunked-prefill") else "whole"
        reader.put(("engine", "prefill"), parts, "enable-chunked-prefill")


def _read_drafting(reader: LaunchReader) -> None:
    """Read speculative decoding; without a method, a model that is given drafts."""
    section = "speculative-config"
    if not reader.below(section):
        return
    method, count = f"{section}.method", f"{section}.num-speculative-tokens"
    usual = "model" if reader.has(f"{section}.model") else "ngram"
    if not reader.has(method) and "eagle" in reader.text(f"{section}.model").lower():
        usual = "eagle"
    drafter = reader.choice(method, DRAFTERS, usual)
    drafted = reader.required(count)
    if drafter == "model":
        drafter = draft_model(reader, f"{section}.model")
    put_draft(reader, drafter, drafted, method, count)


def _read_role(reader: LaunchReader) -> None:
    """Read whether the instance computes prompts, decodes, or does both."""
    for key in ("kv-transfer-config.kv-role", "disaggregation-mode"):
        if reader.has(key):
            reader.role = reader.choice(key, ROLES, "")
    if reader.flag("is-prefill-worker"):
        reader.role = "prefill"
    elif reader.flag("is-decode-worker"):
        reader.role = "decode"


def written(job: ServingJob, role: str) -> Launch:
    """Return the command of one instance; `role` is "prefill" or "decode" in a pool, else "".

    vLLM spreads experts over all ranks of a stage or over none.
    """
    plan, engine, kept = job.plan, job.engine, usual("vllm")
    sequences, tokens = limits(job)
    flags = [f"vllm serve {MODEL}", f"--tensor-parallel-size {plan.tensor_parallel}"]
    if plan.pipeline_parallel > 1:
        flags.append(f"--pipeline-parallel-size {plan.pipeline_parallel}")
    if plan.data_parallel > 1:
        flags.append(f"--data-parallel-size {plan.data_parallel}")
    flags += ["--enable-expert-parallel"] * (plan.expert_parallel > 1)
    if plan.redundant_experts:
        copies = json.dumps({"num_redundant_experts": plan.redundant_experts})
        flags.append(f"--enable-eplb --eplb-config '{copies}'")
    if word := QUANTISED.get(quantised(job)):
        flags.append(f"--quantization {word}")
    if plan.cache == "fp8":
        flags.append("--kv-cache-dtype fp8")
    flags += [
        f"--max-num-seqs {sequences}",
        f"--max-num-batched-tokens {tokens}",
        f"--gpu-memory-utilization {engine.memory_fraction:g}",
    ]
    if engine.block_tokens != kept.block_tokens:
        flags.append(f"--block-size {engine.block_tokens}")
    if engine.stream_interval != kept.stream_interval:
        flags.append(f"--stream-interval {engine.stream_interval}")
    flags.append("--enable-prefix-caching" if engine.prefix_cache else "--no-enable-prefix-caching")
    if engine.prefill != kept.prefill:
        flags.append("--no-enable-chunked-prefill")
    if plan.drafting is not None:
        model = draft_name(job) or (HEAD if plan.drafting.drafter == "eagle" else "")
        config: dict[str, object] = {"method": METHODS[plan.drafting.drafter]}
        config |= {"model": model} if model else {}
        config |= {"num_speculative_tokens": plan.drafting.drafted}
        flags.append(f"--speculative-config '{json.dumps(config)}'")
    if plan.adapter_rank is not None:
        flags += [
            "--enable-lora",
            f"--max-lora-rank {plan.adapter_rank}",
            f"--max-loras {job.adapter_slots}",
        ]
    if role:
        transfer = {"kv_connector": "NixlConnector", "kv_role": SENDERS[role]}
        flags.append(f"--kv-transfer-config '{json.dumps(transfer)}'")
    return Launch(flags=tuple(flags))
