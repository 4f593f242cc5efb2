"""Prices with levels follow from prices without levels."""

import pytest
from conftest import described_model, make_job

from flopcast import prediction
from flopcast.cost.constant_transfer import FittedLevel
from flopcast.lab.published.predictions import NO_LEVELS, Predictions
from flopcast.library.constants import shipped_levels
from flopcast.library.curves import load_book
from flopcast.records import replace

EXPERTS = described_model(num_experts=8, top_k=2, expert_hidden=2048)
JOBS = (
    make_job(plan="dp=4 tp=2 mbs=2 gbs=32 precision=bf16"),
    make_job(plan="dp=2 pp=2 tp=2 mbs=1 gbs=16 precision=bf16", stack="megatron-core-2025"),
    make_job(model=EXPERTS, plan="dp=8 ep=8 mbs=1 gbs=16 precision=bf16"),
)
DOUBLE = {  # large levels: what was limited by bytes and FLOP no longer is, and the other way round
    "gemm_level[a100-sxm4-80gb]": FittedLevel(ratio=2.0, log_sigma_factor=0.02),
    "memory_level[a100-sxm4-80gb]": FittedLevel(ratio=0.5, log_sigma_factor=0.03),
    "in_training_derate": FittedLevel(ratio=1.3, log_sigma_factor=0.04),
    "expert_launch": FittedLevel(ratio=1.7, log_sigma_factor=0.1),
}


def test_reports_with_several_sets_of_levels_are_those_with_each_set_alone():
    for job in JOBS:
        for levels, found in zip(
            (NO_LEVELS, None, DOUBLE), Predictions().each(job, (NO_LEVELS, None, DOUBLE)), strict=True
        ):
            known = shipped_levels() if levels is None else levels
            alone = prediction.predict(job, replace(load_book(job.cluster), levels=known))

            assert found.step_time_s == pytest.approx(alone.step_time_s, rel=1e-12)
            assert found.bounds_s == pytest.approx(alone.bounds_s, rel=1e-12)
            assert found.breakdown == pytest.approx(alone.breakdown, rel=1e-9)
            assert {f.name: f.share for f in found.factors} == pytest.approx(
                {f.name: f.share for f in alone.factors}, rel=1e-9
            )
