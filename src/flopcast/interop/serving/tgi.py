"""Launch commands of Hugging Face's text-generation-inference: the launcher and its container.

Answers: which instance does a command of TGI start?
Elsewhere: flags (tables/tgi.yaml, settings.py), several commands (launch.py).

Source: text-generation-launcher arguments
(https://huggingface.co/docs/text-generation-inference/reference/launcher).
"""

import re

from flopcast.interop.serving.launch_reader import LaunchReader

USED_FRACTION = 0.9  # of --cuda-memory-fraction, see the engine in the catalogue


def read(reader: LaunchReader) -> None:
    """Read the instance that a command starts."""
    entry = reader.read_model("model-id")
    if reader.has("sharded") and not reader.flag("sharded"):
        reader.put(("plan", "tensor_parallel"), 1, "sharded")
        if reader.count("num-shard") > 1:
            because = "without sharding, the model runs on one device"
            reader.contradiction("num-shard", "sharded", because)
    elif reader.has("num-shard"):
        reader.put(("plan", "tensor_parallel"), reader.count("num-shard"), "num-shard")
    else:
        text = "num-shard is not given: TGI would use all devices, but flopcast uses as few as possible"
        reader.assume(text)
    reader.read_weights("quantize", reader.words("weights"), entry)
    reader.read_cache("kv-cache-dtype")
    reader.put_count("max_sequences", reader.first("max-batch-size", "max-concurrent-requests"))
    reader.put_count("max_tokens", "max-batch-prefill-tokens")
    reader.put_memory("cuda-memory-fraction", USED_FRACTION)
    reader.put_stated("graph_sequences", "cuda-graphs", lambda key: _most(reader, key))
    reader.read_longest("max-total-tokens", entry)
    _read_longest_prompt(reader)
    cached = str(reader.raw("prefix-caching")).lower() in ("1", "true")
    reader.put_stated("prefix_cache", "prefix-caching", lambda _: cached)
    if reader.has("speculate"):
        reader.put_draft("ngram", reader.count("speculate", least=0), "speculate")


def _read_longest_prompt(reader: LaunchReader) -> None:
    """Read the longest prompt, which the launcher requires to be shorter than the longest request."""
    prompt, whole = "max-input-tokens", "max-total-tokens"
    reader.put_stated("max_prompt_tokens", prompt)
    if reader.has(prompt) and reader.has(whole) and (most := reader.count(whole)) <= reader.count(prompt):
        because = "a request also has output tokens, so the launcher would not start"
        if most > 1:
            reader.contradiction(prompt, whole, because, most - 1)


def _most(reader: LaunchReader, key: str) -> int:
    """Return the largest of the batch sizes that have CUDA graphs, which commas separate."""
    text = str(reader.raw(key))
    if re.fullmatch(r"\d{1,6}(,\d{1,6})*", text):
        return max(map(int, text.split(",")))
    because = "the launcher captures a CUDA graph for each of these batch sizes, and none for 0"
    reader.fault(key, "whole numbers, separated by commas", because, "write 1,2,4,8,16,32")
    return 0
