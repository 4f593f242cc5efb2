"""Other projects' measurements: conventions as their notes state them, and the curves that they give."""

from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.collectives.collective_time import message_seconds
from flopcast.cost.placement import Group
from flopcast.files.package_table import read_table
from flopcast.lab.calibration import collective_files, peer_fit
from flopcast.lab.calibration.curve_fit import fit_fabric, predicted_s
from flopcast.lab.calibration.efficiency_table import Rows
from flopcast.lab.calibration.peer_tables import samples_of
from flopcast.lab.calibration.samples import Samples
from flopcast.lab.calibration.source_agreement import disagreement
from flopcast.lab.samples.columns import read_columns
from flopcast.library import catalog
from flopcast.library.curves import load_book, load_owner, write_owner

GRADIENTS = ("input_gradient", "weight_gradient")
LAYOUTS_OF = ("TN", "NN", "NT")  # forward, input gradient, weight gradient
GEMM_TABLE = "aiconfigurator/gemm_bf16.csv.gz"
GEMM = next(file for file in peer_fit.PEER_FILES if file.path == GEMM_TABLE)
SMALL = (
    "infersim/gemm.csv",
    "infersim/mha_prefill.csv",
    "infersim/grouped_gemm_prefill.csv",
    "infersim/grouped_gemm_decode.csv",
)
FABRICS = {  # cluster and aiconfigurator's name of the system, by fabric
    row["fabric"]: (row["cluster"], row["system"])
    for row in read_table(collective_files.__package__, "collectives.yaml")["systems"]
}
NCCL_TABLE = "peers/aiconfigurator/nccl_collectives.csv.gz"
OPERATIONS = {"all_to_all": "alltoall"} | {
    name: name for name in ("all_reduce", "all_gather", "reduce_scatter")
}
BUS_SHARE = {"all_reduce": lambda n: 2 * (n - 1) / n} | dict.fromkeys(
    ("all_gather", "reduce_scatter", "alltoall"), lambda n: (n - 1) / n
)
TWO_STATES = "gb200-192gb"  # none of its products is used
MEASURED_GEMMS = [name for name in GEMM.devices.values() if name not in ("a100-sxm4-80gb", TWO_STATES)]
IN_RANGE = {"l40s-48gb": 0.07}  # median error of products kept aside; 0.04 for the others
NEAREST = {  # A100 has no relative: all of its own classes were measured; that of B200 has no products
    "a100-sxm4-80gb": "h100-sxm5-80gb",
    "b200-sxm-180gb": "gb300-288gb",
}


def marks(file, device):
    """Columns that mark a device's rows."""
    return [mark for mark, name in file.devices.items() if name == device]


def made_up(times_s, sizes=(4.0, 8.0, 16.0), name="made_up"):
    """Samples whose bound is one second."""
    return Samples(
        name=name,
        coordinates=np.array([sizes]),
        bound_s=np.ones(len(times_s)),
        measured_s=np.array(times_s),
        source="made up",
    )


@pytest.fixture(scope="module")
def gemms(measurements):
    """Columns of the bf16 products."""
    return measurements.peers[GEMM_TABLE]


@pytest.fixture(scope="module")
def gemm_samples(gemms):
    """Samples of the bf16 products by device."""
    return {
        name: samples_of(GEMM, gemms, mark, catalog.device(name)) for mark, name in GEMM.devices.items()
    }


@pytest.fixture(scope="module")
def nccl(shared):
    """Columns of the table of collectives."""
    return read_columns(shared / "data" / NCCL_TABLE).columns


# Operators


@pytest.mark.parametrize(
    ("system", "framework", "rows"),
    [  # counted in the file with awk
        ("a100_sxm", "vllm", 6160),
        ("h100_sxm", "vllm", 25599),
        ("gb200", "vllm", 25599),
        ("l40s", "vllm", 25544),
    ],
)
def test_the_table_of_products_is_read_whole(gemms, system, framework, rows):
    here = (gemms[f"system={system}"] == 1) & (gemms[f"framework_name={framework}"] == 1)

    assert here.sum() == rows


@pytest.mark.parametrize(
    ("name", "fraction"),  # peers/README.md: median of m, n, k >= 4096
    [
        ("a100-sxm4-80gb", 0.91),
        ("h100-sxm5-80gb", 0.80),
        ("h200-sxm-141gb", 0.77),
        ("b200-sxm-180gb", 0.69),
    ],
)
def test_large_products_reach_the_fraction_of_peak_that_the_notes_state(gemm_samples, name, fraction):
    samples = gemm_samples[name]
    large = samples.coordinates.min(axis=0) >= 4096
    flop = 2 * samples.coordinates[:, large].prod(axis=0)

    reached = flop / samples.measured_s[large] / catalog.device(name).peak_flop_per_s["bf16"]

    assert np.median(reached) == pytest.approx(fraction, abs=0.005)


@pytest.mark.parametrize("name", [*MEASURED_GEMMS, TWO_STATES])
def test_no_product_of_the_sweep_beats_the_peak_and_those_of_gb200_are_left_out(gemm_samples, name):
    """hopper_blackwell.md, section 4: 0.72 of peak below 2^39 multiply-adds, 0.42 above."""
    samples = gemm_samples[name]

    assert (samples.rejected > 0) == (name == TWO_STATES)
    assert (samples.measured_s.size > 0) == (name != TWO_STATES)
    assert (samples.measured_s >= samples.bound_s / 1.5).all()


def test_a_product_in_milliseconds_is_one_in_seconds():
    """4096 cubed in 0.2 ms: 2 · 4096³ / 989 TFLOP/s = 0.139 ms of bound."""
    columns = {"m": 4096.0, "n": 4096.0, "k": 4096.0, "latency_ms": 0.2, "system=h100_sxm": 1.0}
    columns |= {"framework_name=vllm": 1.0, "system=gb200": 0.0}
    columns = {name: np.array([value]) for name, value in columns.items()}

    samples = samples_of(GEMM, columns, "system=h100_sxm", catalog.device("h100-sxm5-80gb"))

    assert samples.measured_s.item() == pytest.approx(2e-4)
    assert samples.bound_s.item() == pytest.approx(2 * 4096**3 / 989e12)


def test_a_causal_row_counts_half_of_the_square():
    """8 heads of 128 over 4096 tokens: 4 · 8 · 4096² · 128 / 2 FLOP."""
    file = next(f for f in peer_fit.PEER_FILES if f.path == "aiconfigurator/attention_prefill_bf16.csv.gz")
    columns = {"batch_size": 1.0, "seq_len": 4096.0, "num_heads": 8.0, "num_kv_heads": 2.0}
    columns = {name: np.array([value]) for name, value in (columns | {"head_dim": 128.0}).items()}

    operator = file.operator(columns)

    assert operator.work().flop.item() == 2 * 8 * 4096**2 * 128
    assert operator.kv_batch.item() == 2


def test_an_efficiency_of_the_whole_square_becomes_the_seconds_that_were_measured():
    """B200, 64 heads of 128, 4096 tokens at 0.8715 of 2250 TFLOP/s: 0.280 ms for the square."""
    file = next(
        f
        for f in peer_fit.PEER_FILES
        if f.path.startswith("simumax/attention") and not f.name.endswith("d")
    )
    row = {"batch": 1, "seq_len": 4096, "head_num": 64, "kv_head_num": 8, "qk_head_dim": 128}
    row |= {"efficiency": 0.871523, "peak_tflops": 2250}

    seconds = file.measured_s({name: np.array([float(value)]) for name, value in row.items()})

    assert seconds.item() == pytest.approx(2.803e-4, rel=1e-3)


def test_fractions_of_infersim_are_of_the_fp8_peak(shared):
    """64 × 6144 × 2048 in 10.696 us at 0.508719 is 296 TFLOP/s: H20's fp8, twice its bf16."""
    columns = read_columns(shared / "data" / "peers" / SMALL[0]).columns
    flop = 2 * columns["m"] * columns["n"] * columns["k"]

    peak = np.median((flop / (columns["latency_us"] * 1e-6) / columns["mfu"])[columns["gpu=h20"] == 1])

    assert peak == pytest.approx(catalog.device("h20-96gb").peak_flop_per_s["fp8"], rel=0.01)


@all_cases("number", range(len(peer_fit.PEER_FILES)))
def test_a_table_names_devices_of_the_catalogue_and_gives_rows_that_can_be(measurements, number):
    file = peer_fit.PEER_FILES[number]
    columns = measurements.peers[file.path]

    for mark, name in file.devices.items():
        samples = samples_of(file, columns, mark, catalog.device(name))
        found = samples.measured_s.size
        assert found + samples.rejected > 0
        assert (samples.bound_s > 0).all()
        assert samples.coordinates.shape[1] == found


def test_rows_stand_in_the_place_of_plans():
    assert GEMM.operator({name: np.arange(1.0, 4.0) for name in "mnk"}).m.shape == (3, 1)


# Curves of operators


@pytest.mark.parametrize("name", MEASURED_GEMMS)
def test_products_kept_aside_are_predicted(gemm_samples, name):
    """A fifth at random is left out of the fit; median error of the whole time."""
    device, samples = catalog.device(name), peer_fit.beyond_the_host(gemm_samples[name])
    aside = np.random.default_rng(1).random(samples.measured_s.size) < 0.2

    curve = peer_fit.fit_quickly(samples.part(~aside), device)

    left = samples.part(aside)
    errors = np.abs(predicted_s(curve, left, device) / left.measured_s - 1)
    assert np.median(errors) <= IN_RANGE.get(name, 0.04)


@pytest.mark.parametrize("name", ["a100-sxm4-80gb", *(n for n in MEASURED_GEMMS if n != "l40s-48gb")])
def test_a_device_left_out_is_predicted_by_its_nearest_relative(gemm_samples, name):
    """L40S is no part of this claim: no relative is within 12 % of it."""
    device, samples = catalog.device(name), peer_fit.beyond_the_host(gemm_samples[name])
    relative = NEAREST.get(name) or device.relatives[0]
    curve = load_owner(relative)[relative, "gemm"]

    errors = np.abs(predicted_s(curve, samples, device) / samples.measured_s - 1)

    assert np.median(errors) <= 0.12


@pytest.mark.parametrize("name", [*MEASURED_GEMMS, "a40-48gb", "rtx-4090-24gb"])
def test_no_prediction_beats_its_bound_even_far_outside_the_sweep(name):
    device = catalog.device(name)
    curve = load_owner(name)[name, "gemm"]
    shapes = 2.0 ** np.random.default_rng(2).uniform(4, 18, (3, 500))
    samples = Samples(
        name="gemm", coordinates=shapes, bound_s=np.ones(500), measured_s=np.ones(500), source=""
    )

    assert (predicted_s(curve, samples, device) >= 1.0).all()


@pytest.mark.parametrize("name", ["h20-96gb", "h800-sxm-80gb"])
def test_a_refit_of_a_small_owner_gives_the_committed_bytes(shared, tmp_path, name):
    tables = {path: read_columns(shared / "data" / "peers" / path).columns for path in SMALL}

    found = peer_fit.fit_peers(catalog.device(name), tables)
    write_owner(tmp_path / "again.json", name, list(found.curves.values()))

    committed = (catalog.folder("curves") / f"{name}.json").read_bytes()
    assert (tmp_path / "again.json").read_bytes() == committed


def test_layouts_of_b200_are_the_ratios_of_its_training_table():
    """MooreThreads/SimuMax: gradients within 5 % of the forward, on a table of their own."""
    curve = load_owner("b200-sxm-180gb")["b200-sxm-180gb", "gemm"]

    assert all(0.95 < curve.ratio_of(layout, "bf16") < 1.05 for layout in GRADIENTS)


def test_a_curve_takes_each_ratio_that_it_lacks_from_the_first_relative_that_has_it():
    plain = load_owner("gh200-96gb")["gh200-96gb", "gemm"]
    bare, fp16, bf16 = (
        replace(plain, layout_ratio=ratios)
        for ratios in ({}, {"input_gradient.fp16": 0.9}, {"input_gradient.bf16": 1.0})
    )
    both = {"input_gradient.fp16": 0.9, "input_gradient.bf16": 1.0}

    assert peer_fit.borrowed_layouts(bare, (fp16, bf16)).layout_ratio == both
    assert peer_fit.borrowed_layouts(
        fp16, (replace(bf16, layout_ratio=dict.fromkeys(both, 2.0)),)
    ).layout_ratio == {"input_gradient.fp16": 0.9, "input_gradient.bf16": 2.0}
    assert peer_fit.borrowed_layouts(bare, ()).layout_ratio == {}


@pytest.mark.parametrize("name", ["a100-sxm4-80gb", "h100-sxm5-80gb"])
def test_gradients_in_bf16_have_the_ratios_that_a_table_of_training_in_bf16_shows(shared, name):
    """MooreThreads/SimuMax times all three products of a layer on A100: 61 shapes of each."""
    rows = read_columns(shared / "data" / "peers" / "simumax" / "gemm_efficiency.csv").columns
    here = rows["system=a100_pcie"] == 1
    median = {
        kind: np.median(rows["efficiency"][here & (rows[f"layout={kind}"] == 1)]) for kind in LAYOUTS_OF
    }

    curve = load_owner(name)[name, "gemm"]

    for layout, kind in zip(GRADIENTS, ("NN", "NT"), strict=True):
        assert curve.ratio_of(layout, "bf16") == pytest.approx(median["TN"] / median[kind], rel=0.04)


def test_narrow_products_say_that_they_are_of_serving_kernels():
    for name in sorted(set(MEASURED_GEMMS) - {"arc-pro-b60-24gb"}):  # which has no narrow engines
        narrow = [curve for (_, key), curve in load_owner(name).items() if key.startswith("gemm.")]
        assert narrow
        assert all("slower than those of training" in curve.evidence.source for curve in narrow)


def test_terms_that_rows_do_not_show_are_left_out():
    """Efficiency falls with the first term alone."""
    noise = np.random.default_rng(3)
    terms = -noise.random((400, 2))
    rows = Rows(log2=noise.uniform(0, 8, (1, 400)), log_efficiency=0.5 * terms[:, 0] - 1, terms=terms)

    kept, names = peer_fit.shown_terms(rows, ("shown", "not"))

    assert names == ("shown",)
    assert kept.terms.shape == (400, 1)


def test_few_rows_get_few_nodes_and_few_values_a_node_each():
    few = Rows(log2=np.linspace(0, 9, 50)[None], log_efficiency=np.zeros(50), terms=np.zeros((50, 0)))
    twice = Rows(log2=np.array([[1.0, 2.0] * 9]), log_efficiency=np.zeros(18), terms=np.zeros((18, 0)))

    assert len(peer_fit.axes_of(few)[0]) == 6
    assert peer_fit.axes_of(twice)[0].tolist() == [1.0, 2.0]


def test_rows_whose_time_is_the_hosts_are_left_out():
    """Products of 1 to 2^20 units: the host takes 100 us, the kernel 2 ns a unit, whichever is longer."""
    units = 2.0 ** np.linspace(0, 20, 2000)
    samples = Samples(
        name="gemm",
        coordinates=units[None],
        bound_s=1e-9 * units,
        measured_s=np.maximum(1e-4, 2e-9 * units),
        source="made",
    )

    kept = peer_fit.beyond_the_host(samples)

    assert kept.measured_s.min() == pytest.approx(1.5e-4, rel=0.1)
    assert kept.measured_s.size + kept.rejected == 2000
    assert (kept.measured_s == 2e-9 * kept.coordinates[0]).all()


def test_a_table_of_few_rows_is_no_sweep_and_keeps_them_all():
    samples = made_up([2.0, 3.0, 4.0])

    assert peer_fit.beyond_the_host(samples) is samples


# Sources beside each other


def test_two_sources_of_one_truth_agree():
    apart = disagreement(made_up([2.0, 3.0, 4.0]), made_up([2.0, 3.0, 4.0]))

    assert (apart.shared, apart.bias_ratio, apart.median_error) == (3, 1.0, 0.0)
    assert apart.agrees


def test_a_source_a_third_slower_is_told_and_kept_aside():
    joined, lines = peer_fit.agreed({"first": made_up([3.0, 3.0, 3.0]), "second": made_up([4.0, 4.0, 4.0])})

    assert joined.measured_s.tolist() == [3.0, 3.0, 3.0]
    assert lines == [
        "second does not join the curve: at 3 common shapes, its times are 1.33 times those of the first"
        " source, with a median difference of 33.3%"
    ]


def test_a_source_that_agrees_joins_the_fit():
    joined, lines = peer_fit.agreed({"first": made_up([3.0, 3.0, 3.0]), "second": made_up([3.1, 3.1, 3.1])})

    assert joined.measured_s.size == 6
    assert lines[0].startswith("second joins")


def test_sources_without_a_common_shape_are_not_compared():
    apart = disagreement(made_up([1.0, 1.0, 1.0]), made_up([1.0, 1.0, 1.0], sizes=(64.0, 128.0, 256.0)))

    assert apart.shared == 0
    assert not apart.agrees
    assert apart.text() == "no common shapes"


def test_too_few_rows_make_no_curve(shared):
    """A100 on PCIe: eight rows of attention, all of one length."""
    path = "simumax/attention_efficiency.csv"
    tables = {path: read_columns(shared / "data" / "peers" / path).columns}

    found = peer_fit.fit_peers(catalog.device("a100-pcie-80gb"), tables)

    assert found.curves == {}
    assert found.messages[0] == "a100-pcie-80gb flash_attention: 8 rows are too few for a curve"
    assert peer_fit.FEWEST_ROWS > 8


def test_training_kernels_of_b200_are_slower_than_the_sweep_says(shared, gemms):
    """hopper_blackwell.md, section 1: 0.49 of peak in one table, 0.69 in the other."""
    path = "simumax/gemm_efficiency.csv"
    tables = {GEMM_TABLE: gemms, path: read_columns(shared / "data" / "peers" / path).columns}

    found = peer_fit.device_samples(catalog.device("b200-sxm-180gb"), tables)["gemm"]
    apart = disagreement(found["aiconfigurator"], found["simumax"])

    assert apart.bias_ratio == pytest.approx(0.69 / 0.49, rel=0.05)


def test_devices_of_a_table_are_found_by_its_path():
    assert peer_fit.peer_devices(SMALL) == ("h20-96gb", "h800-sxm-80gb")
    assert {file.source for file in peer_fit.PEER_FILES if "h20-96gb" in file.devices.values()} == {
        "infersim",
        "infersim prefill",
        "infersim decode",
    }


# Collectives


@pytest.mark.parametrize(
    ("system", "version", "bus_gb_per_s"),  # peers/README.md: 8 GPUs, 256 MiB and more, all_reduce
    [
        ("a100_sxm", "2.27.3", 219),
        ("h100_sxm", "2.29.2", 438),
        ("h200_sxm", "2.29.2", 453),
        ("b200_sxm", "2.27.3", 670),
    ],
)
def test_large_messages_reach_the_bus_bandwidth_of_the_notes(nccl, system, version, bus_gb_per_s):
    words = (f"system={system}", f"nccl_version={version}", "op=all_reduce", "dtype=half")
    here = np.all([nccl[word] == 1 for word in words], axis=0)
    here &= (nccl["num_gpus"] == 8) & (nccl["num_elements"] >= 2**27)

    bus = 1.75 * 2 * nccl["num_elements"][here] / (nccl["latency_ms"][here] * 1e-3)

    assert np.median(bus) == pytest.approx(bus_gb_per_s * 1e9, rel=0.02)


@all_cases("entry", [*collective_files.WITH_LATENCY, *collective_files.WITHOUT_LATENCY])
def test_an_entry_belongs_to_a_tier_that_names_its_fabric(entry):
    tiers = {tier.name: tier for tier in catalog.cluster(entry.cluster).tiers}

    assert tiers[entry.tier].fabric == entry.fabric


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_to_all"])
def test_each_collective_of_an_a100_reads_its_own_rows_in_half_precision(collective):
    """Rows: the collective in half, in int8, another one, another system."""
    words = {
        name: np.zeros(4) for c in ("all_gather", "reduce_scatter", "alltoall") for name in (f"op={c}",)
    }
    words[f"op={OPERATIONS[collective]}"] = np.array([1.0, 1.0, 0.0, 1.0])
    words |= {"dtype=half": np.array([1.0, 0.0, 1.0, 1.0]), "nccl_version=2.27.3": np.ones(4)}
    words |= {"system=a100_sxm": np.array([1.0, 1.0, 1.0, 0.0])}
    (entry,) = [
        f
        for f in collective_files.WITH_LATENCY
        if (f.fabric, f.collective) == ("a100-nvswitch", collective)
    ]

    assert entry.keep(words).tolist() == [True, False, False, False]


@all_cases("entry", [f for f in collective_files.WITH_LATENCY if f.path == NCCL_TABLE])
def test_each_version_gives_twenty_one_sizes_for_each_number_of_devices(nccl, entry):
    rows = entry.keep(nccl)

    counts = np.unique(nccl["num_gpus"][rows], return_counts=True)[1]
    assert counts.tolist() == [21] * (2 if entry.fabric.startswith("gb") else 3)


def test_elements_of_half_precision_are_two_bytes():
    assert collective_files.WITH_LATENCY[0].size_bytes({"num_elements": np.array([256.0])}).item() == 512.0


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_messages_of_1_kb_to_1_gb_inside_a_node_are_predicted(nccl, fabric, name):
    """Every other version of NCCL from 2.26 on, which the fit has not seen; else the fitted one."""
    cluster_name, system = FABRICS[fabric]
    others = [f"nccl_version={v}" for v in ("2.26.2", "2.27", "2.27.3", "2.27.5", "2.28.9")]
    here = (nccl[f"system={system}"] == 1) & (nccl[f"op={OPERATIONS[name]}"] == 1)
    here &= (nccl["dtype=half"] == 1) & (nccl["num_elements"] >= 512)
    unseen = here & np.any([nccl[version] == 1 for version in others], axis=0)
    rows = unseen if unseen.any() else here & (nccl["nccl_version=2.29.2"] == 1)
    size, ranks = 2 * nccl["num_elements"][rows], nccl["num_gpus"][rows]
    cluster = catalog.cluster(cluster_name)

    group = Group(inside=ranks, nodes=np.ones_like(ranks))
    seconds = message_seconds(name, size, group, cluster, load_book(cluster)).alone_s

    errors = np.abs(seconds / (nccl["latency_ms"][rows] * 1e-3) - 1)
    assert np.median(errors) <= 0.06


@all_cases("fabric", FABRICS)
def test_a_message_smaller_than_any_takes_as_long_as_the_smallest(fabric):
    cluster = catalog.cluster(FABRICS[fabric][0])
    size, two = np.array([1.0, 512.0]), np.full(2, 2.0)

    group = Group(inside=two, nodes=np.ones(2))
    seconds = message_seconds("all_reduce", size, group, cluster, load_book(cluster)).alone_s

    assert seconds[0] == seconds[1] > 5e-6


def test_curves_of_messages_with_latency_count_no_hops(nccl):
    """A tier of any latency gives one curve, and one time: the shortest measured, 5.8 us on H100."""
    entry = collective_files.WITH_LATENCY[0]
    tier = catalog.cluster(entry.cluster).tiers[0]
    slow = tier.model_copy(update={"latency_s": 1.0})

    first, second = (fit_fabric([(entry, nccl)], t, own_latency=True)["all_reduce"] for t in (tier, slow))

    assert first.launch_s == second.launch_s == pytest.approx(0.8 * 5.8e-6, rel=0.02)
    np.testing.assert_array_equal(first.table, second.table)


def test_in_switch_sums_that_beat_the_links_are_rejected_and_counted():
    """H200: 8 devices reach a bus bandwidth of 460 GB/s over links of 450."""
    evidence = load_owner("h200-nvswitch")["h200-nvswitch", "all_reduce"].evidence

    assert (evidence.rows, evidence.rejected) == (62, 1)


def test_curves_of_every_kind_fit_into_three_megabytes():
    sizes = [path.stat().st_size for path in catalog.folder("curves").iterdir()]

    assert sum(sizes) <= 3e6
