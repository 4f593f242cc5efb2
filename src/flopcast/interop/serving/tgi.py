"""Launch commands of Hugging Face's text-generation-inference: the launcher and its container.

Answers: which instance does a command of TGI start?
Elsewhere: flags (tables/tgi.yaml, settings.py), several commands (launch.py).

Source: text-generation-launcher arguments
(https://huggingface.co/docs/text-generation-inference/reference/launcher). TGI is no engine of the
catalogue. Its continuous batches, blocks of the cache and chunked prompts are those of vLLM, whose entry
is taken, with TGI's own defaults: 128 requests and all of the memory.
"""

from flopcast.interop.serving.common import (
    note_longest,
    put_count,
    put_draft,
    put_memory,
    read_cache,
    read_dtype,
    read_model,
    read_weights,
)
from flopcast.interop.serving.settings import LaunchReader

FORMATS = {  # --quantize → weights; "" where the checkpoint says how it is stored
    "fp8": "fp8",
    "awq": "int4",
    "gptq": "int4",
    "marlin": "int4",
    "bitsandbytes-nf4": "int4",
    "bitsandbytes-fp4": "int4",
    "compressed-tensors": "",
}
REQUESTS = 128  # --max-concurrent-requests, by default


def read(reader: LaunchReader) -> None:
    """Read the instance that a command starts."""
    entry = read_model(reader, "model-id")
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
            "num-shard is not given; TGI would use all visible devices, flopcast uses as few as possible"
        )
    read_weights(reader, "quantize", FORMATS, entry, "the format that the model was published in")
    read_cache(reader, "kv-cache-dtype")
    read_dtype(reader)
    limit = reader.first("max-batch-size", "max-concurrent-requests")
    if reader.has(limit):
        put_count(reader, "max_sequences", limit)
    else:
        reader.put(("plan", "max_sequences"), REQUESTS)
        reader.assume(f"max_sequences {REQUESTS}, which is TGI's default of --max-concurrent-requests")
    put_count(reader, "max_tokens", "max-batch-prefill-tokens")
    put_memory(reader, "cuda-memory-fraction")
    note_longest(reader, "max-total-tokens")
    note_longest(reader, "max-input-tokens")
    if reader.has("prefix-caching"):
        cached = str(reader.raw("prefix-caching")).lower() in ("1", "true")
        reader.put(("engine", "prefix_cache"), cached, "prefix-caching")
    if reader.has("speculate"):
        put_draft(reader, "ngram", reader.count("speculate", least=0), "speculate")
