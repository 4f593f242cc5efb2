"""Dispatch and combine of experts: bytes of a row, what routing does to them, and the curves they give."""

import numpy as np
import pytest

from flopcast.cost.collectives.collective_time import message_seconds
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import Group
from flopcast.dtypes import constant
from flopcast.lab.calibration.collective_files import WITH_LATENCY
from flopcast.lab.calibration.curve_fit import fabric_samples, fit_fabric
from flopcast.lab.samples.columns import read_columns
from flopcast.library import catalog
from flopcast.operators.exchanges import Combine, Dispatch

BY_NAME = {
    (file.fabric, file.collective): file
    for file in WITH_LATENCY
    if file.collective in ("dispatch", "combine")
}
MULTIPROCESSORS = 20  # the default of `Buffer.num_sms` of DeepEP
EVERY_EXCHANGE = pytest.mark.parametrize("name", BY_NAME, ids=":".join)
HOPPER_AND_BLACKWELL = {"h100_sxm": 8, "b200_sxm": 8, "b300_sxm": 8, "gb200": 4, "gb300": 4}
EXPERTS, TOP_K, HIDDEN = 256.0, 8.0, 7168.0  # DeepSeek-V3, arXiv:2412.19437, section 4.2
COPIES = 8 * (1 - np.prod([(224 - i) / (256 - i) for i in range(8)]))  # ranks that eight of 256 lie on


@pytest.fixture(scope="module")
def table(shared):
    """Columns of the dispatches and combines."""
    return read_columns(shared / "data" / "peers/aiconfigurator/deepep_normal.csv.gz").columns


def tier_of(file):
    return next(t for t in catalog.cluster(file.cluster).tiers if t.name == file.tier)


def row(table, system, **values):
    """A mask of the newest rows inside a node, with 20 multiprocessors and these values."""
    words = (f"system={system}", "ver=0.5.12")
    here = np.all([table[word] == 1 for word in words], axis=0)
    wanted = {"node_num": 1, "dispatch_sms": 20, **values}
    return here & np.all([table[name] == value for name, value in wanted.items()], axis=0)


def one_row(tokens=4096.0):
    """DeepSeek-V3's layer, one row of a table."""
    values = {"num_token": tokens, "hidden_size": HIDDEN, "num_topk": TOP_K, "num_experts": EXPERTS}
    return {name: np.array([value]) for name, value in values.items()}


# What rows say


def test_nothing_on_top_of_a_time_is_no_broken_row(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("dispatch_transmit_us,dispatch_notify_us\n12.5,0\n13.5,-1\n0,4\n", encoding="utf-8")

    measured = read_columns(path)

    assert measured.columns["dispatch_notify_us"].tolist() == [0.0]
    assert len(measured.problems) == 2


def test_the_table_is_read_whole(table):
    assert len(table["num_token"]) == 16054  # counted in the file with wc


def test_a_dispatched_token_is_a_byte_an_element_and_a_scale_for_128():
    """7168 elements in 8 bits and 56 scales of 4 bytes, to 5.29 of 8 ranks: DeepEP's own benchmark."""
    found = BY_NAME["h100-nvswitch", "dispatch"].size_bytes(one_row())

    assert found.item() == pytest.approx(4096 * COPIES * (7168 + 56 * 4), rel=1e-12)


def test_a_combined_token_is_two_bytes_an_element():
    found = BY_NAME["h100-nvswitch", "combine"].size_bytes(one_row())

    assert found.item() == pytest.approx(4096 * COPIES * 2 * 7168, rel=1e-12)


def test_a_node_of_grace_blackwell_holds_four_ranks_of_the_exchange():
    """Each holds 64 experts: three of four ranks of eight tokens' experts are others', or its own."""
    copies = 4 * (1 - np.prod([(192 - i) / (256 - i) for i in range(8)]))

    found = BY_NAME["gb200-nvlink", "combine"]

    assert found.size_bytes(one_row(1.0)).item() == pytest.approx(copies * 2 * 7168, rel=1e-12)
    assert found.inside(one_row()).item() == 4


@pytest.mark.parametrize("system", HOPPER_AND_BLACKWELL)
def test_models_of_6_to_22_experts_a_token_reach_one_bandwidth_at_the_ranks_that_are_stated(table, system):
    """Of 4096 elements, 65536 tokens; at the other number of ranks their bandwidths spread twice as far."""
    here = row(table, system, hidden_size=4096, num_token=65536) & (table["num_topk"] >= 6)
    ranks = HOPPER_AND_BLACKWELL[system]

    def spread(n):
        elsewhere = table["num_experts"][here] * (1 - 1 / n)
        tries = range(int(table["num_topk"].max()))
        missed = [
            np.prod([(e - i) / (all_ - i) for i in tries if i < k])
            for e, all_, k in zip(
                elsewhere, table["num_experts"][here], table["num_topk"][here], strict=True
            )
        ]
        rate = (1 - np.array(missed)) / table["combine_transmit_us"][here]
        return rate.max() / rate.min()

    assert here.sum() == 5
    assert spread(ranks) < 1.2
    assert spread(12 - ranks) > 1.2


@pytest.mark.parametrize("system", ["h100_sxm", "b200_sxm"])
def test_what_comes_back_is_half_as_fast_again_as_what_went_out_in_half_the_bits(table, system):
    """Were both sent in 16 bits, a combine of DeepSeek-V3's rows would take 1.0 to 1.1 of a dispatch."""
    here = row(table, system, hidden_size=7168, num_token=16384, num_experts=256)

    (ratio,) = table["combine_transmit_us"][here] / table["dispatch_transmit_us"][here]

    assert 1.6 < ratio < 2.0


def test_older_rows_of_h200_are_those_of_h100_under_another_name(table):
    """Which is why they stay aside, and the newer ones do not."""
    names = ("node_num", "num_token", "dispatch_sms", "dispatch_transmit_us", "combine_transmit_us")

    def rows(system, version):
        here = (table[f"system={system}"] == 1) & (table[f"ver={version}"] == 1)
        return set(zip(*(table[name][here] for name in names), strict=True))

    assert rows("h100_sxm", "0.5.6.post2") == rows("h200_sxm", "0.5.6.post2")
    assert not rows("h100_sxm", "0.5.12") & rows("h200_sxm", "0.5.12")


@EVERY_EXCHANGE
def test_an_entry_takes_every_shape_once_at_the_librarys_own_number_of_multiprocessors(table, name):
    """18 models of 9 token counts, one model more with Grace."""
    file = BY_NAME[name]

    rows = file.keep(table)

    shapes = {key: table[key][rows] for key in ("num_token", "hidden_size", "num_topk", "num_experts")}
    assert rows.sum() == 9 * (19 if name[0].startswith("gb") else 18)
    assert len(set(zip(*shapes.values(), strict=True))) == rows.sum()
    assert set(table[f"{name[1]}_sms"][rows]) == {MULTIPROCESSORS}
    assert table["num_token"][rows].min() == 512
    assert set(table["node_num"][rows]) == {1.0}


def test_other_numbers_of_multiprocessors_are_slower_or_take_more_from_what_runs_beside(table):
    """B200, DeepSeek-V3, 16384 tokens: 4 take over four times as long; 24 save a seventh."""
    shape = {"hidden_size": 7168, "num_token": 16384, "num_experts": 256, "num_topk": 8}

    few, chosen, many = (
        table["dispatch_transmit_us"][row(table, "b200_sxm", dispatch_sms=number, **shape)].item()
        for number in (4, MULTIPROCESSORS, 24)
    )

    assert 4 < few / chosen < 5
    assert many / chosen == pytest.approx(6 / 7, abs=0.02)


# Curves


@pytest.fixture(scope="module")
def curves(table):
    """Curves of both by fabric and collective."""
    return {
        name: fit_fabric([(file, table)], tier_of(file), own_latency=True)[file.collective]
        for name, file in BY_NAME.items()
    }


@EVERY_EXCHANGE
def test_every_row_is_possible_and_makes_a_curve_whose_error_is_told(curves, name):
    evidence = curves[name].evidence

    assert evidence.rejected == 0
    assert evidence.rows >= 162
    assert 0.1 < evidence.relative_error < 0.45


@EVERY_EXCHANGE
def test_the_fewest_tokens_take_tens_of_microseconds_and_a_smaller_message_no_less(table, curves, name):
    file = BY_NAME[name]
    samples = fabric_samples(file, table, tier_of(file), own_latency=True)
    book = CurveBook(curves={(file.fabric, file.collective): curves[name]})
    group = Group(inside=samples.coordinates[1][:2], nodes=np.ones(2))

    cost = message_seconds(
        file.collective, np.array([1.0, 1e5]), group, catalog.cluster(file.cluster), book
    ).alone_s

    assert 25e-6 < samples.measured_s.min() < 90e-6
    assert cost[0] == cost[1] > 25e-6


@EVERY_EXCHANGE
def test_a_layer_of_deepseek_that_the_fit_has_not_seen_is_predicted(table, name):
    """Every other model is fitted; 1024 to 65536 tokens a rank, as one trains with.

    Copies are sent by the token: those of 7168 elements hardly take longer than the middle's 4096, least of
    all with the links of Grace.
    """
    most_error = 0.6 if name[0].startswith("gb") else 0.33
    file = BY_NAME[name]
    is_deepseek = (table["hidden_size"] == HIDDEN) & (table["num_experts"] == EXPERTS)
    others = {word: values[~is_deepseek] for word, values in table.items()}
    cluster, tier = catalog.cluster(file.cluster), tier_of(file)
    curve = fit_fabric([(file, others)], tier, own_latency=True)[file.collective]
    book = CurveBook(curves={(file.fabric, file.collective): curve})
    here = file.keep(table) & is_deepseek & (table["num_token"] >= 1024) & (table["num_token"] <= 65536)
    rows = {word: values[here] for word, values in table.items()}

    group = Group(inside=file.inside(rows), nodes=file.nodes(rows))
    cost = message_seconds(file.collective, file.size_bytes(rows), group, cluster, book)

    errors = cost.alone_s / file.seconds(rows) - 1
    assert len(errors) == 7
    assert np.abs(errors).max() < most_error
    assert not cost.borrowed.any()


def test_a_large_exchange_of_h100_keeps_to_what_its_library_publishes(table, curves):
    """DeepEP's page: 153 GB/s out, 158 back, over 8 H800, whose links have 200 GB/s of H100's 450."""
    for name, h800_bytes_per_s in (("dispatch", 153e9), ("combine", 158e9)):
        file = BY_NAME["h100-nvswitch", name]
        size = file.size_bytes(one_row())
        cluster = catalog.cluster(file.cluster)
        book = CurveBook(curves={(file.fabric, name): curves["h100-nvswitch", name]})

        group = Group(inside=np.array([8.0]), nodes=np.array([1.0]))
        seconds = message_seconds(name, size, group, cluster, book).alone_s

        assert h800_bytes_per_s < (size / seconds).item() < h800_bytes_per_s * 450 / 200


def test_one_rank_sends_nothing(curves):
    cluster = catalog.cluster("dgx-h100")
    book = CurveBook(curves={("h100-nvswitch", "dispatch"): curves["h100-nvswitch", "dispatch"]})
    alone = Group(inside=np.array([1.0]), nodes=np.array([1.0]))

    assert message_seconds("dispatch", np.array([1e9]), alone, cluster, book).alone_s.item() == 0


def test_gradients_of_a_dispatch_come_home_and_are_summed():
    sent = Dispatch(axis="ep", message_bytes=constant(1e6))

    back = sent.dual()

    assert (type(back), back.axis, back.message_bytes.item()) == (Combine, "ep", 1e6)
    assert type(back.dual()) is Dispatch
