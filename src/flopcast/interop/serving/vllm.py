"""Launch commands of vLLM: `vllm serve`, its older module, its container, and its workers in Dynamo.

Answers: which instance does a command of vLLM start?
Elsewhere: flags and keys (tables/vllm.yaml, settings.py), several commands (launch.py), the command of a
deployment (`written`).

Sources: vLLM documentation, Engine Arguments
(https://docs.vllm.ai/en/stable/configuration/engine_args.html), Data Parallel Deployment
(https://docs.vllm.ai/en/stable/serving/data_parallel_deployment.html) and Expert Parallel Deployment
(https://docs.vllm.ai/en/stable/serving/expert_parallel_deployment.html): with --enable-expert-parallel,
experts are spread over tensor-parallel x data-parallel ranks; without it, these ranks divide each expert.
Replicas of a model without experts share nothing.
"""

import json

from flopcast.interop.serving.launch_reader import LaunchReader, has_experts
from flopcast.interop.serving.written import HEAD, MODEL, Launch, draft_name, limits, quantised, unusual
from flopcast.library import catalog
from flopcast.spec.serving_job import ServingJob

ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "", "prefill": "prefill",
         "decode": "decode", "agg": "", "none": ""}  # fmt: skip
QUANTISED = {"fp8": "fp8", "int4": "awq", "nvfp4": "modelopt_fp4", "mxfp4": "mxfp4"}
METHODS = {"eagle": "eagle3", "mtp": "mtp", "ngram": "ngram", "model": "draft_model"}
NGRAM = "[ngram]"  # --speculative-model of older releases
AUTOMATIC = ("auto", "-1")  # --max-model-len
RANK = 16  # --max-lora-rank, by default
SENDERS = {"prefill": "kv_producer", "decode": "kv_consumer"}


def read(reader: LaunchReader) -> None:
    """Read the instance that a command starts."""
    entry = reader.read_model("model")
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
            reader.put_copies("eplb-config.num-redundant-experts", "num-redundant-experts")
    elif groups > 1:
        reader.put_replicas(groups, "replicas")
    reader.read_weights("quantization", reader.words("weights"), entry)
    reader.read_cache("kv-cache-dtype")
    _read_limits(reader, entry)
    _read_drafting(reader, entry)
    if reader.flag("enable-lora"):
        reader.put_adapters("max-lora-rank", reader.count("max-lora-rank", RANK), "max-loras")
    _read_role(reader)


def _read_longest(reader: LaunchReader, entry: str | None) -> None:
    """Read the longest request, for which the KV cache must have room; vLLM may choose it itself."""
    key = "max-model-len"
    if str(reader.raw(key)) in AUTOMATIC:
        reader.assume(
            f"{key} {reader.raw(key)}: requests are as long as the KV cache and the model allow", key
        )
        return
    reader.read_longest(key, entry, "VLLM_ALLOW_LONG_MAX_MODEL_LEN")
    if isinstance(reader.data.get("model"), dict) and reader.has(key):
        reader.put(("engine", "holds_context"), True, key)


def _read_limits(reader: LaunchReader, entry: str | None) -> None:
    """Read the limits of a pass and of the cache."""
    reader.put_count("max_sequences", "max-num-seqs")
    reader.put_count("max_tokens", "max-num-batched-tokens")
    reader.put_memory("gpu-memory-utilization")
    _read_longest(reader, entry)
    plan = reader.part("plan")
    sequences, tokens = plan.get("max_sequences"), plan.get("max_tokens")
    if isinstance(sequences, int) and isinstance(tokens, int) and tokens < sequences:
        because = (
            f"an iteration needs at least one token for each of {sequences} sequences, so vLLM would not "
            "start"
        )
        reader.contradiction("max-num-batched-tokens", "max-num-seqs", because, sequences)
    reader.put_stated("block_tokens", "block-size", reader.block_size)
    reader.put_stated("stream_interval", "stream-interval")
    reader.put_stated("passes_ahead", "async-scheduling", lambda key: int(reader.flag(key)))
    reader.put_stated("prefix_cache", "enable-prefix-caching", reader.flag)
    reader.put_stated("prefill", "enable-chunked-prefill", reader.prefill)
    reader.put_stated("own_all_reduce", "disable-custom-all-reduce", lambda key: not reader.flag(key))
    if reader.flag("enforce-eager"):
        reader.put_eager("enforce-eager")


def _read_drafting(reader: LaunchReader, entry: str | None) -> None:
    """Read speculative decoding; a given model without a method drafts the tokens.

    Without both, the layers for multi-token prediction draft the tokens if the model has such layers.
    """
    section = "speculative-config"
    if not reader.below(section):
        return
    method, count = f"{section}.method", f"{section}.num-speculative-tokens"
    own = "mtp" if entry and catalog.model(entry).mtp else "ngram"
    usual = "model" if reader.has(f"{section}.model") else own
    if not reader.has(method) and "eagle" in reader.text(f"{section}.model").lower():
        usual = "eagle"
    if reader.text(f"{section}.model") == NGRAM:
        usual = "ngram"
    drafter = reader.choice(method, reader.words("drafters"), usual)
    drafted = reader.required(count)
    if drafter == "model":
        drafter = reader.draft_model(f"{section}.model")
    reader.put_draft(drafter, drafted, method, count)


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
    plan, engine, kept = job.plan, job.engine, catalog.engine("vllm")
    sequences, tokens = limits(job)
    flags = [f"vllm serve {MODEL}", f"--tensor-parallel-size {plan.tensor_parallel}"]
    flags += unusual("--pipeline-parallel-size", plan.pipeline_parallel)
    flags += unusual("--data-parallel-size", plan.data_parallel)
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
    flags += ["--no-async-scheduling"] * (not engine.passes_ahead)
    flags += ["--enforce-eager"] * (engine.launch_s > 0)
    flags += ["--disable-custom-all-reduce"] * (not engine.own_all_reduce)
    flags += unusual("--block-size", engine.block_tokens, kept.block_tokens)
    flags += unusual("--stream-interval", engine.stream_interval, kept.stream_interval)
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
        flags += ["--enable-lora", f"--max-lora-rank {plan.adapter_rank}"]
        flags.append(f"--max-loras {job.adapter_slots}")
    if role:
        transfer = {"kv_connector": "NixlConnector", "kv_role": SENDERS[role]}
        flags.append(f"--kv-transfer-config '{json.dumps(transfer)}'")
    return Launch(flags=tuple(flags))
