"""Published measurements of serving that stand in no table of the data, and their predictions.

The facts are few and public: the performance page of NVIDIA NIM for LLMs
(docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance), and the performance overview of TensorRT-LLM
(docs/source/developer-guide/perf-overview.md of NVIDIA/TensorRT-LLM, commit 03e27c7d), whose rates are for
each device.
"""

import sys

import numpy as np

from flopcast import predict_serving, serving_job

NIM, OVERVIEW = "NIM 1.8.0", "TensorRT-LLM"
COMPILED = {"prompt_launch_s": 0.0}  # NIM 1.8 runs compiled engines, whose kernels Python does not launch
ALL_AT_ONCE = {1000: 3000, 8192: 1500}  # requests of the overview by tokens of a prompt, all sent at once
HEADINGS = ("source", "job", "prompt/output", "in flight", "quantity", "published", "predicted", "ratio")
LLAMA, QWEN, DEEPSEEK, GPT_OSS = "llama-3.3-70b", "qwen3-235b-a22b", "deepseek-r1", "gpt-oss-120b"
H100, H200, B200 = "dgx-h100:1", "dgx-h200:1", "dgx-b200:1"
FP8, NVFP4, GROUPS = "tp=2 weights=fp8", "tp=1 weights=nvfp4", "tp=1 dp=4 ep=4 weights="
POINTS = (  # source, model, cluster, plan, tokens of prompt and output, requests in flight, numbers
    (NIM, LLAMA, H100, FP8, 5000, 500, 1, (406.77, 18.58, None)),
    (NIM, LLAMA, H100, FP8, 5000, 500, 5, (546.7, 21.83, None)),
    (NIM, LLAMA, H100, FP8, 5000, 500, 25, (688.69, 38.75, None)),
    (NIM, LLAMA, H100, FP8, 5000, 500, 50, (834.51, 59.73, None)),
    (NIM, LLAMA, H100, FP8, 500, 2000, 1, (47.77, 18.91, None)),
    (OVERVIEW, LLAMA, H200, FP8, 1000, 1000, 0, (None, None, 2587)),
    (OVERVIEW, LLAMA, H200, FP8, 8192, 1024, 0, (None, None, 537)),
    (OVERVIEW, LLAMA, H100, FP8, 1000, 1000, 0, (None, None, 2209)),
    (OVERVIEW, LLAMA, H100, FP8, 8192, 1024, 0, (None, None, 398)),
    (OVERVIEW, LLAMA, B200, NVFP4, 1000, 1000, 0, (None, None, 6920)),
    (OVERVIEW, LLAMA, B200, NVFP4, 8192, 1024, 0, (None, None, 1362)),
    (OVERVIEW, GPT_OSS, H200, "tp=1", 1000, 1000, 0, (None, None, 6868)),
    (OVERVIEW, GPT_OSS, H200, "tp=1", 8192, 1024, 0, (None, None, 1828)),
    (OVERVIEW, QWEN, H200, f"{GROUPS}fp8", 1000, 1000, 0, (None, None, 3288)),
    (OVERVIEW, QWEN, B200, f"{GROUPS}nvfp4", 1000, 1000, 0, (None, None, 5764)),
    (OVERVIEW, DEEPSEEK, B200, f"{GROUPS}nvfp4", 1000, 1000, 0, (None, None, 6463)),
)
TEXT = """## Published deployments that no table contains

These are measurements of TensorRT-LLM that NVIDIA publishes. Nothing was fitted on them. Except for the
first row, our first predictions were blind: their median errors were 78 % (TTFT), 13 % (TPOT) and 31 %
(tokens/s). The predictions below are not blind, because four things changed after the comparison: the KV
cache is in FP8, as in NVIDIA's checkpoints. Python does not launch the kernels of prompts in NIM 1.8, which
runs compiled engines. The first and the last tenth of the requests to NIM are not judged. The constants of
TensorRT-LLM were fitted again on aiconfigurator. `python tests/published_serving.py` prints this section
and names the sources.

{published}

- Compiled engines fuse kernels that flopcast predicts one by one: the quantisation of inputs with norms,
  and SwiGLU with the GEMM before it. This explains a part of the error of TTFT with one request.
- The largest errors are those of MoE models with all requests at once.
- For Qwen3-235B in FP8 on H200, the predicted kernels of experts are those of vLLM in this format, which
  take two to three times as long as those with one scale for each block.
"""


def predicted(point):
    """Return the predictions of one point: TTFT and TPOT in ms, and output tokens/s of each device."""
    source, model, cluster, plan, prompt, output, in_flight, _ = point
    requests = 10 * max(in_flight, 2) if in_flight else ALL_AT_ONCE[prompt]
    load = f"concurrency={in_flight or requests} prompt={prompt} output={output} requests={requests}"
    job = serving_job(
        model, engine="tensorrt-llm", cluster=cluster, plan=f"{plan} replicas=1", traffic=load
    )
    if source == NIM:
        cost = job.engine.iteration.model_copy(update=COMPILED)
        job = job.model_copy(update={"engine": job.engine.model_copy(update={"iteration": cost})})
    report = predict_serving(job, leave_out_share=0.1 if in_flight else 0.0)
    latencies = [1e3 * report.latencies[name]["mean"].value for name in ("ttft", "tpot")]
    return (*latencies, report.output_tokens_per_s.value / job.plan.devices)


def table():
    """Return the table of all points, and a line with the median errors of each quantity."""
    rows = ["| " + " | ".join(HEADINGS) + " |", "|---|---|---|--:|---|--:|--:|--:|"]
    errors = {}
    for point in POINTS:
        source, model, cluster, plan, prompt, output, in_flight, published = point
        words = (source, f"{model}, {cluster}, {plan}", f"{prompt}/{output}", str(in_flight or "all"))
        quantities = zip(("TTFT, ms", "TPOT, ms", "tokens/s"), published, predicted(point), strict=True)
        for name, known, told in quantities:
            if known is not None:
                errors.setdefault(name, []).append(abs(told / known - 1))
                rows.append(
                    "| "
                    + " | ".join(
                        (*words, name, f"{known:g}", f"{float(f'{told:.4g}'):g}", f"{told / known:.2f}")
                    )
                    + " |"
                )
    medians = ", ".join(
        f"{name.split(',')[0]} {np.median(each):.0%}".replace("%", " %") for name, each in errors.items()
    )
    return "\n".join([*rows, "", f"Median errors: {medians}."])


def section():
    """Return the section of the page about the accuracy of serving."""
    return TEXT.format(published=table())


if __name__ == "__main__":
    sys.stdout.write(section())
