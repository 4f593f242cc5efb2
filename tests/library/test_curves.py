"""Curve files: what they hold, and that reading and writing lose nothing."""

import inspect
import json
from dataclasses import asdict

import numpy as np
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.kernels.curve import Curve, CurveEvidence
from flopcast.library import catalog
from flopcast.library.curves import (
    SERVING,
    curve_of,
    entry_of,
    file_of,
    load_book,
    load_owner,
    load_serving_book,
    read_curves,
    serves,
    write_curves,
    write_owner,
)

FOLDERS = {False: catalog.folder("curves"), True: catalog.folder("curves") / SERVING}
OWNERS = [  # and whether the curves are those that only serving uses
    (path.name.removesuffix(".json"), serving)
    for serving, folder in FOLDERS.items()
    for path in sorted(folder.iterdir(), key=lambda path: path.name)
    if path.is_file()
]
CURVES = [(*each, name) for each in OWNERS for _, name in load_owner(*each)]
EVIDENCE = CurveEvidence(source="made up", rows=12, rejected=3, relative_error=0.1234)


@st.composite
def curves(draw):
    """A curve of any shape, its numbers with the four decimals that files keep."""
    sizes = draw(st.lists(st.integers(1, 4), max_size=3))
    steps = [draw(st.lists(st.integers(1, 30000), min_size=size, max_size=size)) for size in sizes]
    whole = st.integers(-50000, 0)
    return Curve(
        name=draw(st.sampled_from(["gemm", "softmax.backward", "all_reduce"])),
        owner="made-up",
        axes=tuple(np.cumsum(np.array(each)) / 10000 for each in steps),
        table=draw(arrays.arrays(np.int64, tuple(sizes), elements=whole)) / 10000,
        launch_s=draw(st.sampled_from([0.0, 2e-6, 3.5e-6])),
        evidence=EVIDENCE,
        layout_ratio=draw(st.sampled_from([{}, {"input_gradient": 0.9, "weight_gradient": 1.1}])),
    )


@given(curves())
@settings(max_examples=30, deadline=None)
def test_a_curve_written_and_read_is_the_same_curve(curve):
    again = curve_of("made-up", json.loads(json.dumps(entry_of(curve))))

    assert (again.name, again.owner, again.launch_s) == (curve.name, curve.owner, curve.launch_s)
    assert asdict(again.evidence) == asdict(curve.evidence)
    assert dict(again.layout_ratio) == dict(curve.layout_ratio)
    assert len(again.axes) == len(curve.axes)
    for mine, theirs in zip(again.axes, curve.axes, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)
    np.testing.assert_allclose(again.table, curve.table, atol=1e-12)
    assert again.table.shape == curve.table.shape


@all_cases(("owner", "serving"), OWNERS)
def test_a_committed_file_read_and_written_has_the_same_bytes(owner, serving, tmp_path):
    write_curves(tmp_path, owner, list(load_owner(owner, serving).values()))

    path = file_of(owner, serving)
    assert (tmp_path / path).read_bytes() == (catalog.folder("curves") / path).read_bytes()


def test_a_prediction_of_training_reads_no_curve_that_only_serving_uses():
    cluster = catalog.cluster("dgx-h100")

    read_again = inspect.unwrap(load_serving_book)  # cached books may contain older copies of curves
    training, serving = load_book(cluster).curves, read_again(cluster).curves

    added = set(serving) - set(training)
    assert {name for _, name in training if serves(name)} == set()
    assert added
    assert {name for _, name in added if not serves(name)} == set()
    assert all(serving[key] is curve for key, curve in training.items())


def test_all_curves_of_an_owner_are_read_from_the_files_that_were_written(tmp_path):
    curves = [*load_owner("h100-nvswitch").values(), *load_owner("h100-nvswitch", serving=True).values()]

    write_curves(tmp_path, "h100-nvswitch", curves)

    assert set(read_curves(tmp_path, "h100-nvswitch")) == {curve.name for curve in curves}
    assert read_curves(tmp_path, "vista-ndr") == {}


def test_the_order_of_curves_does_not_change_a_file(tmp_path):
    curves = list(load_owner("h100-nvswitch").values())

    for name, order in (("forth", curves), ("back", curves[::-1])):
        write_owner(tmp_path / name, "h100-nvswitch", order)

    assert (tmp_path / "forth").read_bytes() == (tmp_path / "back").read_bytes()


def test_writing_replaces_a_file_whole_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "made-up.json"
    path.write_text("x" * 100_000, encoding="utf-8")

    write_owner(path, "made-up", list(load_owner("vista-ndr").values()))

    assert json.loads(path.read_text(encoding="utf-8"))["owner"] == "made-up"
    assert [each.name for each in tmp_path.iterdir()] == ["made-up.json"]


def test_the_rounding_of_a_file_is_far_below_any_curves_error():
    """Four decimals of a logarithm: 0.005 %."""
    table = np.array([-0.123456, -1.987654])
    curve = Curve(
        name="x", owner="y", axes=(np.array([0.123456, 1.0]),), table=table, launch_s=0.0, evidence=EVIDENCE
    )

    again = curve_of("y", json.loads(json.dumps(entry_of(curve))))

    assert np.abs(np.exp(again.table - table) - 1).max() <= 5.1e-5


def test_all_committed_files_together_stay_small():
    paths = [catalog.folder("curves") / file_of(*each) for each in OWNERS]

    assert sum(len(path.read_bytes()) for path in paths) < 4e6


@all_cases(("owner", "serving"), OWNERS)
def test_a_file_says_its_format_and_whose_curves_it_holds(owner, serving):
    content = json.loads((catalog.folder("curves") / file_of(owner, serving)).read_text(encoding="utf-8"))

    names = [entry["name"] for entry in content["curves"]]
    assert content["format_version"] == 1
    assert content["owner"] == owner
    assert names == sorted(set(names))


@all_cases(("owner", "serving", "name"), CURVES)
def test_a_committed_curve_is_a_table_over_rising_axes(owner, serving, name):
    """Single nodes may lie above 1, where terms or the roof take it off again: looked up, they never do."""
    curve = load_owner(owner, serving)[owner, name]

    assert curve.table.shape == tuple(len(axis) for axis in curve.axes)
    assert all((np.diff(axis) > 0).all() for axis in curve.axes)
    assert np.isfinite(curve.table).all()
    assert (
        (curve.table > np.log(1e-4)).all() or name in FORMULAS or serving
    )  # tiny ones reach almost nothing
    assert 0 <= curve.launch_s < 1e-4


@all_cases(("owner", "serving", "name"), CURVES)
def test_a_committed_curve_says_what_it_rests_on(owner, serving, name):
    evidence = load_owner(owner, serving)[owner, name].evidence

    places = ("data/", "docs/", "logbooks/", "ROCm", "stas00/", "defect")
    assert any(word in evidence.source for word in places)
    assert evidence.rows >= 1
    assert evidence.rejected >= 0
    most = 0.25 if name in ("dispatch", "combine") else 0.2  # paced by tokens as well as by bytes
    assert 0 < evidence.relative_error < most


@all_cases(
    ("owner", "name"),
    [(o, n) for o, _, n in CURVES if n == "gemm" and not o.startswith(("tpu", "mi", "gaudi"))],
)
def test_both_gradients_of_a_product_have_a_ratio(owner, name):
    """But those of TPU, AMD and Gaudi: forward products alone were measured, and no relative has more."""
    ratios = load_owner(owner)[owner, name].layout_ratio

    kinds = {name.partition(".")[0] for name in ratios}
    assert kinds == {"input_gradient", "weight_gradient"}
    assert all(0.5 < ratio < 2 for ratio in ratios.values())


def test_every_file_belongs_to_a_device_or_a_fabric_of_the_catalogue():
    clusters = [catalog.cluster(name) for name in catalog.names("clusters")]
    fabrics = {tier.fabric for cluster in clusters for tier in cluster.tiers}

    assert {owner for owner, _ in OWNERS} <= set(catalog.names("devices")) | fabrics


@all_cases("name", catalog.names("clusters"))
def test_a_book_holds_the_curves_of_device_relatives_and_fabrics_and_no_others(name):
    cluster = catalog.cluster(name)
    device = cluster.node.device
    owners = {device.name, *device.relatives, *(tier.fabric for tier in cluster.tiers)}

    book, served = load_book(cluster), load_serving_book(cluster)

    mine = {(owner, curve): serving for owner, serving, curve in CURVES if owner in owners}
    assert set(book.curves) == {key for key, serving in mine.items() if not serving}
    assert set(served.curves) == set(mine)
    assert all(curve.owner == owner for (owner, _), curve in book.curves.items())


def test_an_owner_without_a_file_has_no_curves():
    for owner in ("nobody", "x" * 300, "../engines/vllm", "zero\0byte", ""):  # a job may name its device so
        assert load_owner(owner) == {}
