"""The accuracy of serving, out of predictions: `python tests/serving_accuracy.py` writes the page.

The page is docs/accuracy/serving.md. It takes a few minutes, and names a command for each of its lines.
With names of tables behind the command, the others stay as they are on the page.
"""

import sys
import textwrap
from pathlib import Path

import numpy as np

from flopcast.lab.measured_tables import SERVING
from flopcast.lab.scores import statistics
from flopcast.lab.serving_runs.score import score_runs

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
PAGE = ROOT / "docs" / "accuracy" / "serving.md"
POINTS = "peers/aiconfigurator/serving_measured_ttft_tpot.csv.gz"
OFFLOADED = "offload/offload_inference_throughput.yaml"
DEPLOYMENTS = "deployments.yaml"
FILES = {DEPLOYMENTS: ROOT / "src" / "flopcast" / "catalog" / "runs" / DEPLOYMENTS}  # beside shared/data
EVERY = 10  # of the points of aiconfigurator one is predicted: constants are fitted on those
FITTED = "fitted"
LEFT_OUT = "left out: nothing was fitted on this table"
ON_H100 = "`streamed_s` was fitted on H100; all other constants were fitted on aiconfigurator"
LINES = (  # file of shared/data, kind of score, option of the command, choice of constants
    (POINTS, FITTED, "", "catalogue"),
    (POINTS, "left out: constants fitted on other models", "--leave-one-model-out", "model"),
    (POINTS, "left out: constants fitted on other devices", "--leave-one-generation-out", "device"),
    (POINTS, "never fitted: only benchmarks of kernels", "--no-constants", "none"),
    ("serving/mlenergy_llm.csv", ON_H100, "", "catalogue"),
    ("serving/mlperf_inference_v5.1_llm.csv", LEFT_OUT, "", "catalogue"),
    ("serving/apex_h100_mistral.csv", LEFT_OUT, "", "catalogue"),
    ("serving/vllm_requests_RTXPRO6000_Llama-3.1-8B.csv", LEFT_OUT, "", "catalogue"),
    ("serving/vllm_requests_RTXPRO6000_Qwen3-32B.csv", LEFT_OUT, "", "catalogue"),
    (OFFLOADED, "fitted on A6000; never fitted on T4", "", "catalogue"),
    (OFFLOADED, "left out: copy rates fitted on other models", "--leave-one-model-out", "model"),
    (OFFLOADED, "never fitted: default rates", "--no-constants", "none"),
    (DEPLOYMENTS, LEFT_OUT, "", "catalogue"),
)
SAME_FRACTION = 0.005  # values that are closer are copies of one measurement
SHOWN = {  # quantities of tables that have more
    "serving/mlperf_inference_v5.1_llm.csv": ("result", "ttft_mean_ms", "tpot_mean_ms")
}
PARTS = {  # group by which rows of a table are shown as well, and its names
    "serving/mlenergy_llm.csv": ("device", ("H100", "B200")),
    DEPLOYMENTS: ("engine", ("vllm", "sglang", "tensorrt-llm")),
}
HEADINGS = ("quantity", "score", "rows", "median", "p90", "bias", "inside 90 %", "not predicted")
TEXT = """# Accuracy of serving

This page compares predictions with measurements of serving engines. Each section covers one file of
measurements, and each row of its table shows the errors of one measured quantity. The columns are:

- *score*: the measurements on which the constants of the engine were fitted. *Fitted*: these
  measurements were part of the fit. *Left out*: the constants were fitted only on other measurements.
  *Never fitted*: the prediction uses no fitted constants.
- *median*, *p90*: median and 90th percentile of |predicted − measured| / measured.
- *bias*: median of predicted / measured, minus 1. If it is negative, the predicted values are too small.
- *inside 90 %*: fraction of the measurements that lie in their predicted 90 % interval.
- *not predicted*: number of rows that flopcast cannot predict. `flopcast validate --runs FILE` prints
  the reasons.

The constants of engines are fitted on every tenth measured point of aiconfigurator (`flopcast calibrate
constants --runs TABLE --every 10`). Two kinds of constants are fitted on other tables. The time that
vLLM needs to send a single token (`engine.iteration.streamed_s`) is fitted on the rows of ML.ENERGY on
H100. The copy rates of FlexGen and ZeRO-Inference are fitted on the rows of these engines on A6000.
`python tests/serving_accuracy.py` writes this page.

{tables}
## Known properties of the errors

### How far the scores can be trusted

- `src/flopcast/catalog/runs/deployments.yaml` contains 103 published deployments. We wrote down 87 of
  them before we predicted any of them. Their first predictions were blind, with these median errors
  (and biases): mean TTFT 42.7 % (-37.0 %, 32 values), 99th percentile of TTFT 11.8 % (+9.0 %, 16
  values), TPOT 23.7 % (-12.6 %, 42 values), median time between tokens 7.4 % (+7.4 %, 16 values),
  output tokens/s 15.2 % (-2.8 %, 74 values), end-to-end latency 18.5 % (-18.5 %, 3 values). Of these
  183 values, 79 % were inside their intervals. The first predictions of 15 of the other 16 deployments
  were also blind, with median errors of 78 % (TTFT), 13 % (TPOT) and 31 % (tokens/s). The scores in the
  table above are not blind.
- Two more scores of first predictions are blind. For 37 points of Qwen3.5-397B-A17B, the median error
  of TPOT was 19.6 %, the bias was -18.8 %, and all points were inside their intervals. For 28 points
  with speculative decoding, the median error of TPOT was 12.3 %, and the bias was +10.1 %.
- The first prediction of Nemotron Nano v2 (Mamba-2) in ML.ENERGY was also blind. The median errors of
  31 rows on H100 were 11 % (time between tokens) and 7 % (throughput). The median errors of 25 rows on
  B200 were 35 % (time between tokens) and 84 % (throughput).
- The first prediction of requests with images (image-chat, a task of ML.ENERGY) was also blind. We
  assumed one image of 1024 x 1024 pixels for each request. The 25 rows on H100 had median errors of
  5.2 % (time between tokens), 5.5 % (throughput) and 7.8 % (watts). The 21 rows on B200 had median
  errors of 56 % (time between tokens), 194 % (throughput) and 106 % (watts). On B200, the host limits
  each pass, which flopcast does not predict.
- In a CUDA graph, a kernel starts while the previous kernel ends. The fitted overlap of two kernels
  (`engine.iteration.overlap_s`) is 0.9 us for vLLM and SGLang, and 1.4 us for TensorRT-LLM. We added
  this constant after we had seen the scores without it, so scores that depend on it are development
  scores.
- The fitted ratio of expert kernels applies only to weights of 8 and 4 bits. Benchmarks of these
  kernels quantise the inputs in a separate kernel, which engines fuse with other kernels.
- Servers of ML.ENERGY send each token separately. Servers of InferenceX send twenty tokens at once
  (`stream-interval` in the launch commands of vLLM). For each token that is sent separately, the host
  needs 15 us per sequence. This time was fitted on H100.
- The energy per byte of each kind of kernel was fitted on benchmarks of single kernels on H200 and
  B200. We tried four selections of kernels and compared the resulting predictions with every fifth row
  of ML.ENERGY, so the scores of watts and joules are development scores.
- We assume that the prompts of lm-arena-chat (a task of ML.ENERGY) have 275 tokens on average. We chose
  this number after we had seen the measurements.
- A prior states how strongly the fit pulls a constant towards 1. We chose the priors after we had seen
  the scores with models left out. Scores that depend on these priors are therefore development scores.
- The constant `prompt_experts_s` lowers the errors even in two tables on which it was not fitted: the
  median error of TTFT in APEX falls from 52 % to 30 %, and the median error of the throughput in
  ML.ENERGY falls from 15.3 % to 13.5 %.
- Measurements of equal jobs differ, as the paragraphs below the first table show. Possible reasons,
  which the table does not state, are the release of the engine, drafted tokens, and the compilation of
  kernels during the measurement.
- ML.ENERGY and MLPerf do not publish the lengths of prompts, so the predictions use assumed lengths.
- In MLPerf's Server and Interactive scenarios, the request rate is fixed, so the measured throughput
  depends little on the engine. The Offline rows are a better test.
- In MLPerf's Server scenario, submitters choose the highest request rate that meets the latency limits.
  At this rate, the engine is almost saturated, so a small error in the predicted saturation rate
  changes the predicted TTFT from a tenth of a second to minutes.
- Some labels of SGLang measurements in APEX are known to be wrong (README of the data).

### Settings that the rows of aiconfigurator do not state

The rows of aiconfigurator are results of InferenceX. We read missing settings from the published launch
commands of InferenceX: the number of instances of a pool, the number of drafted tokens, the interval at
which a server accepts new requests, the largest number of tokens in a pass, and the format of the KV
cache. We searched for these commands after we had seen the errors. Scores that depend on these settings
are therefore development scores.

- 469 rows do not state the number of instances in a pool, and agree with several published deployments.
  flopcast assumes the most likely deployment. The constants are not fitted on these rows.
- Rows of GB200 from 2025 state only the total number of devices, or no number of devices. flopcast
  predicts the published deployment with the same total and the most similar concurrency.
- On several nodes, SGLang uses 32 redundant copies of experts in each layer, as its recipes state.
- In SGLang and TensorRT-LLM, prefill passes run without CUDA graphs. A pass then takes at least as long
  as the host needs to launch its kernels (`engine.iteration.prompt_launch_s`, 60 us for each kernel).
  We chose this time from measured TTFTs of Llama-3.1-70B on TensorRT-LLM, so scores that depend on it
  are development scores.
- Each layer with routed experts lengthens a pass with prompts by a fitted time
  (`engine.iteration.prompt_experts_s`). The host sorts tokens by expert in many small kernels, which
  benchmarks of expert kernels leave out. For example, a pass of Qwen3.5 with a prompt of 1,000 tokens
  delays decoding by about 115 ms, although its kernels take only 37 ms. We added this constant after we
  had seen the scores without it.
- A decode instance of a pool runs at most the number of sequences that its recipe states, and all
  further requests wait.
- If the engine quantises tokens before the all-to-all to experts, flopcast predicts an all-to-all in 4
  or 8 bits.

### Known causes of large errors

- In 23 of 399 rows of aiconfigurator, the measured TTFT is more than four times the predicted TTFT. In
  most of these rows, the first requests wait several seconds.
- Prompts to MoE models take longer than the sum of their kernel times. For example, the TTFT of
  gpt-oss-120b is 1.5 to 3.0 times this sum, but the TTFT of Llama-3.1-70B, a dense model, is only 1.0
  to 1.3 times this sum. The constant `prompt_experts_s` describes a part of this difference. The cause
  of the rest is unknown.
- The first requests of a measurement may wait until kernels are compiled. InferenceX has sent warm-up
  requests only since the end of January 2026 (its pull request 480). Some earlier rows have a mean TTFT
  of 7 to 9 s, while other rows of the same model have a mean TTFT of half a second.
- If a row of MLPerf names TensorRT as its software, a C++ runtime launches the kernels. flopcast
  therefore predicts these rows without the time of launches from Python.
- For experts with weights in 4 bits and activations in 16 bits (gpt-oss on Hopper, Kimi-K2.5 in int4),
  we have no measurements with more than 127 tokens. flopcast assumes that these kernels are at most as
  efficient as kernels with weights in 16 bits.
- In `deployments.yaml`, GPUStack's deployments on one H100 reach only about 0.6 of the predicted
  throughput, both with vLLM and with TensorRT-LLM. Their page names an H100 SXM, but the measured times
  would fit an H100 PCIe.
- On Hopper, two kinds of benchmark rows of FP8 kernels are not used. The experts with one scale per tensor
  were probably measured without tuning: 128 tokens take six to nine times as long as reading the weights.
  vLLM tunes this kernel at its start. flopcast therefore uses the curve of experts with block scales. Of
  the linear layers, rows are left out whose number of tokens is not a multiple of 4: 513 tokens take longer
  than 768, and engines pad the batches of CUDA graphs to multiples of 8. We found both causes in the errors
  of `deployments.yaml`, so its scores are development scores.
- In `deployments.yaml`, the predicted throughput of MoE models with data-parallel attention on B200 in
  NVFP4 is 1.2 to 1.4 times the published throughput. For dense models in FP8 on H100 and H200, this
  ratio is 0.79 to 1.01.
- Compiled engines fuse quantisation with norms, and the activation function with the preceding GEMM.
  flopcast predicts separate kernels.
- Some rows of Llama-3.1-8B on H200 are implausible: the linear layers alone would need 95 % of the
  8-bit peak rate. The predicted times of these rows are up to 2.8 times the measured times.
- In some pools, requests wait longer than predicted. The distribution of requests over instances is not
  published.
- In ML.ENERGY, the published settings of some models use top-p sampling. For these models, flopcast
  predicts a sort of the vocabulary for each sequence (`engine.sampling=sorted`).
- In ML.ENERGY, no model reaches more than about 12,000 tokens/s on H100, or more than 22,000 tokens/s
  on B200, where servers have eight HTTP processes. flopcast does not predict these limits of servers
  and clients.
- In ML.ENERGY, the measured times on B200 are irregular. For Llama-3.1-8B, for example, the throughput
  with 128 sequences is lower than with 64 sequences.
- With Qwen3-235B in 8 bits on vLLM, an iteration takes 1.5 to 2 times the sum of its kernel times, for
  an unknown reason.
- The runs of Qwen3-32B on two RTX PRO 6000 did not use vLLM's custom all-reduce, but the predictions
  assume that they did.
 """


def table_of(path, lines):
    """Return the Markdown table of one file."""
    everything = SERVING.read(FILES.get(path, SHARED / "data" / path))
    runs = everything[::EVERY] if path == POINTS else everything
    option = "" if path != POINTS else f" (every {EVERY}th row)"
    rows = [f"## `{Path(path).name}`{option}\n", "| " + " | ".join(HEADINGS) + " |"]
    rows.append("|---|---|" + "--:|" * (len(HEADINGS) - 2))
    known = {}
    for _, kind, words, constants in lines:
        scores = score_runs(runs, constants, known)
        shown = f"{kind} (`{words}`)" if words else kind
        for quantity in dict.fromkeys(row.measured.quantity for row in scores.rows):
            if quantity not in SHOWN.get(path, (quantity,)):
                continue
            compared = [row for row in scores.rows if row.measured.quantity == quantity]
            rows.append(line_of(quantity, shown, statistics(compared), scores.left_out))
            group, names = PARTS.get(path, ("", ()))
            for name in names:
                part = [row for row in compared if row.run.groups[group] == name]
                others = [run for run in scores.left_out if run.groups[group] == name]
                if part:
                    rows.append(
                        line_of(quantity, f"of these, the rows on {name}", statistics(part), others)
                    )
    rows += equal_jobs(everything) if path == POINTS else []
    return "\n".join(rows) + "\n"


def equal_jobs(runs):
    """Return paragraphs about measurements of equal jobs: how far apart are they?"""
    jobs, texts = {}, []
    for run in runs:
        if run.job is not None:
            jobs.setdefault(run.job.model_dump_json(), []).append(run)
    measured = [
        [(each.quantity, each.value) for run in equal for each in run.measured] for equal in jobs.values()
    ]
    for quantity in dict.fromkeys(each.quantity for run in runs for each in run.measured):
        errors = []
        for numbers in measured:
            found = sorted(value for name, value in numbers if name == quantity)
            values = [b for a, b in zip([0.0, *found], found, strict=False) if b > a * (1 + SAME_FRACTION)]
            errors += [abs(np.median(values) / value - 1) for value in values] if len(values) > 1 else []
        median, ninth = (f"{each:.1%}".replace("%", " %") for each in np.quantile(errors, (0.5, 0.9)))
        text = (
            "For some jobs, rows with the same settings and the same published launch command have"
            f" different values of `{quantity}`. There are {len(errors)} such values. A value differs from"
            f" the median of its job by {median} (median over all values) and {ninth} (p90). The errors of"
            " predictions cannot be smaller than these differences."
        )
        texts.append("\n" + textwrap.fill(text, 108))
    return texts


def line_of(quantity, kind, found, left_out):
    """Return a line of a table."""
    cells = [f"`{quantity}`", kind, f"{found['rows']:.0f}"]
    cells += [f"{found[name]:.1%}".replace("%", " %") for name in ("median", "p90")]
    cells += [f"{found['bias']:+.1%}".replace("%", " %"), f"{found['inside']:.0%}".replace("%", " %")]
    return "| " + " | ".join([*cells, f"{len(left_out)}"]) + " |"


def kept_tables():
    """Return the tables of the page as it is, by the name of their file."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:-1]
    return {part.split("`")[1]: f"## {part}" for part in parts if part.startswith("`")}


if __name__ == "__main__":
    named = sys.argv[1:] or [Path(line[0]).name for line in LINES]
    paths = {Path(line[0]).name: line[0] for line in LINES}
    new = {
        name: table_of(path, [line for line in LINES if line[0] == path])
        for name, path in paths.items()
        if name in named
    }
    tables = kept_tables() | new
    shown = [tables[name] for name in paths]
    PAGE.write_text(TEXT.format(tables="\n".join(shown)), encoding="utf-8")
    sys.stdout.write("written: compare with git diff\n")
