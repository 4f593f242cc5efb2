"""ByteScale (arXiv:2502.21231): sequences of up to 2,048K tokens, shared by their length, against a mesh.

The text that we read states neither the lengths, the batch, the memory of a rank nor the cluster behind
"up to 7.89x". All of them are chosen here: 16 % of the tokens are in sequences of more than 128K.
"""

import pytest
from conftest import make_job

from flopcast.library.curves import load_book
from flopcast.prediction import predict

K = 1024
TOKEN_SHARES = {4 * K: 0.40, 16 * K: 0.22, 64 * K: 0.218, 256 * K: 0.08, 512 * K: 0.04, 1024 * K: 0.024}
TOKEN_SHARES |= {2048 * K: 0.018}
BYTED_SHARES = {4 * K: 0.30, 16 * K: 0.10, 64 * K: 0.157, 256 * K: 0.12, 512 * K: 0.10, 1024 * K: 0.102}
BYTED_SHARES |= {2048 * K: 0.121}
MESH = {"sharing": "mesh"}
OFFLOAD = {"shared_rank_tokens": 16 * K, "offload_short": False}


def tokens_per_s(degrees, shares=TOKEN_SHARES, step_tokens=64 * K * K, offload="", **changes):
    lengths = ",".join(f"{length}:{share / length:.12g}" for length, share in shares.items())
    distribution = {"lengths": lengths, "step_tokens": step_tokens, "rank_tokens": 8 * K} | changes
    one = make_job(
        model="llama-7b", cluster="dgx-h100:128", stack="generic",
        batch={"seq": 2048 * K, "distribution": distribution},
        plan=f"{degrees} mbs=1 gbs=4 zero=1 precision=bf16 {offload}",
    )  # fmt: skip
    return predict(one, load_book(one.cluster)).metrics.tokens_per_s


def test_each_step_of_the_ladder_is_faster_and_the_last_is_as_fast_as_published():
    mesh = tokens_per_s("dp=4 cp=256", **MESH)
    ladder = [
        tokens_per_s("dp=1024", balance="tokens") / mesh,
        tokens_per_s("dp=1024", offload="offload=activations:host:0.8", balance="tokens", **OFFLOAD) / mesh,
        tokens_per_s("dp=1024", offload="offload=activations:host:0.8", balance="flop", **OFFLOAD) / mesh,
    ]

    assert ladder == pytest.approx([6.9, 7.8, 8.4], abs=0.1)
    assert ladder[-1] == pytest.approx(7.89, rel=0.15)


def test_more_tokens_in_long_sequences_leave_less_to_gain():
    step = 32 * K * K
    gain = tokens_per_s("dp=1024", BYTED_SHARES, step) / tokens_per_s(
        "dp=4 cp=256", BYTED_SHARES, step, **MESH
    )

    assert gain == pytest.approx(4.0, abs=0.1)
