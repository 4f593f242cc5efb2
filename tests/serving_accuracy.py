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

- *score*: the measurements on which the constants of the engine were fitted. A *fitted* score covers
  measurements that were part of the fit. For *left out*, the constants were fitted only on other
  measurements. For *never fitted*, the predictions use no fitted constants.
- *median*, *p90*: median and 90th percentile of |predicted − measured| / measured.
- *bias*: median of predicted / measured, minus 1; negative if the predicted values are too small.
- *inside 90 %*: fraction of the measurements that lie in their predicted 90 % interval.
- *not predicted*: number of rows that flopcast cannot predict. `flopcast validate --runs FILE` prints
  the reasons.

Most constants of engines are fitted on every tenth measured point of aiconfigurator (`flopcast calibrate
constants --runs TABLE --every 10`). The time that vLLM needs to send a single token
(`engine.iteration.streamed_s`) is fitted on the rows of ML.ENERGY on H100. The copy rates of FlexGen and
ZeRO-Inference are fitted on the measurements of these engines on A6000.
`python tests/serving_accuracy.py` writes this page.

{tables}
## Known properties of the errors

### How far the scores can be trusted

- `src/flopcast/catalog/runs/deployments.yaml` contains 103 published deployments. The scores of
  `deployments.yaml` in the table above are not blind, but these first predictions were blind:
    - We wrote down 87 deployments before we predicted any of them. Their median errors (and biases) were
      42.7 % for the mean TTFT (-37.0 %, 32 values), 11.8 % for the 99th percentile of the TTFT (+9.0 %,
      16 values), 23.7 % for the TPOT (-12.6 %, 42 values), 7.4 % for the median time between tokens
      (+7.4 %, 16 values), 15.2 % for output tokens/s (-2.8 %, 74 values), and 18.5 % for the end-to-end
      latency (-18.5 %, 3 values). Of these 183 values, 79 % were inside their intervals.
    - For 15 of the other 16 deployments, the median errors of the first predictions were 78 % (TTFT),
      13 % (TPOT) and 31 % (tokens/s).
- The first predictions of Qwen3.5-397B-A17B and of speculative decoding were also blind. For 37 points of
  Qwen3.5-397B-A17B, the median error of the TPOT was 19.6 %, the bias was -18.8 %, and all points were
  inside their intervals. For 28 points with speculative decoding, the median error of the TPOT was
  12.3 %, and the bias was +10.1 %.
- The first prediction of Nemotron Nano v2 (Mamba-2) in ML.ENERGY was also blind. For Nemotron Nano v2,
  the median errors of 31 rows on H100 were 11 % (time between tokens) and 7 % (throughput). The median
  errors of 25 rows of this model on B200 were 35 % (time between tokens) and 84 % (throughput).
- The first prediction of requests with images (image-chat, a task of ML.ENERGY) was also blind. We
  assumed one image of 1024 x 1024 pixels for each request. The 25 rows of image-chat on H100 had median
  errors of 5.2 % (time between tokens), 5.5 % (throughput) and 7.8 % (watts). The 21 rows of image-chat
  on B200 had median errors of 56 % (time between tokens), 194 % (throughput) and 106 % (watts), because
  the host limits each iteration on B200, which flopcast does not predict.
- In a CUDA graph, a kernel starts before the previous kernel has ended. The fitted overlap of two
  successive kernels (`engine.iteration.overlap_s`) is 0.9 us for vLLM and SGLang, and 1.4 us for
  TensorRT-LLM. We added the overlap after we had seen the scores without it, so scores that depend on the
  overlap are development scores.
- Benchmarks of expert kernels with weights of 8 or 4 bits quantise the inputs in a separate kernel, but
  engines fuse this quantisation with other kernels. For weights of 8 or 4 bits, flopcast therefore
  multiplies the time of expert kernels by a fitted constant (`engine.iteration.expert_ratio`).
- Servers of ML.ENERGY send each token separately, but servers of InferenceX send twenty tokens at once
  (`stream-interval` in the launch commands of vLLM). To send a token separately, the host needs 15 us for
  each sequence. The 15 us were fitted on H100.
- The energy per byte of each kind of kernel was fitted on benchmarks of single kernels on H200 and B200.
  We tried four selections of these benchmarks, and compared the predictions with every fifth row of
  ML.ENERGY. The scores of watts and joules are therefore development scores.
- We assume that the prompts of lm-arena-chat (a task of ML.ENERGY) have 275 tokens on average. We chose
  275 tokens after we had seen the measurements.
- A prior states how strongly the fit pulls a constant towards 1. We chose the priors after we had seen
  the scores with models left out, so scores that depend on the priors are development scores.
- The constant `prompt_experts_s` lowers the errors even in two tables on which it was not fitted: the
  median error of TTFT in APEX falls from 52 % to 30 %, and the median error of the throughput in
  ML.ENERGY falls from 15.3 % to 13.5 %.
- Measurements of equal jobs differ, as the paragraphs below the first table show. Possible causes, which
  the table does not state, are different releases of the engine, different numbers of drafted tokens, and
  the compilation of kernels during the measurement.
- ML.ENERGY and MLPerf do not publish the lengths of prompts, so the predictions use assumed lengths.
- In MLPerf's Server and Interactive scenarios, the request rate is fixed, so the measured throughput
  depends little on the engine. MLPerf's Offline scenario is a better test of predicted throughputs.
- In MLPerf's Server scenario, submitters choose the highest request rate that meets the latency limits.
  At the highest rate, the engine is almost saturated. A small error in the predicted saturation rate then
  changes the predicted TTFT from a tenth of a second to minutes.
- Some labels of SGLang measurements in APEX are known to be wrong (README of the data).

### Settings that the rows of aiconfigurator do not state

The rows of aiconfigurator are results of InferenceX. We read settings that the rows do not state from the
published launch commands of InferenceX: the number of instances of a pool, the number of drafted tokens,
the interval at which a server accepts new requests, the largest number of tokens in an iteration, and the
format of the KV cache. We searched for these commands after we had seen the errors, so scores that depend
on these settings are development scores.

- 469 rows do not state the number of instances in a pool, and match several published deployments.
  flopcast assumes the most likely deployment for such a row, and fits no constants on the row.
- Rows of GB200 from 2025 state only the total number of devices, or no number of devices. For such a row,
  flopcast assumes the published deployment with the same total and the most similar concurrency.
- In its recipes for several nodes, SGLang uses 32 redundant copies of experts in each layer.
- In SGLang and TensorRT-LLM, prefill runs without CUDA graphs. An iteration with prompts then takes at
  least as long as the host needs to launch its kernels (`engine.iteration.prompt_launch_s`, 60 us for
  each kernel). We chose the 60 us from measured TTFTs of Llama-3.1-70B on TensorRT-LLM, so scores that
  depend on this time are development scores.
- In iterations with prompts, flopcast adds a fitted time for each layer with routed experts
  (`engine.iteration.prompt_experts_s`), because the host sorts tokens by expert in many small kernels,
  which benchmarks of expert kernels leave out. For example, an iteration of Qwen3.5 with a prompt of
  1,000 tokens delays decoding by about 115 ms, although its kernels take only 37 ms. We added
  `prompt_experts_s` after we had seen the scores without it.
- A decode instance of a pool runs at most the number of sequences that its recipe states. All further
  requests wait.
- If the engine quantises tokens before the all-to-all to the experts, flopcast predicts an all-to-all in
  4 or 8 bits.
- Where experts are spread over more than eight ranks, the kernels of a rank's experts get only the tokens
  that were sent to this rank (DeepEP). We found that flopcast had predicted kernels over all tokens in the
  errors of GB200, so scores that depend on this are development scores.

### Known causes of large errors

- In 23 of 399 rows of aiconfigurator, the measured TTFT is more than four times the predicted TTFT. In
  most of these 23 rows, the first requests wait several seconds.
- For MoE models, the prefill of a prompt takes longer than the sum of its kernel times. For example, the
  TTFT is 1.5 to 3.0 times the sum of the kernel times for gpt-oss-120b, but only 1.0 to 1.3 times this
  sum for the dense model Llama-3.1-70B. The constant `prompt_experts_s` describes a part of the extra
  time, and the cause of the rest is unknown.
- The first requests of a measurement may wait until kernels are compiled. InferenceX has sent warm-up
  requests only since the end of January 2026 (pull request 480). Some rows from earlier months have a
  mean TTFT of 7 to 9 s, while other rows of the same model have a mean TTFT of half a second.
- If a row of MLPerf names TensorRT as its software, a C++ runtime launches the kernels, so flopcast adds
  no time for launches from Python.
- For experts with weights in 4 bits and activations in 16 bits (gpt-oss on Hopper, Kimi-K2.5 in int4), we
  have no measurements with more than 127 tokens. For more tokens, flopcast assumes that these expert
  kernels are at most as efficient as kernels with weights in 16 bits.
- In `deployments.yaml`, GPUStack's deployments on one H100 reach only about 0.6 of the predicted
  throughput, both with vLLM and with TensorRT-LLM. GPUStack's page names an H100 SXM, but the measured
  times would fit an H100 PCIe.
- On Hopper, flopcast does not use two kinds of FP8 benchmark rows. We found the causes in the errors of
  `deployments.yaml`, so the scores of this file are development scores.
    - Expert kernels with one scale per tensor were probably measured without tuning: with 128 tokens,
      they take six to nine times as long as reading the weights. vLLM tunes these kernels when it starts.
      Instead, flopcast uses the curve of expert kernels with block scales.
    - Linear layers are slow if their number of tokens is not a multiple of 4: 513 tokens take longer than
      768 tokens. Engines avoid such numbers of tokens, because they pad the batches of CUDA graphs to
      multiples of 8.
- In `deployments.yaml`, the predicted throughput of MoE models with data-parallel attention on B200 in
  NVFP4 is 1.2 to 1.4 times the published throughput. For dense models in FP8 on H100 and H200, the
  predicted throughput is 0.79 to 1.01 times the published throughput.
- Compiled engines fuse quantisation with norms, and the activation function with the preceding GEMM.
  flopcast predicts separate kernels for quantisation, norms and activation functions.
- For some rows of Llama-3.1-8B on H200, the linear layers alone would have to reach 95 % of
  the 8-bit peak rate. The measured times of these rows are implausibly short: the predicted times are up to
  2.8 times as long.
- In some pools, requests wait longer than predicted. How the servers distribute requests over the
  instances of a pool is not published.
- In ML.ENERGY, the published settings of some models use top-p sampling. For models with top-p sampling,
  flopcast predicts a sort of the vocabulary for each sequence (`engine.sampling=sorted`).
- In ML.ENERGY, no model reaches more than about 12,000 tokens/s on H100, or more than 22,000 tokens/s on
  B200, where servers have eight HTTP processes. flopcast does not predict these limits of servers and
  clients.
- In ML.ENERGY, servers on a single B200 need 17 to 44 ms between tokens in gpqa, and 30 ms or more in
  image-chat with 16 to 256 sequences, whatever the model. For Qwen3-8B with 8 sequences, the time is 32 ms
  in gpqa and 5 ms in lm-arena-chat. Servers on several B200, servers of gpt-oss and servers on H100 do not
  show this. The published settings of the servers (eight HTTP processes, asynchronous scheduling) are the
  same on one and on several devices, and the cause is unknown.
- In ML.ENERGY, the throughput on B200 does not always rise with the batch. For Llama-3.1-8B, for example,
  the measured throughput with 128 sequences is lower than with 64 sequences.
- vLLM 0.11 and 0.12 ran experts in FP8 with block scales in DeepGEMM, whose kernels compute 128 rows for
  each expert that a device holds, even if no token chose the expert. flopcast predicts these kernels
  (`engine.padded_experts`) for Qwen3-235B in FP8 in ML.ENERGY (vLLM 0.11.1) and for the rows of
  aiconfigurator that state such a release. We found the cause in the errors of these rows, so their scores
  are development scores. Without the padding, the predicted time between tokens is 0.36 to 0.77 times the
  measured time in ML.ENERGY; with it, it is 0.86 to 1.25 times the measured time. On H200, it is 1.1 to 1.3
  times the measured time with the padding. No number was fitted: as no table measures these kernels
  together, flopcast assumes 0.6 of their bound, and the intervals are wide.
- In ML.ENERGY, the published settings of DeepSeek on B200 select other kernels: those of FlashInfer for the
  experts (VLLM_USE_FLASHINFER_MOE_FP8), and those of CUTLASS for latent attention. With up to 64 sequences,
  the predicted time between tokens is 0.59 to 0.69 times the measured time, for an unknown reason.
- In ML.ENERGY, MoE models with weights in 16 bits take longer than predicted if an iteration has more
  tokens than a device has experts. For Qwen3-235B on eight B200 (16 experts each), the predicted time
  between tokens is 0.71 times the measured time with 16 sequences, and 0.55 times with 32. For Qwen3-30B on
  two H100 (64 experts each), it is 0.99 times with 64 sequences, and 0.85 times with 96. At this number of
  tokens, vLLM 0.11 chooses another default configuration of its Triton kernel, if no tuned one exists. vLLM
  replaced this default in February 2026 (pull request 34846), and uses other kernels on B200 since then.
  flopcast does not predict the old default, because no table states its times on B200.
- On two RTX PRO 6000, vLLM served Qwen3-32B without its custom all-reduce, but the predictions assume the
  custom all-reduce.
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
                    rows.append(line_of(quantity, f"only the rows on {name}", statistics(part), others))
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
            f"`{quantity}` was measured several times for some jobs, with the same settings and launch"
            f" command. The {len(errors)} values differ from the median of their job by {median} (median"
            f" over all values) and {ninth} (p90). Errors of predictions cannot be smaller than differences"
            " between measurements of one job."
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
    unknown = sorted(set(named) - set(paths))
    if unknown:
        sys.exit(f"unknown tables: {', '.join(unknown)}; the tables are {', '.join(paths)}")
    new = {
        name: table_of(path, [line for line in LINES if line[0] == path])
        for name, path in paths.items()
        if name in named
    }
    tables = kept_tables() | new
    shown = [tables[name] for name in paths]
    PAGE.write_text(TEXT.format(tables="\n".join(shown)), encoding="utf-8")
    sys.stdout.write("written: compare with git diff\n")
