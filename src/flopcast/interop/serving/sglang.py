"""Launch commands of SGLang: `python -m sglang.launch_server`, `sglang serve`, and its workers in Dynamo.

Answers: which instance does a command of SGLang start?
Elsewhere: flags and keys (tables/sglang.yaml, settings.py), several commands (launch.py), the command of a
deployment (`written`).

Source: SGLang documentation, Server Arguments
(https://docs.sglang.io/advanced_features/server_arguments.html) and DP, DPA and SGLang DP Router
(https://docs.sglang.io/advanced_features/dp_dpa_smg_guide.html). --tp counts all ranks of an instance.
With --enable-dp-attention, these ranks form --dp groups with separate requests and caches, and the limits
on sequences and chunks apply to all groups together; without it, --dp instances share the requests.
"""

from flopcast.interop.serving.launch_reader import LaunchReader, has_experts
from flopcast.interop.serving.written import HEAD, MODEL, Launch, draft_name, limits, quantised, unusual
from flopcast.library import catalog
from flopcast.spec.serving_job import ServingJob

STEPS = 3  # drafted tokens, where the command does not say
QUANTISED = {"fp8": "fp8", "int4": "awq", "nvfp4": "modelopt_fp4", "mxfp4": "mxfp4"}
ALGORITHMS = {"eagle": "EAGLE3", "mtp": "NEXTN", "ngram": "NGRAM", "model": "STANDALONE"}


def read(reader: LaunchReader) -> None:
    """Read the instance that a command starts.

    With data-parallel attention (`--enable-dp-attention`), the ranks form groups, and limits on sequences
    and chunks are divided among them. Without it, `--dp` starts instances that share nothing.
    """
    entry = reader.read_model("model-path")
    ranks, copies = reader.count("tensor-parallel-size"), reader.count("data-parallel-size")
    shared = reader.flag("enable-dp-attention")
    groups = copies if shared else 1
    if ranks % groups:
        because = (
            f"the {ranks} ranks of the instance form equal groups, and {groups} does not divide {ranks}"
        )
        reader.contradiction("data-parallel-size", "tensor-parallel-size", because, ranks)
        groups = 1
    reader.put(("plan", "tensor_parallel"), ranks // groups, "tensor-parallel-size")
    if groups > 1:
        reader.put(("plan", "data_parallel"), groups, "data-parallel-size")
    if copies > 1 and not shared:
        reader.put_replicas(copies, "instances")
    if reader.has("pipeline-parallel-size"):
        reader.put(("plan", "pipeline_parallel"), reader.count("pipeline-parallel-size"))
    _read_experts(reader, ranks, entry)
    reader.read_weights("quantization", reader.words("weights"), entry)
    reader.read_cache("kv-cache-dtype")
    _read_limits(reader, groups, entry)
    _read_drafting(reader, entry)
    if reader.flag("enable-lora"):
        rank = reader.required("max-lora-rank")
        reader.put_adapters("max-lora-rank", rank, "max-loras-per-batch")
    if reader.has("disaggregation-mode"):
        reader.role = reader.choice("disaggregation-mode", reader.words("roles"), "")


def _read_experts(reader: LaunchReader, ranks: int, entry: str | None) -> None:
    """Read over how many ranks experts are spread: over all ranks if tokens are exchanged."""
    key = "expert-parallel-size"
    degree = reader.count(key)
    everywhere = reader.flag("enable-ep-moe") or reader.flag("enable-deepep-moe")
    everywhere = everywhere or reader.choice("moe-a2a-backend", reader.words("exchanges"), "") == "all"
    if everywhere:
        if reader.has(key) and degree != ranks:
            because = "with this all-to-all backend, experts are distributed over all ranks of the instance"
            reader.contradiction(key, "moe-a2a-backend", because, ranks)
        degree = ranks
    if has_experts(entry) is False:
        if degree > 1:
            because = f"{entry} has no experts"
            reader.remove(key, "1 for a model without experts", because)
    elif degree > 1:
        reader.put(("plan", "expert_parallel"), degree, key)
        reader.put_copies("ep-num-redundant-experts")


def _read_limits(reader: LaunchReader, groups: int, entry: str | None) -> None:
    """Read the limits of a pass and of the cache; limits for all groups are divided among them."""
    reader.put_count("max_sequences", "max-running-requests", groups)
    reader.put_memory("mem-fraction-static")
    reader.read_longest("context-length", entry, "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")
    size = "chunked-prefill-size"
    if reader.raw(size) == -1:
        reader.put_count("max_tokens", "max-prefill-tokens")
        text = (
            "chunked prefill is off, but prompts that are longer than the token limit of an iteration "
            "are still divided"
        )
        reader.assume(text, size)
    elif reader.has(size):
        reader.put_count("max_tokens", size, groups)
    elif groups > 1:
        usual = catalog.engine(reader.launch_keys.engine).max_tokens
        reader.put(("plan", "max_tokens"), max(usual // groups, 1), "enable-dp-attention")
        reader.assume(
            f"{size} {usual} (SGLang's default) is the total of all {groups} data-parallel groups"
        )
    if reader.has("max-prefill-tokens") and reader.raw(size) != -1:
        reader.assume(
            "max-prefill-tokens is ignored, because chunked-prefill-size limits the tokens of an iteration"
        )
    reader.put_stated("receive_interval", "scheduler-recv-interval")
    reader.put_stated("passes_ahead", "disable-overlap-schedule", lambda key: int(not reader.flag(key)))
    reader.put_stated("block_tokens", "page-size")
    reader.put_stated("prefix_cache", "disable-radix-cache", lambda key: not reader.flag(key))
    reader.put_stated("own_all_reduce", "disable-custom-all-reduce", lambda key: not reader.flag(key))
    if reader.flag("disable-cuda-graph"):
        reader.put_eager("disable-cuda-graph")
    if reader.flag("enable-mixed-chunk"):
        reader.put(("engine", "prefill"), "chunked", "enable-mixed-chunk")


def _read_drafting(reader: LaunchReader, entry: str | None) -> None:
    """Read speculative decoding: a chain of steps, or a tree of draft tokens."""
    algorithm, steps = "speculative-algorithm", "speculative-num-steps"
    if not reader.has(algorithm):
        return
    drafter = reader.choice(algorithm, reader.words("drafters"), "")
    draft, path = drafter, "speculative-draft-model-path"
    if drafter == "eagle" and not reader.has(path) and entry and catalog.model(entry).mtp:
        draft = "mtp"
        reader.assume("tokens are drafted by the MTP modules of the model, because no draft model is given")
    elif drafter == "model":
        draft = reader.draft_model(path)
    tree = reader.count("speculative-eagle-topk") > 1
    key = "speculative-num-draft-tokens" if tree or not reader.has(steps) else steps
    drafted = reader.count(key, STEPS + (key != steps)) - (key != steps)
    if tree:
        reader.assume("a tree of draft tokens is predicted as a chain of the same number of tokens", key)
    if draft:
        reader.put_draft(draft, max(drafted, 0), algorithm, key)


def written(job: ServingJob, role: str) -> Launch:
    """Return the command of one instance.

    Parameters
    ----------
    job : ServingJob
        The job of the pool, if there are pools.
    role : str
        "prefill" or "decode" in a pool, else "".
    """
    plan, engine, kept = job.plan, job.engine, catalog.engine("sglang")
    sequences, tokens = limits(job)
    groups = plan.data_parallel
    flags = [f"python -m sglang.launch_server --model-path {MODEL}", f"--tp {plan.stage_devices}"]
    flags += unusual("--pp-size", plan.pipeline_parallel)
    if groups > 1:
        flags += [f"--dp {groups}", "--enable-dp-attention"]
    flags += unusual("--ep-size", plan.expert_parallel)
    flags += unusual("--ep-num-redundant-experts", plan.redundant_experts, 0)
    if word := QUANTISED.get(quantised(job)):
        flags.append(f"--quantization {word}")
    if plan.cache == "fp8":
        flags.append("--kv-cache-dtype fp8_e4m3")
    flags += [
        f"--max-running-requests {sequences * groups}",
        f"--chunked-prefill-size {tokens * groups}",
        f"--mem-fraction-static {engine.memory_fraction:g}",
    ]
    flags += unusual("--page-size", engine.block_tokens, kept.block_tokens)
    flags += unusual("--scheduler-recv-interval", engine.receive_interval, kept.receive_interval)
    flags += ["--disable-overlap-schedule"] * (not engine.passes_ahead)
    flags += ["--disable-cuda-graph"] * (engine.launch_s > 0)
    flags += ["--disable-custom-all-reduce"] * (not engine.own_all_reduce)
    flags += ["--disable-radix-cache"] * (not engine.prefix_cache)
    flags += ["--enable-mixed-chunk"] * (engine.prefill == "chunked")
    if plan.drafting is not None:
        drafter, drafted = plan.drafting.drafter, plan.drafting.drafted
        flags += [f"--speculative-algorithm {ALGORITHMS[drafter]}", f"--speculative-num-steps {drafted}"]
        flags += ["--speculative-eagle-topk 1", f"--speculative-num-draft-tokens {drafted + 1}"]
        if path := draft_name(job) or (HEAD if drafter == "eagle" else ""):
            flags.append(f"--speculative-draft-model-path {path}")
    if plan.adapter_rank is not None:
        flags += ["--enable-lora", f"--max-lora-rank {plan.adapter_rank}"]
        flags.append(f"--max-loras-per-batch {job.adapter_slots}")
    flags += unusual("--disaggregation-mode", role, "")
    return Launch(flags=tuple(flags))
