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
EVERY = 10  # of the points of aiconfigurator one is predicted: constants are fitted on those
FITTED = "fitted"
LEFT_OUT = "left out: nothing was fitted on this table"
ON_H100 = "`streamed_s` fitted on H100; all other constants fitted on aiconfigurator's points only"
LINES = (  # file of shared/data, kind of score, option of the command, choice of constants
    (POINTS, FITTED, "", "catalogue"),
    (POINTS, "left out: constants of other models", "--leave-one-model-out", "model"),
    (POINTS, "left out: constants of other devices", "--leave-one-generation-out", "device"),
    (POINTS, "never fitted: kernels alone", "--no-constants", "none"),
    ("serving/mlenergy_llm.csv", ON_H100, "", "catalogue"),
    ("serving/mlperf_inference_v5.1_llm.csv", LEFT_OUT, "", "catalogue"),
    ("serving/apex_h100_mistral.csv", LEFT_OUT, "", "catalogue"),
    ("serving/vllm_requests_RTXPRO6000_Llama-3.1-8B.csv", LEFT_OUT, "", "catalogue"),
    ("serving/vllm_requests_RTXPRO6000_Qwen3-32B.csv", LEFT_OUT, "", "catalogue"),
    (OFFLOADED, "fitted on A6000; never fitted on T4", "", "catalogue"),
    (OFFLOADED, "left out: rates of copies of other models", "--leave-one-model-out", "model"),
    (OFFLOADED, "never fitted: default rates", "--no-constants", "none"),
)
SAME_FRACTION = 0.005  # values that are closer are copies of one measurement
SHOWN = {  # quantities of tables that have more
    "serving/mlperf_inference_v5.1_llm.csv": ("result", "ttft_mean_ms", "tpot_mean_ms")
}
HEADINGS = ("quantity", "score", "rows", "median", "p90", "bias", "inside 90 %", "not predicted")
TEXT = """# Accuracy of serving

This page compares predictions with measured serving, for one file of measurements after another. Each line
of a table is about one measured quantity of the file. The columns are:

- *score*: on which measurements the constants of the engine were fitted. *Fitted* means on these rows too.
  For *left out*, they were fitted on other rows only. *Never fitted* means that nothing was fitted.
- *median*, *p90*: median and 90th percentile of |predicted − measured| / measured.
- *bias*: median of predicted / measured, minus 1. If it is negative, the predicted values are too small.
- *inside 90 %*: fraction of the measurements that lie in their predicted 90 % interval.
- *not predicted*: number of rows that flopcast cannot predict. `flopcast validate --runs FILE` prints why.

The constants of engines are fitted on every tenth measured point of aiconfigurator
(`flopcast calibrate constants --runs TABLE --every 10`). Only vLLM's time of sending single tokens
(`engine.iteration.streamed_s`) is fitted on another table, on the rows of ML.ENERGY on H100. The rates of
copies of FlexGen and ZeRO-Inference are fitted on their rows of A6000. `python tests/serving_accuracy.py`
writes this page.

{tables}
## What is known of the errors

### How far the scores can be trusted

- Two scores are blind. For the 37 points of Qwen3.5-397B-A17B, before we saw any of its points, the median
  error of TPOT was 19.6 % and the bias -18.8 %, and all points were inside the interval. For the 28 points
  whose published launch drafts tokens, the error was 12.3 % and the bias +10.1 %.
- For Nemotron Nano v2 (Mamba-2) in ML.ENERGY, before any prediction of such a model, the 31 rows on H100
  had median errors of 11 % (time between tokens) and 7 % (throughput), and the 25 rows on B200 had 35 and
  84 %.
- The fitted ratios of kernels apply only to weights of 8 and 4 bits. For these, benchmarks quantise the
  inputs of each product in a separate kernel, and engines fuse this kernel with others. We found this with
  rows of ML.ENERGY, whose weights have 16 bits. With the ratios, their median errors were 22.2 % (time
  between tokens) and 29.3 % (throughput). The single requests of vLLM confirm this: for Llama-3.1-8B, the
  error of the mean TPOT was 6.7 % with the ratios, and that of the mean TTFT 15.8 %.
- Servers of ML.ENERGY send each token separately. Those of InferenceX send twenty tokens at once
  (`stream-interval` in its launches of vLLM). Sending a token takes the host 15 us for each sequence, a
  value that was fitted on H100. On B200, with this time, the median error of the time between tokens is 14
  %; without it, the error is 24 % (every fifth row).
- What a kernel draws was fitted on single kernels of H200 and B200 only, those of 0.2 ms and more, which
  were read for a second. Experts take 107 pJ for each byte, linear layers 71 pJ and decode attention 50 pJ.
  We compared four ways to choose the kernels on every fifth row of ML.ENERGY, so that the score of watts is
  a development score. Before, all kernels drew what memory and large products do in training, and the
  median error was 18.3 % for watts and 29.7 % for joules per token.
- In gpqa, rows of dense models on B200 draw less than half of the watts of lm-arena-chat with the same
  batch, and take up to five times as long. Something else than the device limits these runs.
- The prompts of lm-arena-chat have 275 tokens on average. We chose this number, because it explains how far
  the mean time of a token exceeds the median time in six rows of Llama.
- We chose the priors of the fit (how strongly constants are pulled towards 1) after seeing the scores with
  models left out. Scores that depend on these priors are therefore development scores.
- Before we predicted launches and waits of prompts, and before we widened the priors, the median error of
  TTFT was 27.2 % fitted, 30.6 % with models left out and 30.2 % with devices left out. The median error of
  TPOT was 11.0 %, 13.0 % and 12.3 %.
- Equal jobs have different measurements, as the paragraphs below the first table say. Rows do not record
  the release, the drafted tokens, or whether kernels were compiled before the measurement.
- ML.ENERGY and MLPerf do not publish the lengths of prompts, so the predictions use assumed lengths.
- In MLPerf's Server and Interactive scenarios, the request rate is fixed, so the measured throughput says
  little about the engine. The Offline rows are a better test.
- Some labels of SGLang rows in APEX are known to be wrong (README of the data).

### Settings that the rows of aiconfigurator do not state

The rows of aiconfigurator are results of InferenceX. We read missing settings from the published launch
commands of InferenceX: the instances of a pool, drafted tokens, how often a server looks for new requests,
the tokens of a pass, and the format of the cache. We looked for these commands after seeing the errors, so
scores that depend on them are development scores.

- Some rows agree with two published launches, one with drafted tokens and one without. flopcast predicts
  these rows without drafted tokens, which gives up to twice the measured times. The fit does not use them.
- In SGLang and TensorRT-LLM, passes with prompts run outside of CUDA graphs. A pass then takes at least as
  long as the host needs to launch its kernels (`engine.iteration.prompt_launch_s`). Rows of Qwen3.5 that
  differ only in the lengths of outputs (1,024 or 8,192 tokens) show this: each pass with a prompt of 1,000
  tokens delays decoding by about 115 ms, and its kernels take 37 ms.
- The time of such a launch is the best of five values on every tenth point. It is not fitted again when
  models or devices are left out, so scores that depend on it are development scores.
- For Llama-3.1-70B on TensorRT-LLM, with prompts and outputs of 1,024 tokens, the launch settings hold a
  prompt back for up to 20 passes, so that more prompts share a pass (`batch_wait_timeout_iters`).
- Decoding instances of pools hold no more sequences than the recipes state, and further requests wait. In a
  row with 135 requests in flight and 120 places, requests wait 10.1 s for their first token, as predicted.
- If the engine quantises tokens before it sends them to experts, they are sent in 4 or 8 bits.

### Known causes of large errors

- The first requests of a measurement may wait until kernels are compiled. InferenceX has sent requests
  before a measurement only since the end of January 2026 (its pull request 480). In earlier rows, and in
  rows of SGLang on B300, some rows have a mean TTFT of 7 to 9 s, while other rows of the same model have
  half a second. On B300, TPOT is then twice as long as predicted, because decoding sequences wait as well.
- Rows of MLPerf whose software names TensorRT run built engines, whose kernels a C++ runtime launches. So
  they are predicted without the time of launches from Python. With it, the median error of TPOT was 36.6 %.
- For experts with weights in 4 bits and activations in 16 bits (gpt-oss on Hopper, Kimi-K2.5 in int4), no
  kernel was measured with more than 127 tokens. With prompts of 8,192 tokens, the measured TTFT is 1.4 to
  1.9 times the TTFT that follows from the extrapolated curve.
- Rows of Llama-3.1-8B on H200 contradict themselves. With 64 requests in flight, prompts of 2,000 tokens
  and outputs of 100 tokens, their TTFT and TPOT imply 118,000 prompt tokens per second on one device. For
  this, the linear layers alone need 95 % of its peak in 8 bits. So 64 requests cannot have been in flight
  all the time. The predicted times are up to 2.8 times the measured ones.
- Some pools wait longer than predicted. For example, three requests for three decoding instances with one
  place each wait 5 s, as if two of them shared an instance. How requests were distributed is not published.
- On H100, the time between tokens in ML.ENERGY is 35 to 50 us per sequence longer than the kernel time, for
  models whose published settings use top-p sampling. For gpt-oss, which has no such setting, there is no
  difference up to 96 sequences. The predictions therefore sort the vocabulary for each sequence
  (`engine.sampling=sorted`).
- No row of ML.ENERGY on H100 has more than about 12,000 tokens/s, whatever the model, and none on B200,
  whose servers have eight processes for HTTP, more than 22,000. These limits of servers and of the client
  are not predicted, nor are prompts that are sent several times and are then in the prefix cache.
- In ML.ENERGY, times on B200 are irregular. The 90th percentile of the times between tokens is 1.34 times
  their median (the median of all rows of lm-arena-chat), but 1.08 times on H100. With Llama-3.1-8B, 128
  sequences get fewer tokens per second than 64, and each of them waits three times as long.
- Qwen3-235B in 8 bits on vLLM takes 1.5 to 2 times as long as its kernels alone, in ML.ENERGY and in
  aiconfigurator. The cause is not known.
- The runs of Qwen3-32B on two RTX PRO 6000 did not use vLLM's custom all-reduce, but the predictions assume
  it.
- Kernels in passes with prompts are not a cause: if their time is fitted as a multiple of their time in
  benchmarks, the multiple is 0.94 to 1.04 for the three engines. flopcast therefore needs no such constant.
"""


def table_of(path, lines):
    """Return the Markdown table of one file."""
    everything = SERVING.read(SHARED / "data" / path)
    runs = everything[::EVERY] if path == POINTS else everything
    option = "" if path != POINTS else f" (every {EVERY}th row)"
    rows = [f"## `{Path(path).name}`{option}\n", "| " + " | ".join(HEADINGS) + " |"]
    rows.append("|---|---|" + "--:|" * (len(HEADINGS) - 2))
    known = {}
    for _, kind, words, constants in lines:
        scores = score_runs(runs, constants, known)
        for quantity in dict.fromkeys(row.measured.quantity for row in scores.rows):
            if quantity in SHOWN.get(path, (quantity,)):
                found = statistics([row for row in scores.rows if row.measured.quantity == quantity])
                rows.append(line_of(quantity, f"{kind} (`{words}`)" if words else kind, found, scores))
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
            f"Repeated measurements of `{quantity}`: as far as rows and published launches say, some jobs"
            f" were measured several times, with {len(errors)} different values in all. The values of a job"
            f" differ from their middle value by {median} (median) and {ninth} (p90). No prediction can be"
            " more accurate than that."
        )
        texts.append("\n" + textwrap.fill(text, 108))
    return texts


def line_of(quantity, kind, found, scores):
    """Return a line of a table."""
    cells = [f"`{quantity}`", kind, f"{found['rows']:.0f}"]
    cells += [f"{found[name]:.1%}".replace("%", " %") for name in ("median", "p90")]
    cells += [f"{found['bias']:+.1%}".replace("%", " %"), f"{found['inside']:.0%}".replace("%", " %")]
    return "| " + " | ".join([*cells, f"{len(scores.left_out)}"]) + " |"


def kept_tables():
    """Return the tables of the page as it is, by the name of their file."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:-1]
    return {part.split("`")[1]: f"## {part}" for part in parts}


if __name__ == "__main__":
    named = sys.argv[1:] or [Path(line[0]).name for line in LINES]
    paths = {Path(line[0]).name: line[0] for line in LINES}
    new = {
        name: table_of(path, [line for line in LINES if line[0] == path])
        for name, path in paths.items()
        if name in named
    }
    tables = kept_tables() | new
    PAGE.write_text(TEXT.format(tables="\n".join(tables[name] for name in paths)), encoding="utf-8")
    sys.stdout.write("written: compare with git diff\n")
