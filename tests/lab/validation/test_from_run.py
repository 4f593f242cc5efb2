"""One-run calibration: the update against closed forms, round trips through predictions and commands.

Closed forms are those of conjugate Gaussians (Bishop, Pattern Recognition and Machine Learning, 2006,
section 2.3.3): in logarithms a prior N(0, P) and an observation y = h · x + N(0, r) give means
P h y / (h P h + r) and precisions that add.
"""

import json
import math
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import make_job
from hypothesis import given
from hypothesis import strategies as st

import flopcast
from flopcast.api import predict
from flopcast.cli.import_measurements import from_run, kineto, nccl_tests
from flopcast.dtypes import constant
from flopcast.errors import SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import read_yaml
from flopcast.lab.samples.sites import site_text
from flopcast.lab.validation.from_run import NOISE_LOG_SIGMA, FactorUpdate, Observation, site_after, update
from flopcast.lab.validation.step_parts import components
from flopcast.operators.item import HostWork, Item, kernel
from flopcast.operators.matmul import Matmul
from flopcast.spec.site import RunShare, Site, SiteFactor, SiteRun
from flopcast.timeline.time_attribution import TimeAttribution
from flopcast.timeline.uncertainty import Sensitivity

STEP_S = 10.0
GEMM = "gemm_level[a100-sxm4-80gb]"


def product(name):
    """An item on the matrix engine."""
    work = Matmul(m=constant(8), n=constant(8), k=constant(8), dtype="bf16")
    return kernel(name, work, component="mlp")


def report_of(*factors, shares=(), priced=None):
    """What the update sees of a report: a step of 10 s, its factors, and seconds of items."""
    sensitivities = tuple(
        Sensitivity(name=name, log_sigma_factor=sigma, share=share) for name, sigma, share in factors
    )
    return SimpleNamespace(
        step_time_s=STEP_S,
        factors=sensitivities,
        timeline=SimpleNamespace(
            bottleneck_attribution=tuple(
                TimeAttribution(item=item, path_s=path_s, row=0) for item, path_s in shares
            )
        ),
        priced=SimpleNamespace(
            factors={s.name: s for s in sensitivities},
            of=lambda item: SimpleNamespace(names=lambda _: priced[item.name]),
        ),
    )


def step(ratio, sigma=NOISE_LOG_SIGMA):
    """A step that is so many times as long as predicted."""
    return Observation(observed_s=STEP_S * ratio, log_sigma_factor=sigma)


def named(posterior):
    """Factors by name."""
    return {factor.name: factor for factor in posterior.factors}


sigmas = st.floats(0.005, 0.5)
ratios = st.floats(0.5, 2.0)
parts = st.floats(0.05, 1.0)


@given(sigmas, sigmas, parts, ratios)
def test_one_factor_gets_the_mean_weighted_by_precisions(prior, noise, share, ratio):
    # the observation alone says log(ratio) / share, with sigma noise / share
    precision, told = prior**-2, (noise / share) ** -2

    found = update(report_of(("gemm", prior, share)), (step(ratio, noise),))

    (factor,) = found.factors
    assert math.log(factor.ratio) == pytest.approx(
        told * math.log(ratio) / share / (precision + told), abs=1e-9
    )
    assert factor.log_sigma_factor == pytest.approx((precision + told) ** -0.5, rel=1e-6)


@given(sigmas, sigmas, parts, ratios.filter(lambda r: abs(r - 1) > 0.01))
def test_two_factors_of_one_share_divide_the_discrepancy_as_their_variances(first, second, share, ratio):
    report = report_of(("gemm", first, share), ("derate", second, share))

    found = named(update(report, (step(ratio),)))

    moves = math.log(found["gemm"].ratio), math.log(found["derate"].ratio)
    assert moves[0] / moves[1] == pytest.approx((first / second) ** 2)


def test_a_factor_that_the_step_does_not_hang_on_never_moves():
    report = report_of(("gemm", 0.05, 0.8), ("unused", 0.3, 0.0))

    found = named(update(report, (step(1.2),)))

    assert (found["unused"].ratio, found["unused"].taken_share) == (1.0, 0.0)
    assert found["unused"].log_sigma_factor == pytest.approx(0.3)


def test_a_factor_that_is_certain_never_moves():
    found = named(update(report_of(("gemm", 0.0, 1.0), ("host", 0.1, 0.2)), (step(1.2),)))

    assert (found["gemm"].ratio, found["gemm"].log_sigma_factor) == (1.0, 0.0)


@given(st.lists(st.tuples(ratios, sigmas), min_size=2, max_size=4))
def test_the_order_of_observations_does_not_matter(rows):
    report = report_of(("gemm", 0.05, 0.6), ("fabric", 0.2, 0.3))
    observations = tuple(step(ratio, sigma) for ratio, sigma in rows)

    forth = named(update(report, observations))
    back = named(update(report, observations[::-1]))

    for name, factor in forth.items():
        assert back[name].ratio == pytest.approx(factor.ratio, rel=1e-9)
        assert back[name].log_sigma_factor == pytest.approx(factor.log_sigma_factor, rel=1e-9)


def test_an_observation_made_twice_is_one_of_half_the_variance():
    report = report_of(("gemm", 0.05, 0.6), ("fabric", 0.2, 0.3))

    twice = update(report, (step(1.1, 0.04), step(1.1, 0.04)))
    once = update(report, (step(1.1, 0.04 / math.sqrt(2)),))

    assert twice.step_time_s == pytest.approx(once.step_time_s)
    assert twice.step_time_high_s == pytest.approx(once.step_time_high_s)
    assert [f.ratio for f in twice.factors] == pytest.approx([f.ratio for f in once.factors])


def test_what_the_factors_take_and_what_is_left_are_the_whole_discrepancy():
    report = report_of(("gemm", 0.05, 0.6), ("fabric", 0.2, 0.3), ("jitter", 0.03, 1.0))

    found = update(report, (step(1.15),))

    taken = sum(factor.taken_share for factor in found.factors)
    left = math.log(found.checks[0].observed_s / found.checks[0].updated_s) / math.log(1.15)
    assert taken + left == pytest.approx(1.0)
    # a step of sigma s keeps noise² / (s² + noise²) of the discrepancy for the noise
    variance = 0.03**2 + 0.06**2 + 0.03**2
    assert left == pytest.approx(0.02**2 / (variance + 0.02**2))


def test_the_new_interval_is_the_priors_and_the_noises_precisions_added():
    report = report_of(("gemm", 0.05, 0.6), ("fabric", 0.2, 0.3))
    prior_precision = 1 / (0.03**2 + 0.06**2)

    found = update(report, (step(1.1, 0.01),))

    sigma = (prior_precision + 0.01**-2) ** -0.5
    assert found.step_time_high_s / found.step_time_s == pytest.approx(math.exp(1.6449 * sigma))
    assert found.step_time_s / found.step_time_low_s == pytest.approx(math.exp(1.6449 * sigma))


@pytest.mark.parametrize(("sigmas_off", "warned"), [(2.9, False), (3.1, True), (-3.1, True)])
def test_a_run_more_than_three_sigmas_off_is_said_to_be_another_job(sigmas_off, warned):
    sigma = math.hypot(0.05, 0.02)

    found = update(report_of(("gemm", 0.05, 1.0)), (step(math.exp(sigmas_off * sigma)),))

    assert found.checks[0].surprise_ratio == pytest.approx(abs(sigmas_off))
    assert bool(found.warnings) == warned


def test_a_component_moves_only_the_factors_that_scale_it():
    # of 4 s of products, 3 s hang on the level alone and 1 s on a borrowed curve besides
    shares = [(product("up"), 3.0), (product("down"), 1.0), (None, 0.5)]
    priced = {"up": ("level",), "down": ("level", "borrowed")}
    report = report_of(
        ("level", 0.1, 0.4), ("borrowed", 0.2, 0.1), ("host", 0.3, 0.05), shares=shares, priced=priced
    )
    row = np.array([1.0, 0.25, 0.0])
    prior = np.array([0.1, 0.2, 0.3]) ** 2

    found = update(report, (Observation(name="gemm", observed_s=4.4, log_sigma_factor=0.02),))

    expected = prior * row * math.log(1.1) / (row @ (prior * row) + 0.02**2)
    assert [math.log(named(found)[n].ratio) for n in ("level", "borrowed", "host")] == pytest.approx(
        expected.tolist()
    )
    assert found.checks[0].predicted_s == 4.0


def test_components_of_two_kinds_tell_apart_what_the_step_alone_cannot():
    shares = [(product("up"), 5.0), (Item(name="wait", work=HostWork(kind="step"), component="host"), 5.0)]
    priced = {"up": ("level",), "wait": ("host",)}
    report = report_of(("level", 0.1, 0.5), ("host", 0.1, 0.5), shares=shares, priced=priced)
    parts = (
        Observation(name="gemm", observed_s=6.0, log_sigma_factor=0.001),
        Observation(name="host", observed_s=5.0, log_sigma_factor=0.001),
    )

    found = named(update(report, (step(1.1), *parts)))

    assert found["level"].ratio == pytest.approx(1.2, rel=2e-3)
    assert found["host"].ratio == pytest.approx(1.0, abs=2e-3)


def test_every_fault_of_the_observations_is_told_at_once():
    bad = (
        Observation(name="gemms", observed_s=1.0),
        Observation(observed_s=-1.0),
        Observation(observed_s=1.0, log_sigma_factor=0.0),
    )

    with pytest.raises(SpecError) as caught:
        update(report_of(("gemm", 0.1, 1.0)), bad)

    assert [problem.field for problem in caught.value.problems] == [
        "observed.name", "observed.observed_s", "observed.log_sigma_factor",
    ]  # fmt: skip


def test_no_observation_is_refused():
    with pytest.raises(SpecError, match="at least one"):
        update(report_of(("gemm", 0.1, 1.0)), ())


@cache
def real_report():
    return predict(make_job())


def test_components_of_a_real_report_are_its_step_without_waiting_and_jitter():
    report = real_report()

    found = components(report)

    inside_s = sum(s for name, s in report.breakdown.items() if name not in ("pipeline_bubble", "jitter"))
    assert sum(found.values()) == pytest.approx(inside_s, rel=1e-9)
    assert {"gemm", "memory_bound", "communication"} <= found.keys()


def test_shares_of_a_real_step_are_its_reaction_to_each_factor():
    # oracle: predict again with the factor one per cent higher
    report = real_report()
    factor = SiteFactor(name=GEMM, ratio=1.01)
    slower = predict(make_job().model_copy(update={"site": Site(factors=(factor,))}))

    share = named(update(report, (Observation(observed_s=report.step_time_s),)))[GEMM].step_share

    assert math.log(slower.step_time_s / report.step_time_s) / math.log(1.01) == pytest.approx(
        share, rel=0.02
    )


def test_a_machine_with_slower_products_is_learnt_from_its_step():
    job = make_job()
    truth = Site(factors=(SiteFactor(name=GEMM, ratio=1.15),))
    slow_s = predict(job.model_copy(update={"site": truth})).step_time_s

    posterior = update(real_report(), (Observation(observed_s=slow_s),))
    learnt = predict(job.model_copy(update={"site": site_after(posterior, job.site, "slow", "a test")}))

    assert abs(math.log(learnt.step_time_s / slow_s)) < NOISE_LOG_SIGMA
    assert abs(math.log(posterior.step_time_s / learnt.step_time_s)) < 0.005  # shares hold for this change


def test_a_trace_that_shows_the_products_puts_the_blame_on_them():
    job = make_job()
    slow = predict(job.model_copy(update={"site": Site(factors=(SiteFactor(name=GEMM, ratio=1.15),))}))
    seen = tuple(
        Observation(name=name, observed_s=seconds, log_sigma_factor=0.01)
        for name, seconds in components(slow).items()
    )

    posterior = update(real_report(), (Observation(observed_s=slow.step_time_s), *seen))

    after = {check.name: check for check in posterior.checks}
    assert after["gemm"].updated_s / after["gemm"].predicted_s == pytest.approx(1.15, abs=0.01)
    for name in ("memory_bound", "communication"):
        assert after[name].updated_s == pytest.approx(after[name].predicted_s, rel=0.005)


def updated(name, ratio, sigma=0.02):
    """One factor that moved."""
    return FactorUpdate(
        name=name,
        step_share=0.5,
        prior_log_sigma_factor=0.1,
        ratio=ratio,
        log_sigma_factor=sigma,
        taken_share=0.5,
    )


RUN = SiteRun(
    ratio=1.0713, log_sigma_factor=0.02, shares=(RunShare(name=GEMM, share=0.5, log_sigma_factor=0.1),)
)


def test_a_site_holds_what_moved_on_top_of_what_it_said():
    old = Site(
        name="ours",
        power_limit_w=500.0,
        factors=(
            SiteFactor(name="host", ratio=1.2),
            SiteFactor(name="fabric[x]", ratio=1.5, log_sigma_factor=0.3),
        ),
    )
    posterior = SimpleNamespace(
        factors=(updated("host", 1.1), updated(GEMM, 0.98), updated("jitter", 1.0009, sigma=0.0999)),
        runs=(),
    )

    made = site_after(posterior, old, "unused", "a test")

    assert (made.name, made.power_limit_w) == ("ours", 500.0)
    assert [(f.name, f.ratio, f.log_sigma_factor) for f in made.factors] == [
        ("host", 1.32, 0.02),
        ("fabric[x]", 1.5, 0.3),
        (GEMM, 0.98, 0.02),
    ]
    assert made.source[-1].title == "a test"


def test_a_sites_text_is_read_back_as_the_same_site():
    site = site_after(
        SimpleNamespace(factors=(updated(GEMM, 1.0713), updated("host", 0.9)), runs=(RUN,)),
        Site(),
        "new",
        "a test",
    )

    document = read_yaml(site_text(site).encode(), "site.yaml")

    assert build(Site, document, document.data) == site


JOB = """\
model: megatron-1.7b
cluster: dgx-a100:1
stack: megatron-2022
batch: {sequence_length: 2048}
plan: {data_parallel: 8, micro_batch: 1, global_batch: 16, precision: fp16}
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


def run(command, *words):
    """A command, and what it printed."""
    return CliRunner().invoke(command, [str(word) for word in words])


def site_file(path):
    """The site of a file."""
    document = read_yaml(path.read_bytes(), path.name)
    return build(Site, document, document.data)


def test_the_command_writes_a_site_that_repeats_the_observed_step(job, tmp_path):
    observed_s = 1.08 * predict(make_job_from(job, None)).step_time_s
    out = tmp_path / "site.yaml"

    ended = run(from_run, job, "--observed-step", f"{observed_s}", "--noise", "1%", "--out", out)

    assert ended.exit_code == 0, ended.output
    learnt = predict(make_job_from(job, out))
    assert learnt.step_time_s == pytest.approx(observed_s, rel=0.015)


def make_job_from(path, site):
    """The job of a file, with a site file."""
    return flopcast.job(path, site=site)


def test_two_runs_in_turn_say_what_both_say_at_once(job, tmp_path):
    """In either order: a site file keeps its runs."""
    bare = predict(make_job_from(job, None))
    both = [1.01 * bare.step_time_s, 1.03 * bare.step_time_s]
    at_once = update(bare, tuple(Observation(observed_s=each) for each in both))
    ratios = {one.name: one.ratio for one in at_once.factors}
    files = {}
    for order in (both, both[::-1]):
        first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
        run(from_run, job, "--observed-step", order[0], "--out", first)
        run(from_run, job, "--site", first, "--observed-step", order[1], "--out", second)
        site = site_file(second)
        files[order[0]] = {f.name: f.ratio for f in site.factors}
        assert len(site.source) == len(site.runs) == 2

    for found in files.values():
        assert found == pytest.approx({name: ratios[name] for name in found}, rel=5e-3)


def test_a_quantity_and_a_bare_number_are_the_same_step(job):
    bare, quantity = (run(from_run, job, "--observed-step", text) for text in ("0.5", "500 ms"))

    assert bare.exit_code == quantity.exit_code == 0
    assert bare.output == quantity.output


def test_wrong_options_are_told_together(job):
    ended = run(from_run, job, "--observed-step", "soon", "--noise", "none")

    assert {problem.field for problem in ended.exception.problems} == {"--observed-step", "--noise"}
    for noise, right in {"5": "5%", "2.0": "2%", "200": "2%", "1": "1%"}.items():
        problems = run(from_run, job, "--observed-step", "8", "--noise", noise).exception.problems
        assert problems[0].fix.endswith(f" --noise {right}"), noise


def test_a_command_without_a_measurement_asks_for_one(job):
    ended = run(from_run, job)

    assert "needs at least one measurement" in str(ended.exception)


def trace_file(path, gemm_us, steps=2):
    """A trace whose steps last 400 ms, with so many microseconds of products in each."""
    events = []
    for n in range(steps):
        at = n * 400e3
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": at, "dur": 400e3},
            {
                "ph": "X",
                "cat": "kernel",
                "name": "nvjet_x",
                "ts": at + 10,
                "dur": gemm_us,
                "args": {"device": 0},
            },
        ]
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


def test_a_trace_gives_the_step_and_its_components(job, tmp_path):
    predicted_s = components(predict(make_job_from(job, None)))["gemm"]
    trace = trace_file(tmp_path / "rank0.json", 1.1 * predicted_s * 1e6)

    ended = run(from_run, job, "--trace", trace)

    assert ended.exit_code == 0, ended.output
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["step", "400", "ms", "measured,"] in [line[:4] for line in lines]
    assert "(-9.1%," in next(line for line in lines if line[:1] == ["gemm"])  # 1 / 1.1 - 1


def test_a_trace_without_steps_is_refused(job, tmp_path):
    trace = tmp_path / "rank0.json"
    event = {"ph": "X", "cat": "kernel", "name": "nvjet_x", "ts": 0, "dur": 9, "args": {"device": 0}}
    trace.write_text(json.dumps([event]), encoding="utf-8")

    ended = run(from_run, job, "--trace", trace)

    assert "no step annotations" in str(ended.exception)


def test_a_log_gives_its_median_steady_step(job, tmp_path):
    log = tmp_path / "train.log"
    line = " iteration {:8}/ 100 | elapsed time per iteration (ms): {} | global batch size: 16 |\n"
    log.write_text("".join(line.format(n, 9000 if n == 1 else 640.0 + n % 3) for n in range(1, 60)))

    ended = run(from_run, job, "--log", log)

    assert ended.exit_code == 0, ended.output
    assert "641 ms measured" in ended.stdout


def test_importing_a_trace_prints_totals_and_what_it_does_not_know(tmp_path):
    source = Path(__file__).parents[1] / "traces"
    out, events = tmp_path / "samples.csv", tmp_path / "events.csv"

    ended = run(kineto, source / "kineto_two_steps.json", "--out", out, "--events", events)

    assert ended.exit_code == 0, ended.output
    assert "2 steps, median 900" in ended.stdout  # the first warms up
    assert "their_own_fused_thing" in ended.stdout
    assert len(events.read_text(encoding="utf-8").splitlines()) == 10


def test_importing_a_log_of_nccl_tests_writes_its_rows(tmp_path):
    source = Path(__file__).parents[1] / "traces"
    out = tmp_path / "samples.csv"

    ended = run(nccl_tests, source / "all_reduce_h100_2x8.log", "--out", out)

    assert ended.exit_code == 0, ended.output
    assert "16 ranks" in ended.stdout
    first = out.read_text(encoding="utf-8").splitlines()[1]
    assert first == "all_reduce,float,8388608,16,2,0,0.0002125,27"
