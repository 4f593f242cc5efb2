"""Commands of TensorRT-LLM: `trtllm-serve` with its YAML file, its workers in Dynamo, and `trtllm-bench`.

Answers: which instance does a command of TensorRT-LLM start?
Elsewhere: flags and keys (tables/trtllm.yaml, settings.py), several commands (launch.py), the command of a
deployment (`written`).

Sources: TensorRT-LLM documentation, trtllm-serve
(https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/trtllm-serve.html), Parallelism in
TensorRT-LLM (https://nvidia.github.io/TensorRT-LLM/features/parallel-strategy.html) and LLM API
(https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html). With enable_attention_dp, each of the
tp_size ranks has its own requests and cache, and max_batch_size and max_num_tokens apply to one rank.
"""

from flopcast.interop.serving.clients import read_trtllm_load
from flopcast.interop.serving.launch_reader import LaunchReader, has_experts
from flopcast.interop.serving.written import HEAD, MODEL, Launch, draft_name, limits, quantised, unusual
from flopcast.library import catalog
from flopcast.spec.engine import Engine
from flopcast.spec.serving_job import ServingJob

ROLES = {"context": "prefill", "generation": "decode", "prefill": "prefill", "decode": "decode",
         "prefill_and_decode": "", "agg": "", "none": ""}  # fmt: skip
POLICIES = {"guaranteed_no_evict": "none", "max_utilization": "recompute"}
QUANTISED = {"fp8": "FP8", "fp8_block": "FP8_BLOCK_SCALES", "int4": "W4A16_AWQ", "nvfp4": "NVFP4",
             "mxfp4": "W4A16_MXFP4", "mxfp4_mxfp8": "W4A8_MXFP4_MXFP8"}  # fmt: skip
METHODS = {"eagle": "Eagle", "mtp": "MTP", "ngram": "NGram", "model": "DraftTarget"}
SERVERS = {"prefill": "CONTEXT", "decode": "GENERATION"}


def read(reader: LaunchReader) -> None:
    """Read the instance that a command starts."""
    entry = reader.read_model("model")
    ranks = reader.count("tensor-parallel-size")
    grouped = reader.flag("enable-attention-dp")
    reader.put(("plan", "tensor_parallel"), 1 if grouped else ranks, "tensor-parallel-size")
    if grouped and ranks > 1:
        reader.put(("plan", "data_parallel"), ranks, "enable-attention-dp")
    if reader.has("pipeline-parallel-size"):
        reader.put(("plan", "pipeline_parallel"), reader.count("pipeline-parallel-size"))
    _read_experts(reader, ranks, entry)
    reader.read_weights("quant-config.quant-algo", reader.words("weights"), entry)
    reader.read_cache("quant-config.kv-cache-quant-algo")
    reader.read_cache("kv-cache-config.dtype")
    reader.choice("backend", reader.words("backends"), "")
    _read_limits(reader, entry)
    _read_drafting(reader)
    if reader.has("dataset"):
        read_trtllm_load(reader)
    if reader.has("disaggregation-mode"):
        reader.role = reader.choice("disaggregation-mode", ROLES, "")
    is_benchmark, chunked = reader.has("dataset"), reader.flag("enable-chunked-prefill")
    if not (is_benchmark or chunked or reader.role == "decode"):
        reader.put_stated("max_prompt_tokens", "max-num-tokens")  # a pass computes a whole prompt


def _read_experts(reader: LaunchReader, ranks: int, entry: str | None) -> None:
    """Read over how many ranks experts are spread; the other ranks divide each expert."""
    key, cut = "moe-expert-parallel-size", "moe-tensor-parallel-size"
    degree = reader.count(key)
    if reader.has(cut) and not reader.has(key):
        degree = max(ranks // reader.count(cut), 1)
    if ranks % degree or (reader.has(cut) and reader.count(cut) * degree != ranks):
        because = (
            f"the degree of expert parallelism, multiplied by the tensor-parallel degree of experts, must "
            f"be {ranks}, the number of ranks"
        )
        reader.contradiction(key, "tensor-parallel-size", because, ranks)
    elif degree > 1 and has_experts(entry) is False:
        reader.remove(key, "1 for a model without experts", f"{entry} has no experts")
    elif degree > 1:
        reader.put(("plan", "expert_parallel"), degree, key)


def _read_limits(reader: LaunchReader, entry: str | None) -> None:
    """Read the limits of a pass, of requests and of the cache."""
    reader.put_count("max_sequences", "max-batch-size")
    reader.put_count("max_tokens", "max-num-tokens")
    part = "kv-cache-config.free-gpu-memory-fraction"
    reader.put_memory(part, part="the memory that the weights leave free, which the KV cache uses")
    if reader.has(part):
        reader.assume(
            "flopcast applies the fraction to the whole device memory instead of the memory that the"
            " weights leave free",
            part,
        )
    reader.read_longest("max-seq-len", entry)
    reader.put_stated("block_tokens", "kv-cache-config.tokens-per-block")
    reader.put_stated("passes_ahead", "disable-overlap-scheduler", lambda key: int(not reader.flag(key)))
    reader.put_stated("prefix_cache", "kv-cache-config.enable-block-reuse", reader.flag)
    reader.put_stated("prefill", "enable-chunked-prefill", reader.prefill)
    graphs = "cuda-graph-config"
    if reader.is_null(graphs) or not reader.flag("use-cuda-graph", default=True):
        reader.put_eager(graphs if reader.is_null(graphs) else "use-cuda-graph")
    wait, full = "batch-wait-timeout-iters", "batch-wait-max-tokens-ratio"
    if reader.has(wait, full) and (share := reader.fraction(full, 0.0)):
        reader.put(("engine", "wait_passes"), reader.count(wait, default=0, least=0), wait)
        reader.put(("engine", "wait_fraction"), share, full)
    policy = "scheduler-config.capacity-scheduler-policy"
    reader.put_stated("preemption", policy, lambda key: reader.choice(key, POLICIES, "none"))


def _read_drafting(reader: LaunchReader) -> None:
    """Read speculative decoding."""
    section = "speculative-config"
    kind, layers = f"{section}.decoding-type", f"{section}.num-nextn-predict-layers"
    if not reader.has(kind):
        return
    drafter = reader.choice(kind, reader.words("drafters"), "")
    count = layers if reader.has(layers) else f"{section}.max-draft-len"
    drafted = reader.required(count)
    if drafter == "model":
        drafter = reader.draft_model(f"{section}.speculative-model")
    if drafter:
        reader.put_draft(drafter, drafted, kind, count)


def written(job: ServingJob, role: str) -> Launch:
    """Return the command of one instance; `role` is "prefill" or "decode" in a pool, else "".

    Settings without a flag are written to a YAML file. Each group with separate requests has one rank.
    """
    plan, engine, kept = job.plan, job.engine, catalog.engine("tensorrt-llm")
    sequences, tokens = limits(job)
    flags = [f"trtllm-serve {MODEL}", f"--tp_size {plan.stage_devices}"]
    flags += unusual("--pp_size", plan.pipeline_parallel)
    flags += unusual("--ep_size", plan.expert_parallel)
    flags += [f"--max_batch_size {sequences}", f"--max_num_tokens {tokens}"]
    if role:
        flags.append(f"--server_role {SERVERS[role]}")
    cache: dict[str, object] = {"free_gpu_memory_fraction": engine.memory_fraction}
    cache |= {"enable_block_reuse": engine.prefix_cache}
    if plan.cache == "fp8":
        cache["dtype"] = "fp8"
    if engine.block_tokens != kept.block_tokens:
        cache["tokens_per_block"] = engine.block_tokens
    settings: dict[str, object] = {"kv_cache_config": cache}
    if plan.data_parallel > 1:
        settings["enable_attention_dp"] = True
    settings |= _scheduling(engine, kept)
    if word := QUANTISED.get(quantised(job)):
        settings["quant_config"] = {"quant_algo": word}
    if plan.drafting is not None:
        drafter, drafted = plan.drafting.drafter, plan.drafting.drafted
        count = "num_nextn_predict_layers" if drafter == "mtp" else "max_draft_len"
        config: dict[str, object] = {"decoding_type": METHODS[drafter], count: drafted}
        if path := draft_name(job) or (HEAD if drafter == "eagle" else ""):
            config["speculative_model_dir"] = path
        settings["speculative_config"] = config
    if role:
        settings["cache_transceiver_config"] = {"backend": "DEFAULT"}
    return Launch(flags=tuple(flags), settings=settings)


def _scheduling(engine: Engine, kept: Engine) -> dict[str, object]:
    """Return the settings of an engine that choose the requests of a pass; `kept` are the defaults."""
    settings: dict[str, object] = {"cuda_graph_config": None} if engine.launch_s else {}
    if not engine.passes_ahead:
        settings["disable_overlap_scheduler"] = True
    if engine.prefill == "chunked":
        settings["enable_chunked_prefill"] = True
    if engine.wait_passes:
        settings["batch_wait_timeout_iters"] = engine.wait_passes
        settings["batch_wait_max_tokens_ratio"] = engine.wait_fraction
    if engine.preemption != kept.preemption:
        policies = {meaning: word.upper() for word, meaning in POLICIES.items()}
        settings["scheduler_config"] = {"capacity_scheduler_policy": policies[engine.preemption]}
    return settings
