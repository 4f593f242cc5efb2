"""Software before continuous batching: Hugging Face `generate` and FasterTransformer, and padding.

Public facts of headlines: vLLM serves 14 to 24 times as many tokens as Hugging Face (blog of vLLM, June
2023: LLaMA 13B on A100 40GB, 7B on A10G, requests of ShareGPT, whose mean lengths are those of
arXiv:2309.06180, section 6.1). Flover (arXiv:2305.13484) is more than 11 times as fast as FasterTransformer
on GPT, because requests join between tokens. Nothing is fitted.
"""

import numpy as np
import pytest
from all_cases import all_cases
from command_line import flopcast

from flopcast import predict_serving, serving_job
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.instances import price_of, times_of
from flopcast.serving.requests import Limits, independent_requests
from flopcast.serving.scheduler import run
from flopcast.spec.engine import Engine

SHAREGPT = "concurrency=256 prompt=uniform(10,312) output=uniform(10,666) requests=500"  # means 161, 338
PAGED = {"max_sequences": 8, "max_tokens": 8192, "kv_blocks": 10**6, "block_tokens": 1}
STATIC = {"static_batch": True, "preemption": "none", "prefix_cache": False, "chunked_prefill": False}


def seconds(new, sequences, kv, pairs):
    """A pass with a time for each of its four numbers."""
    return 0.01 + 1e-5 * new + 1e-4 * sequences + 1e-7 * kv + 1e-9 * pairs


def served(prompts, outputs, **limits):
    lengths = np.array(prompts), np.array(outputs)
    requests = independent_requests(np.zeros(len(prompts)), *lengths)
    return run(requests, Limits(**PAGED | STATIC | limits), seconds)


def test_a_batch_takes_one_pass_of_prompts_and_one_for_each_further_token():
    done = served([100, 100], [4, 4])

    prompts_s = seconds(200, 2, 200, 2 * 5050)
    further = [seconds(2, 2, 2 * (101 + place), 2 * (101 + place)) for place in range(3)]
    assert done.first_token_s.tolist() == pytest.approx([prompts_s] * 2)
    assert done.last_token_s.tolist() == pytest.approx([prompts_s + sum(further)] * 2)


def test_a_padded_batch_takes_as_long_as_one_of_its_longest_prompt():
    padded, longest = served([10, 300, 55], [5, 5, 5], padding=True), served([300] * 3, [5, 5, 5])

    assert padded.first_token_s == pytest.approx(longest.first_token_s)
    assert padded.last_token_s == pytest.approx(longest.last_token_s)
    assert served([10, 300, 55], [5, 5, 5]).first_token_s[0] < padded.first_token_s[0]


def test_only_the_prompts_of_one_batch_are_padded_to_each_other():
    both = served([10, 20, 300, 400], [2, 2, 2, 2], padding=True, max_sequences=2)
    first = served([20, 20], [2, 2])

    assert both.last_token_s[:2] == pytest.approx(first.last_token_s)


def test_requests_of_a_batch_return_together_and_the_next_ones_begin_then():
    apart = served([50, 50, 50], [2, 9, 2], max_sequences=2)
    together = served([50, 50, 50], [2, 9, 2], max_sequences=2, returns_together=True)

    assert apart.last_token_s[0] < apart.last_token_s[1]
    assert together.last_token_s[0] == together.last_token_s[1] == apart.last_token_s[1]
    assert together.queued_s[2] == apart.queued_s[2] == apart.last_token_s[1]


def prompts_s(lengths):
    """A pass over the prompts of a batch of GPT-3 175B on eight A100."""
    batch = f"tp=8 max_sequences={len(lengths)}"
    job = serving_job("gpt3-175b", engine="fastertransformer", cluster="dgx-a100", gpus=8, plan=batch)
    tokens, pairs = float(sum(lengths)), float(sum(each**2 / 2 for each in lengths))
    return times_of(job, load_serving_book(job.cluster), 100)(tokens, float(len(lengths)), tokens, pairs)


def test_prompts_without_padding_take_as_much_less_time_as_published():
    """0.64 of the latency, EnergonAI (arXiv:2209.02341) 0.63, which leaves out padding.

    The lengths are chosen, because the text that we read states none: batches of 4, 8, 16 and 32 prompts,
    padded to 64 tokens, of which half are padding.
    """
    ratios = [prompts_s([64] + [31] * (each - 1)) / prompts_s([64] * each) for each in (4, 8, 16, 32)]

    assert float(np.mean(ratios)) == pytest.approx(0.63, rel=0.10)
    assert ratios == sorted(ratios, reverse=True)  # few tokens wait for the weights


def test_passes_of_eager_kernels_take_as_long_as_their_launches():
    """Llama 3.2 1B on an H100: 16 blocks of 11 kernels and five more, 20 us each, and 2 ms of Python."""
    job = serving_job("llama-3.2-1b", engine="hugging-face", cluster="dgx-h100", gpus=1, plan="tp=1")
    book = load_serving_book(job.cluster)
    one = np.ones((1, 1))
    pass_ = EnginePass(new_tokens=one, sequences=one, cached_tokens=100 * one, pairs=100 * one)
    priced = price_of(job, book, pass_)
    launches = sum(
        layer.count
        for layer in priced.layers
        for item in layer.items
        if float(priced.prices[item].alone_s.max()) > 0
    )

    taken_s = times_of(job, book, 200)(1.0, 1.0, 100.0, 100.0)

    assert launches == priced.launches()[0] > 16 * 8
    assert taken_s == pytest.approx(20e-6 * launches + job.engine.iteration.host_s, rel=0.01)
    assert taken_s > 1.3 * sum(priced.by_component().values())[0]


def test_passes_with_more_sequences_than_cuda_graphs_hold_take_as_long_as_their_launches():
    """TGI captures graphs of at most 32 sequences, according to its launcher's --cuda-graphs."""
    job = serving_job("llama-3.2-1b", engine="tgi", cluster="dgx-h100", gpus=1, plan="tp=1")
    times = times_of(job, load_serving_book(job.cluster), 200)
    host = job.engine.iteration
    least_s = 31e-6 * 16 * 8  # eight kernels or more in each of 16 blocks

    kernels_s = {n: times(n, n, 100.0 * n, 100.0 * n) - host.host_s - n * host.sequence_s for n in (32, 33)}
    both = np.array([32.0, 33.0])

    assert kernels_s[32] < 0.5 * least_s < least_s < kernels_s[33] < 2 * least_s
    assert times(both, both, 100 * both, 100 * both) == pytest.approx(
        [kernels_s[n] + host.host_s + n * host.sequence_s for n in (32, 33)]
    )


@all_cases("model, cluster", (("llama-13b", "a100-pcie-40gb-8"), ("llama-7b", "aws-g5")))
def test_continuous_batches_serve_as_many_times_as_much_as_published(model, cluster):
    """21.7 and 16.6 times as many tokens as `generate` with its batch of 1: published, 14 to 24."""
    vllm, old = (
        predict_serving(
            serving_job(model, engine=name, cluster=cluster, gpus=1, plan="tp=1", traffic=SHAREGPT)
        )
        for name in ("vllm", "hugging-face")
    )

    assert 14 < vllm.output_tokens_per_s.value / old.output_tokens_per_s.value < 24


def test_requests_that_join_between_tokens_are_11_times_as_fast_as_one_after_another():
    """GPT-J on an A100 with 16 open requests: more than 11 times the tokens of FasterTransformer.

    The text that we read does not state how many requests the published ratio has.
    """
    fused = {"base": "fastertransformer", "batching": "continuous", "max_sequences": 16}
    single = {"base": "fastertransformer", "max_sequences": 1}
    joined, alone = (
        predict_serving(
            serving_job(
                "gpt-j-6b",
                engine=engine,
                cluster="dgx-a100",
                gpus=1,
                plan="tp=1",
                traffic="concurrency=16 prompt=8 output=512 requests=64",
            )
        )
        for engine in (fused, single)
    )

    assert joined.output_tokens_per_s.value / alone.output_tokens_per_s.value > 11


def test_engines_without_own_all_reduces_send_by_nccl():
    jobs = [
        serving_job("llama-2-70b", engine=name, cluster="dgx-a100", gpus=8, plan="tp=8")
        for name in ("vllm", "fastertransformer")
    ]
    ones = np.ones((1, 1))
    one = EnginePass(new_tokens=ones, sequences=ones, cached_tokens=ones, pairs=ones)

    own, nccl = (
        price_of(job, load_serving_book(job.cluster), one).by_component()["communication"][0]
        for job in jobs
    )

    assert nccl > 1.5 * own


def test_small_all_reduces_of_vllm_take_longer_than_fused_ones_as_measured():
    # custom_allreduce.csv.gz on two B200: 1 MB takes 13.1 us in vLLM 0.24, 6.4 us in TensorRT-LLM 1.3
    job = serving_job("llama-3.1-70b", engine="vllm", cluster="dgx-b200", gpus=2, plan="tp=2")
    rows = np.full((1, 1), 64.0)
    small = EnginePass(new_tokens=rows, sequences=rows, cached_tokens=rows, pairs=rows)

    fused_s, custom_s = (
        price_of(
            job.model_copy(update={"engine": job.engine.model_copy(update={"fused_all_reduce": fused})}),
            load_serving_book(job.cluster),
            small,
        ).by_component()["communication"][0]
        for fused in (True, False)
    )

    messages = 2 * 80 + 1
    assert fused_s / messages == pytest.approx(6.4e-6, rel=0.25)
    assert custom_s / messages == pytest.approx(13.1e-6, rel=0.25)


def test_releases_of_vllm_before_its_fused_all_reduce_have_only_their_own():
    fused = {name: catalog.engine(name).fused_all_reduce for name in ("vllm", "vllm-0.8", "vllm-0.6")}

    assert fused == {"vllm": True, "vllm-0.8": False, "vllm-0.6": False}


@all_cases(
    "words, because",
    (
        ({"batching": "static"}, "an engine with static batching never preempts a request"),
        ({"padding": True}, "only an engine with static batching pads prompts to the same length"),
    ),
)
def test_contradictory_engines_are_refused(words, because):
    with pytest.raises(ValueError, match=because):
        Engine(**words)


def test_padding_is_a_change_of_one_prediction():
    words = ["predict", "gpt-j-6b", "--engine", "fastertransformer", "--cluster", "dgx-a100", "--gpus", "1"]
    traffic = ["--traffic", "concurrency=8 prompt=100:1,900:1 output=20 requests=64"]

    plain, padded = (flopcast(*words, *traffic, *change) for change in ((), ("engine.padding=true",)))

    assert (plain.code, padded.code) == (0, 0)
    assert plain.out != padded.out
    assert catalog.engine("hugging-face").padding
    assert not catalog.engine("fastertransformer").padding
