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

- `src/flopcast/catalog/runs/deployments.yaml` has 103 deployments that vendors, engine developers and
  users have published. We wrote 87 of them into the table before we predicted any of them. Their first
  predictions were blind, with these median errors (and biases): mean TTFT 42.7 % (-37.0 %, 32 rows), 99th
  percentile of TTFT 11.8 % (+9.0 %, 16 rows), TPOT 23.7 % (-12.6 %, 42 rows), median time between tokens
  7.4 % (+7.4 %, 16 rows), output tokens/s 15.2 % (-2.8 %, 74 rows), end-to-end latency 18.5 % (-18.5 %,
  3 rows). Of these 183 numbers, 79 % were in their intervals. The errors of the other 16 rows were known
  before; their first predictions, except for one, were blind as well, with median errors of 78 % (TTFT),
  13 % (TPOT) and 31 % (tokens/s). Scores in the section of this table are not blind.
- Two scores are blind, because we had not seen these measurements before. For 37 points of
  Qwen3.5-397B-A17B, the median error of TPOT was 19.6 %, the bias was -18.8 %, and all points were
  inside their intervals. For 28 points whose published launch command uses speculative decoding, the
  median error of TPOT was 12.3 %, and the bias was +10.1 %.
- The first prediction of Nemotron Nano v2 (Mamba-2) was also blind: we had not used any measurement of
  this kind of model. In ML.ENERGY, the median errors of the 31 rows on H100 were 11 % (time between
  tokens) and 7 % (throughput). On B200, the median errors of 25 rows were 35 % (time between tokens)
  and 84 % (throughput).
- The score of image-chat, a task of ML.ENERGY, is blind: it belongs to the first prediction of requests
  with images. We assumed one image of 1024 x 1024 pixels for each request. The 25 rows on H100 had
  median errors of 5.2 % (time between tokens), 5.5 % (throughput) and 7.8 % (watts). The 21 rows on
  B200 had errors of 56 %, 194 % and 106 %. On one B200 with 16 sequences, the time between tokens is 32
  to 35 ms for all three models, from 8 to 32 billion parameters. It hardly grows up to 64 sequences, and
  these devices draw only a third to a half of their power limit. Therefore, the host limits each pass.
  The cause is not the preparation of one image after another, because the number of images per second
  grows with the number of sequences (0.5 with 16 sequences, 2.1 with 256). flopcast does not predict
  this time of the host.
- Kernels of a CUDA graph start while the kernel before them ends, and benchmarks of single kernels
  include the start. The fitted overlap of each kernel (`engine.iteration.overlap_s`) is 0.9 us for vLLM
  and SGLang, and 1.4 us for TensorRT-LLM. This constant has replaced a ratio for all kernels with weights
  of 8 and 4 bits. With the ratio, the median error of TPOT on the same rows was 12.4 % (models left out)
  and 11.8 % (devices left out). We chose the form of the constant after we had seen these scores. The
  single requests to vLLM were not used in any fit. For Llama-3.1-8B, the overlap reduced their errors
  from 7.2 to 5.9 % (TTFT) and from 3.8 to 3.2 % (TPOT). It increased the errors on B200 in ML.ENERGY,
  where the host limits many runs.
- The fitted ratio of expert kernels applies only to weights of 8 and 4 bits, because benchmarks quantise
  the inputs in a separate kernel, but engines fuse this kernel with other kernels.
- Servers of ML.ENERGY send each token separately. Servers of InferenceX send twenty tokens at once
  (`stream-interval` in the launch commands of vLLM). For each token that is sent separately, the host
  needs 15 us per sequence. This time was fitted on H100. On a sample of the rows on B200
  (every fifth row), the median error of the time between tokens is 14 % with this host time, and
  24 % without it.
- The energy of kernels was fitted only on benchmarks of single kernels on H200 and B200. We used
  kernels of at least 0.2 ms, whose power was measured for a second. Experts need 107 pJ for each byte,
  linear layers need 71 pJ, and decode attention needs 50 pJ. We tried four selections of kernels and
  compared the resulting predictions with every fifth row of ML.ENERGY, so the score of watts is a
  development score. Before this fit, flopcast used the power of memory-bound kernels and large GEMMs in
  training, and the median error was 18.3 % for watts and 29.7 % for joules per token.
- On B200, dense models in the data set gpqa draw less than half of the power that they draw in
  lm-arena-chat with the same batch, and take up to five times as long. The device therefore does not
  limit these runs.
- We assume that the prompts of lm-arena-chat have 275 tokens on average. We chose this number because
  it explains the difference between the mean and the median time between tokens in six rows of Llama.
- A prior states how strongly the fit pulls a constant towards 1. We chose the priors after we had seen
  the scores with models left out. Scores that depend on these priors are therefore development scores.
- The constant `prompt_experts_s` reduced the errors of models that are left out. Before it existed, the
  median error of TTFT was 23.0 % (fitted), 28.6 % (models left out) and 24.3 % (devices left out). The
  median error of TPOT was 10.6 % (fitted), 11.7 % (models left out) and 11.0 % (devices left out). In two
  tables that the fit of this constant did not use, the median error of TTFT (APEX) fell from 52 to 30 %,
  and that of throughput (ML.ENERGY) from 15.3 to 13.5 %.
- Measurements of equal jobs differ, as the paragraphs below the first table show. Possible reasons are
  the release of the engine, drafted tokens, and the compilation of kernels during the measurement. The
  rows do not state these.
- ML.ENERGY and MLPerf do not publish the lengths of prompts, so the predictions use assumed lengths.
- In MLPerf's Server and Interactive scenarios, the request rate is fixed, so the measured throughput
  depends little on the engine. The Offline rows are a better test.
- In MLPerf's Server scenario, submitters choose the highest rate that meets the latency limits. At this
  rate, the engine is almost saturated, and an error of 10 % in the saturation rate changes the
  predicted waiting time from a tenth of a second to minutes. In about a third of 70 rows, the
  offered rate exceeds the predicted saturation rate. For these rows, the median error of TPOT is 5 %, but
  the predicted TTFT is more than 50 times the measured TTFT. For the other rows, the predicted TTFT and
  TPOT are about 60 % too short.
- Some labels of SGLang rows in APEX are known to be wrong (README of the data).

### Settings that the rows of aiconfigurator do not state

The rows of aiconfigurator are results of InferenceX. We read missing settings from the published launch
commands of InferenceX: the number of instances of a pool, the number of drafted tokens, the interval at
which a server accepts new requests, the largest number of tokens in a pass, and the format of the KV
cache. We searched for these commands after we had seen the errors. Scores that depend on these settings
are therefore development scores.

- Of 1,306 rows that do not state the number of instances in a pool, 469 agree with several published
  deployments. In 296 of these rows, only two deployments agree, and only one of them drafts tokens or has
  more decode devices, and the rows have two different values of TPOT. flopcast then assumes that the
  smaller value belongs to the faster deployment. For all other rows, it predicts the first deployment,
  without drafted tokens. The fit uses none of the 469 rows. When we left them out of the score as well, the
  median error of TPOT with models left out was the same.
- Rows of GB200 from 2025 state only the sum of all devices, or no devices at all. flopcast predicts the
  published deployment with this sum and with the nearest concurrency. For SGLang, the scripts of that
  time ignored the stated degrees, so we used the degrees of later recipes with the same names.
- Recipes on H200 state the open requests of one decode instance. The rows state those of all instances.
- SGLang spreads experts over several nodes with 32 copies of experts in each layer, as its recipes state.
- In SGLang and TensorRT-LLM, prefill passes run without CUDA graphs. A pass then takes at least as long
  as the host needs to launch its kernels (`engine.iteration.prompt_launch_s`, 60 us for each kernel). We
  chose this time: prompts of 1,000 tokens to Llama-3.1-70B with 1,047 kernels have a TTFT of 58 to 80 ms
  on TensorRT-LLM. Scores that depend on this time are development scores.
- Each layer with routed experts lengthens a pass with prompts by a fitted time
  (`engine.iteration.prompt_experts_s`). The host sorts tokens by expert in many small kernels, which
  benchmarks of expert kernels leave out. Rows of Qwen3.5 that differ only in the output length (1,024 or
  8,192 tokens) confirm this: each pass with a prompt of 1,000 tokens delays decoding by about 115 ms,
  although its kernels take only 37 ms. Before this constant existed, the time per output token of single
  SGLang servers was predicted 12 to 16 % too short if many passes had prompts, and only 1 % too long
  otherwise. We chose the form of this constant after we had seen the scores.
- For Llama-3.1-70B on TensorRT-LLM, with prompts and outputs of 1,024 tokens, the launch settings delay
  a prompt by up to 20 passes, so that more prompts share a pass (`batch_wait_timeout_iters`).
- A decode instance of a pool runs at most the number of sequences that its recipe states, and all
  further requests wait. In a row with 135 requests in flight and room for 120 sequences, the measured
  TTFT is 10.1 s, as predicted.
- If the engine quantises tokens before the all-to-all to experts, flopcast predicts an all-to-all in 4
  or 8 bits.

### Known causes of large errors

- In 23 of 399 rows, the measured TTFT is more than four times the predicted TTFT. Most of them are rows
  of pools or of SGLang, in which the first requests wait several seconds.
- Prompts to MoE models take longer than the sum of their kernels. We compared the TTFT of single servers
  with four requests in flight and prompts of 8,192 tokens. For Llama-3.1-70B in FP8 on H200 and H100, it
  is 1.0 to 1.3 times the sum of the predicted kernel times. For gpt-oss-120b, it is 2.1 to 3.0 times this
  sum on vLLM and 1.5 to 3.0 times this sum on TensorRT-LLM. The constant `prompt_experts_s` describes a
  part of this difference. The cause of the remainder is not known.
- The first requests of a measurement may wait until kernels are compiled. InferenceX sends warm-up
  requests only since the end of January 2026 (its pull request 480). Among earlier rows, and among rows
  of SGLang on B300, some rows have a mean TTFT of 7 to 9 s, while other rows of the same model have a
  mean TTFT of half a second. In the rows on B300, TPOT is also twice as long as predicted, because
  sequences in decode wait as well.
- If a row of MLPerf names TensorRT as its software, the engine is compiled, and a C++ runtime launches
  its kernels. flopcast therefore predicts these rows without the time of launches from Python. With
  this time, the median error of TPOT was 36.6 %.
- For experts with weights in 4 bits and activations in 16 bits (gpt-oss on Hopper, Kimi-K2.5 in int4),
  no kernel was measured with more than 127 tokens. These kernels widen weights to 16 bits and multiply
  in 16 bits. With more tokens, they are therefore at most as efficient as kernels with weights in 16 bits.
  This limit changed the median of predicted / measured TTFT of gpt-oss with vLLM on H100 from 0.64 to
  0.73. It is not used for rows in mxfp8: Blackwell multiplies them by weights in mxfp4 directly, and with
  the limit TTFT of gpt-oss with TensorRT-LLM on B200 would be 1.18 instead of 1.03 times as measured.
- In `deployments.yaml`, GPUStack's rows with one H100 reach about 0.6 of the predicted throughput, with
  vLLM and TensorRT-LLM alike. A pass that reads 72 GB of cache takes 43 to 45 ms: this is half of the
  memory bandwidth of an H100 SXM, which their page names, and would fit an H100 PCIe. The errors of their
  rows with eight H100 or H200 are between -16 and +16 %.
- In `deployments.yaml`, the throughput of Qwen3-235B in FP8 with TensorRT-LLM on H200 is predicted 0.54
  times as high as published. On Hopper, experts with one scale per tensor were measured only with vLLM's
  Triton kernel, which is two to five times as slow as the kernels with block scales; TensorRT-LLM has
  kernels of its own.
- In `deployments.yaml`, the throughput of MoE models with data-parallel attention on B200 in NVFP4 is
  predicted 1.2 to 1.4 times as high as published, if all requests are sent at once. The throughput of
  dense models in FP8 on H100 and H200 is predicted 0.75 to 0.92 times as high. Probably TensorRT-LLM
  overlaps a part of the host time of sequences, which is added to each pass here, with the next pass.
- Compiled engines fuse quantisation with norms and the activation with the GEMM before it. flopcast
  predicts separate kernels. This is a part of the error of TTFT with one request.
- Some rows of Llama-3.1-8B on H200 are not plausible. These rows state 64 requests in flight, prompts
  of 2,000 tokens and outputs of 100 tokens. With the measured TTFT and TPOT, one device would process
  118,000 prompt tokens per second. At this rate, the linear layers alone would need 95 % of the 8-bit
  peak rate. Probably, fewer than 64 requests were in flight for some of the time. The predicted times
  are up to 2.8 times the measured times.
- In some pools, requests wait longer than predicted. In one example, three requests arrive
  at three decode instances, each with room for one sequence. The measured wait is 5 s, as if two
  requests shared an instance. The distribution of requests over instances is not published.
- In ML.ENERGY on H100, the published settings of some models use top-p sampling. For these models, the
  time between tokens is 35 to 50 us per sequence longer than the kernel time. For gpt-oss, which has no
  such setting, there is no difference up to 96 sequences. The predictions of models with top-p sampling
  therefore include a sort of the vocabulary for each sequence (`engine.sampling=sorted`).
- In ML.ENERGY, no model reaches more than about 12,000 tokens/s on H100, or more than 22,000 tokens/s
  on B200, where servers have eight HTTP processes. flopcast does not predict these limits of servers
  and clients. It also does not predict hits of repeated prompts in the prefix cache.
- In ML.ENERGY, times on B200 are irregular. The 90th percentile of the times between tokens is 1.34
  times their median on B200, and 1.08 times on H100 (both numbers are medians over all rows of
  lm-arena-chat). With Llama-3.1-8B, the throughput with 128 sequences is lower than with 64 sequences,
  and the time between tokens is three times as long.
- With Qwen3-235B in 8 bits on vLLM, an iteration takes 1.5 to 2 times the sum of its kernel times, in
  ML.ENERGY and in aiconfigurator. The cause is not known.
- The runs of Qwen3-32B on two RTX PRO 6000 did not use vLLM's custom all-reduce, but the predictions
  assume that they did.
- We tested other causes of long TTFT on the same rows. None of them reduced the median error with models
  left out by more than one percentage point: a factor for the kernels of experts in prefill passes, a
  front end that handles one request at a time (10 ms, and 2 us for each token of the prompt), and launches
  of prompt kernels in vLLM (20, 40 and 70 us).
- GEMMs of prompts run at the clock of a busy device in all predictions. As a test, we predicted all rows
  at the clock of an idle device. The median errors with models left out were 28.3 instead of 28.0 % (TTFT)
  and 11.8 instead of 11.5 % (TPOT), before `prompt_experts_s` existed.
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
            f"Some jobs have several measurements of `{quantity}`, although their rows and published launch"
            f" commands are equal. There are {len(errors)} such values. A value differs from the median of"
            f" its job by {median} (median over all values) and {ninth} (p90). The errors of predictions"
            " cannot be smaller than these differences."
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
