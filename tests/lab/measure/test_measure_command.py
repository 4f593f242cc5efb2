"""`flopcast measure`: the plan without torch, the run with it, an answer where it is missing."""

import json
import sys
from importlib.util import find_spec

import pytest
from children import ran
from command_line import environment, flopcast

from flopcast.cli.measured_results import catalogue_name, reference_s, write_site
from flopcast.errors import SpecError
from flopcast.lab.measure.device import Identity
from flopcast.lab.measure.sample_pack import Manifest, Sample
from flopcast.lab.measure.shapes import Shape
from flopcast.lab.samples.packs import open_pack, read_pack

TALKATIVE = environment(PYTHONWARNINGS="default")  # torch may warn
HAS_TORCH = find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="kernels run through torch, which is not installed")
PEERS = {
    "WORLD_SIZE": "2",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
}  # as torchrun sets them


def identity(name):
    """A device of this name."""
    return Identity(name=name, torch="2.9.0", memory_bytes=80e9, cache_bytes=50e6)


def faults(action):
    """The fields of the faults that an action is refused for."""
    with pytest.raises(SpecError) as caught:
        action()
    return [problem.field for problem in caught.value.problems]


@pytest.fixture
def a100_pack(tmp_path):
    """A pack of an A100: products at half of the data sheet's peak, and launches."""
    device = "NVIDIA A100-SXM4-80GB"
    writer = open_pack(tmp_path / "pack", Manifest(device=device, tool_version="1", started="now"))
    for side in (4096, 8192, 16384):
        shape = Shape(
            kernel="gemm", layout="forward", dtype="bf16", sizes=(("m", side), ("n", side), ("k", side))
        )
        times = (2 * 2 * side**3 / 312e12 * 1e6,)  # NVIDIA A100 data sheet: 312 TFLOP/s
        writer.add(Sample(device=device, shape=shape, condition="loaded", repetitions_us=times))
    launch = Shape(kernel="host.launch", dtype="fp32", sizes=())
    writer.add(Sample(device=device, shape=launch, condition="cold", repetitions_us=(5.0,)))
    writer.close({})
    return tmp_path / "pack"


def test_a_plan_needs_no_torch_and_its_seconds_add_up_to_the_budget():
    ended = flopcast("measure", "--plan-only", "--minutes", "0.5")

    seconds = [float(line.split()[0]) for line in ended.out.splitlines()]
    assert ended.code == 0
    assert 25 < sum(seconds) <= 30.5
    assert "30.0 s" in ended.err or "29." in ended.err


def test_a_plan_assumes_the_device_that_is_named():
    ended = flopcast("measure", "--plan-only", "--quick", "--as", "h100-sxm5-80gb")

    assert ended.code == 0
    assert " fp8 " in ended.out


def test_an_unknown_device_is_refused():
    ended = flopcast("measure", "--plan-only", "--as", "h1000")

    assert ended.code == 1
    assert "h1000" in ended.err


def test_a_run_without_a_place_to_write_to_is_refused():
    ended = flopcast("measure", "--device", "cpu")

    assert ended.code == 1
    assert "add --out" in ended.err


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed: nothing is refused")
def test_without_torch_a_run_says_how_to_install_it_and_writes_nothing(tmp_path):
    out = tmp_path / "pack"

    ended = flopcast("measure", "--device", "cpu", "--minutes", "0.05", "--out", out)

    assert ended.code == 1
    assert "pip install torch" in ended.err
    assert not out.exists()


@needs_torch
def test_a_run_measures_and_the_same_command_goes_on(tmp_path):
    out = tmp_path / "pack"
    words = ("measure", "--device", "cpu", "--minutes", "0.05", "--out", out)
    line = [sys.executable, "-m", "flopcast", *words]

    ran(line, env=TALKATIVE, check=True)
    before = len(read_pack(out).samples)
    ran(line, env=TALKATIVE, check=True)

    pack = read_pack(out)
    assert pack.problems == ()
    assert 0 < before < len(pack.samples)
    assert json.loads((out / "manifest.json").read_text())["device"] == "cpu"


@needs_torch
def test_peers_measure_collectives(tmp_path):
    out = tmp_path / "pack"
    words = ("flopcast", "measure", "--device", "cpu", "--minutes", "0.05", "--out", str(out))
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m")

    made = ran([*launcher, *words], env=TALKATIVE)

    found = read_pack(out).messages
    assert made.returncode == 0
    assert {(sample.inside, sample.nodes) for sample in found} == {(2, 1)}
    assert {sample.collective for sample in found} >= {"all_reduce", "all_gather"}


def test_a_site_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path):
    site = tmp_path / "missing" / "here.yaml"

    ended = flopcast("measure", "--out", tmp_path / "pack", "--site", site)

    assert ended.code == 1
    assert ended.err.count("--site = ") == 1
    assert "torch" not in ended.err
    assert not (tmp_path / "pack").exists()


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (("--reference", "."), "--site FILE"),
        (("--host", "grace"), "--reference PACK"),
        (("--host", "grace", "--site", "here.yaml"), "--reference PACK"),
    ],
)
def test_an_option_that_nothing_would_read_is_refused(tmp_path, words, needs):
    ended = flopcast("measure", "--out", tmp_path / "pack", *words)

    assert ended.code == 1
    assert f"add {needs}" in ended.err


def test_half_of_torchruns_environment_is_refused():
    ended = flopcast("measure", "--out", "never", variables={"WORLD_SIZE": "2", "RANK": "0"})

    assert ended.code == 1
    assert all(name in ended.err for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "torchrun"))


def test_a_site_file_of_many_ranks_is_refused():
    ended = flopcast("measure", "--out", "never", "--site", "never.yaml", variables=PEERS)

    assert ended.code == 1
    assert "without torchrun" in ended.err


def test_every_option_that_peers_would_not_read_is_told_at_once():
    words = ("--site", "never.yaml", "--as", "h20-96gb", "--seed", "0")

    ended = flopcast("measure", "--out", "never", *words, variables=PEERS)

    assert ended.code == 1
    assert all(f"{option} = " in ended.err for option in words[::2])


def test_names_of_torch_are_found_in_the_catalogue():
    assert catalogue_name("", identity("NVIDIA H100 80GB HBM3")) == "h100-sxm5-80gb"


def test_a_name_that_is_given_takes_precedence():
    assert catalogue_name("h20-96gb", identity("NVIDIA H100 80GB HBM3")) == "h20-96gb"


def test_a_device_that_no_list_knows_must_be_named():
    assert faults(lambda: catalogue_name("", identity("NVIDIA X1"))) == ["--as"]


def test_a_device_that_is_not_in_the_catalogue_is_refused():
    assert faults(lambda: catalogue_name("x1", identity("NVIDIA X1"))) == ["--as"]


def test_a_reference_without_launches_is_refused(tmp_path):
    open_pack(tmp_path, Manifest(device="d", tool_version="1", started="now")).close({})

    assert faults(lambda: reference_s(tmp_path)) == ["--reference"]


def test_a_reference_gives_the_seconds_of_a_launch(a100_pack):
    assert reference_s(a100_pack) == pytest.approx(5e-6)


def test_a_site_file_of_a_pack_changes_a_prediction(a100_pack, tmp_path):
    """Curves of A100 reach about 0.8 of the peak on such products; half of it is 1.6 times slower."""
    site = tmp_path / "here.yaml"
    job = ("--model", "gpt3-175b", "--cluster", "selene:128", "--stack", "megatron-2022", "--json")
    plan = ("--plan", "dp=16 tp=8 pp=8 mbs=1 gbs=1536 recompute=full precision=fp16")

    write_site(a100_pack, site, "a100-sxm4-80gb", 2.5e-6, 1.0)

    plain = json.loads(flopcast("predict", *job, *plan).out)
    slow = json.loads(flopcast("predict", *job, *plan, "--site", site).out)
    assert 1.2 < slow["step_time_s"] / plain["step_time_s"] < 2.2
    assert "ratio: 2.0" in site.read_text()  # of the host: 5 µs against 2.5


def test_help_says_what_is_written_and_how_it_is_stopped():
    ended = flopcast("measure", "--help")

    assert ended.code == 0
    assert all(word in ended.out for word in ("--out", "--site", "--quick", "--plan-only", "torchrun"))
