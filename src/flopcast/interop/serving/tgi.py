"""Launch commands of Hugging Face's text-generation-inference: the launcher and its container.

Answers: which instance does a command of TGI start?
Elsewhere: flags (tables/tgi.yaml, settings.py), several commands (launch.py).

Source: text-generation-launcher arguments
(https://huggingface.co/docs/text-generation-inference/reference/launcher). The catalogue has no entry for
TGI. Its continuous batching, cache blocks and chunked prefill are those of vLLM, so vLLM's entry is used
with TGI's own defaults: 128 requests and all of the memory.
"""

from flopcast.interop.serving.launch_reader import LaunchReader

REQUESTS = 128  # --max-concurrent-requests, by default


def read(reader: LaunchReader) -> None:
    """Read the instance that a command starts."""
    entry = reader.read_model("model-id")
    reader.assume("text-generation-inference is predicted with the constants of vLLM")
    if reader.has("sharded") and not reader.flag("sharded"):
        reader.put(("plan", "tensor_parallel"), 1, "sharded")
        if reader.count("num-shard") > 1:
            because = "without sharding, the model runs on one device"
            reader.contradiction("num-shard", "sharded", because)
    elif reader.has("num-shard"):
        reader.put(("plan", "tensor_parallel"), reader.count("num-shard"), "num-shard")
    else:
        reader.assume(
            "num-shard is not given: TGI would use all devices, but flopcast uses as few as possible"
        )
    reader.read_weights("quantize", reader.words("weights"), entry)
    reader.read_cache("kv-cache-dtype")
    limit = reader.first("max-batch-size", "max-concurrent-requests")
    if reader.has(limit):
        reader.put_count("max_sequences", limit)
    else:
        reader.put(("plan", "max_sequences"), REQUESTS)
        reader.assume(f"max_sequences {REQUESTS}, which is TGI's default of --max-concurrent-requests")
    reader.put_count("max_tokens", "max-batch-prefill-tokens")
    reader.put_memory("cuda-memory-fraction")
    reader.note_longest("max-total-tokens")
    reader.note_longest("max-input-tokens")
    cached = str(reader.raw("prefix-caching")).lower() in ("1", "true")
    reader.put_stated("prefix_cache", "prefix-caching", lambda _: cached)
    if reader.has("speculate"):
        reader.put_draft("ngram", reader.count("speculate", least=0), "speculate")
