"""Parameters that are kept in 8 bits alone, against what Megatron-Core's fp8_param_gather leaves out."""

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.prediction import memory_of

MODEL = {
    "hidden": 4096,
    "vocabulary": 32000,
    "blocks": [{"count": 4, "mixer": {"heads": 32}, "feed_forward": {"ffn_hidden": 16384}}],
}
LINEARS = 4 * (4 * 4096**2 + 2 * 4096 * 16384)  # q, k, v, out; up, down: of four blocks


def categories(precision, narrow):
    """Bytes by category of one device of eight replicas."""
    job = make_job(
        model=MODEL,
        cluster="dgx-b200:1",
        stack={"base": "megatron-core", "narrow": {"narrow_parameters": narrow}},
        plan=f"dp=8 gbs=8 zero=1 precision={precision}",
    )
    return memory_of(job).by_category


@all_cases("precision", ["fp8", "fp8_current", "fp8_blockwise", "mxfp8"])
def test_weights_of_narrow_products_lose_their_two_bytes(precision):
    beside, alone = (categories(precision, narrow) for narrow in (False, True))

    assert beside["parameters"] - alone["parameters"] == pytest.approx(2 * LINEARS)
    assert alone["narrow_weights"] == beside["narrow_weights"]
    assert alone["optimizer_states"] == beside["optimizer_states"]


@pytest.mark.parametrize("precision", ["bf16", "nvfp4"])
def test_without_8_bits_parameters_stay_wide(precision):
    beside, alone = (categories(precision, narrow) for narrow in (False, True))

    assert alone == beside


def test_what_is_left_in_16_bits_are_tables_and_norms():
    alone = categories("mxfp8", narrow=True)

    tables = 2 * 32000 * 4096
    norms = 2 * (4 * 2 + 1) * 4096  # scale and bias of every norm
    assert alone["parameters"] == pytest.approx(2 * (tables + norms), rel=0.01)


@all_cases("precision", ["fp8", "nvfp4"])
def test_frozen_weights_are_stored_in_low_precision_alone(precision):
    """Also in 4 bits, as no optimizer needs their 16 bits; the rest of the memory stays the same."""

    def of(frozen):
        job = make_job(
            model=MODEL | {"adapters": {"rank": 16, "targets": ["qkv", "out"]}},
            cluster="dgx-b200:1",
            stack={"base": "megatron-core", "narrow": {"frozen_parameters": frozen}},
            plan=f"dp=8 gbs=8 zero=1 precision={precision}",
        )
        return memory_of(job).by_category

    beside, alone = of(frozen=False), of(frozen=True)

    assert beside.pop("parameters") - alone.pop("parameters") == pytest.approx(2 * LINEARS)
    assert alone == beside
