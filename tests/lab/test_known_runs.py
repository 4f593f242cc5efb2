"""What printed names stand for: which entry of a table holds for a run, and what FLOP tell of its model."""

import pytest
from all_cases import all_cases

from flopcast.lab.published import known_names as tables
from flopcast.lab.published.known_names import (
    Default,
    KnownCluster,
    KnownModel,
    KnownSoftware,
    Unfitted,
    cluster_of,
    defaults_of,
    judged_only,
    model_of,
    software_of,
)
from flopcast.lab.published.model import CLOSE_FRACTION, printed_token_flop, trains_mtp
from flopcast.lab.validation.run import Architecture, Machine, Mapping, Observed, Run, Software
from flopcast.library import catalog

DEEPSEEK = catalog.model("deepseek-v3")
SIZES = {"hidden": 4096, "num_layers": 32, "heads": 32}


def run(**facts):
    """A run of which only these facts are printed."""
    return Run(id="one", source=facts.pop("source", "somebody"), **facts)


def named(model, **sizes):
    return run(model=model, architecture=Architecture(**sizes))


def by(framework, version="", year=None, **facts):
    return run(software=Software(framework=framework, version=version, year=year), **facts)


@pytest.fixture
def entries(monkeypatch):
    """Replaces one of the catalogue's tables by made-up entries."""
    return lambda table, *rows: monkeypatch.setattr(tables, table, lambda: rows)


@pytest.fixture
def two_clusters(entries):
    own = KnownCluster(device="^H100", source="^lab$", cluster="lab", because="its own kernels")
    entries("clusters", own, KnownCluster(device="^H100", cluster="dgx-h100", because="the usual node"))


@pytest.mark.parametrize(
    ("source", "device", "cluster"),
    [
        ("lab", "H100-80GB", "lab"),
        ("somebody", "H100-80GB", "dgx-h100"),
        ("lab-2", "H100", "dgx-h100"),
        ("lab", "GH100", None),
    ],
)
def test_hardware_is_the_first_entry_whose_device_and_source_match(two_clusters, source, device, cluster):
    found = cluster_of(run(source=source, machine=Machine(device=device)))

    assert (found.cluster if found else None) == cluster


@pytest.mark.parametrize("printed", ["Llama 3 8B", "LLAMA3_8B", "llama-3.8b", "Llama3 8B instruct"])
def test_blanks_dots_dashes_and_case_of_a_models_name_say_nothing(entries, printed):
    entries("models", KnownModel(name="^llama38b", base="llama-3-8b"))

    assert model_of(named(printed)).base == "llama-3-8b"


def test_a_model_that_nobody_listed_is_not_guessed(entries):
    entries("models", KnownModel(name="^llama38b", base="llama-3-8b"))

    assert model_of(named("my llama 3 8b")) is None


@pytest.mark.parametrize(("gated", "base"), [(True, "gated"), (False, "plain"), (None, "any")])
def test_a_gate_that_is_printed_tells_two_models_of_one_name_apart(entries, gated, base):
    entries(
        "models",
        KnownModel(name="^gpt", gated=True, base="gated"),
        KnownModel(name="^gpt", gated=False, base="plain"),
        KnownModel(name="^gpt", base="any"),
    )

    assert model_of(named("GPT", gated=gated)).base == base


@pytest.mark.parametrize("missing", ["none", *SIZES])
def test_an_entry_that_takes_the_rows_sizes_needs_width_and_depth(entries, missing):
    entries("models", KnownModel(name="^gpt", sized=True, base="sized"), KnownModel(name="", base="other"))

    sizes = {name: size for name, size in SIZES.items() if name != missing}

    assert model_of(named("GPT", **sizes)).base == ("sized" if missing in ("none", "heads") else "other")


@pytest.fixture
def eras(entries):
    entries(
        "software",
        KnownSoftware(software="^Megatron $", last_year=2021, stack="old", because="v2"),
        KnownSoftware(software="^Megatron $", first_year=2022, last_year=2023, stack="new", because="v3"),
        KnownSoftware(software="^Megatron core 0[.]9$", stack="pinned", because="a release"),
        KnownSoftware(software="^Megatron", stack="core", because="later"),
    )


@pytest.mark.parametrize(
    ("version", "year", "stack"),
    [
        ("", 2019, "old"),
        ("", 2021, "old"),
        ("", 2022, "new"),
        ("", 2023, "new"),
        ("", 2024, "core"),
        ("core 0.9", 2021, "pinned"),
        ("core 0.10", 2021, "core"),
        ("", None, "old"),
    ],
)
def test_software_is_the_first_entry_of_its_version_and_its_years_both_ends_included(
    eras, version, year, stack
):
    assert software_of(by("Megatron", version, year)).stack == stack


def test_software_of_another_name_is_no_entry_of_this_one(eras):
    assert software_of(by("NeMo", "1.0", 2024)) is None


def test_software_that_differs_between_devices_has_an_entry_for_each(entries):
    entries(
        "software",
        KnownSoftware(software="^MaxText", device="TPU", stack="of TPU", because="its own kernels"),
        KnownSoftware(software="^MaxText", stack="of GPU", because="the rest"),
    )

    for device, stack in (("TPU v5p", "of TPU"), ("H100", "of GPU"), ("", "of GPU")):
        assert software_of(by("MaxText", machine=Machine(device=device))).stack == stack


FACTS = {  # what a default may look at, what it looks for, and a run that has it
    "model": ("^llama", {"model": "Llama 2"}),
    "device": ("^B200|^B300", {"machine": Machine(device="B300")}),
    "precision": ("^fp8", {"mapping": Mapping(precision="fp8-delayed")}),
    "framework": ("Bridge", {"software": Software(framework="Megatron-Bridge")}),
    "fsdp": ("^hsdp$", {"mapping": Mapping(fsdp="hsdp")}),
    "tensor": ("[2-9]", {"mapping": Mapping(tensor_parallel=8)}),
    "pipeline": ("^16$", {"mapping": Mapping(pipeline_parallel=16)}),
    "context": ("^2$", {"mapping": Mapping(context_parallel=2)}),
    "expert": ("^32$", {"mapping": Mapping(expert_parallel=32)}),
    "devices": ("^512$", {"machine": Machine(num_devices=512)}),
    "version": ("26[.]", {"software": Software(version="NeMo 26.04")}),
    "notes": ("packed", {"notes": "a packed task"}),
}


def of_facts(*wheres):
    """Software with one default for each set of facts."""
    defaults = tuple(Default(where=where, because="it says so") for where in wheres)
    return KnownSoftware(software="", stack="any", because="any", defaults=defaults)


@all_cases("fact", FACTS)
def test_a_default_holds_for_runs_that_have_its_fact_and_for_no_others(fact):
    pattern, facts = FACTS[fact]
    software = of_facts({fact: pattern})

    assert defaults_of(run(**facts), software) == software.defaults
    assert defaults_of(run(), software) == ()


def test_all_facts_of_a_default_must_hold_and_all_defaults_that_hold_apply():
    llama, wide, both = {"model": "llama"}, {"tensor": "8"}, {"model": "llama", "tensor": "8"}
    software = of_facts({}, llama, both, wide)

    def holding(**facts):
        return [dict(default.where) for default in defaults_of(run(**facts), software)]

    assert holding(model="Llama") == [{}, llama]
    assert holding(model="Llama", mapping=Mapping(tensor_parallel=8)) == [{}, llama, both, wide]
    assert holding() == [{}]


def printing(tokens_per_s=1e3, length=4096, attention="", convention="", flop=1e10):
    """A run that prints so many FLOP for a token."""
    seen = Observed(
        device_tokens_per_s=tokens_per_s,
        device_flop_per_s=flop * (tokens_per_s or 1.0),
        attention=attention,
        flop_convention=convention,
    )
    return run(sequence_length=length, observed=seen)


def token_flop(modules, causal, length=4096):
    """What DeepSeek-V3 with so many further modules counts for a token: three forwards."""
    model = DEEPSEEK.model_copy(update={"mtp": modules})
    return 3 * model.forward_flop(length, causal=causal) / length


def test_flop_of_a_token_are_one_rate_over_the_other():
    assert printed_token_flop(printing(tokens_per_s=250.0, flop=4e9)) == pytest.approx(4e9)


@pytest.mark.parametrize(
    "one", [printing(tokens_per_s=None), printing(convention="hardware"), run(observed=Observed())]
)
def test_flop_of_a_token_are_unknown_of_one_rate_or_with_what_runs_again(one):
    assert printed_token_flop(one) is None
    assert trains_mtp(one, DEEPSEEK) is None


@all_cases("attention", ["full", "causal", ""])
@all_cases("modules", [0, 1])
def test_the_count_that_is_printed_says_whether_a_further_token_is_trained(modules, attention):
    printed = printing(attention=attention, flop=token_flop(modules, attention == "causal"))

    assert trains_mtp(printed, DEEPSEEK) is bool(modules)


@pytest.mark.parametrize("off", [1 - CLOSE_FRACTION, 1 + CLOSE_FRACTION])
def test_a_count_that_is_near_no_formula_says_nothing(off):
    """Just inside of the nearest count is believed, just outside is not."""
    nearest = token_flop(0, False) if off < 1 else token_flop(1, False)
    counts = [printing(attention="full", flop=nearest * (1 + (off - 1) * part)) for part in (0.9, 1.2)]

    assert trains_mtp(counts[1], DEEPSEEK) is None
    assert trains_mtp(counts[0], DEEPSEEK) is (off > 1)


def test_a_model_without_further_modules_and_a_row_without_a_length_are_not_asked():
    printed = printing(flop=token_flop(0, False))

    assert trains_mtp(printed, catalog.model("llama-3-8b")) is None
    assert trains_mtp(printed.model_copy(update={"sequence_length": None}), DEEPSEEK) is None


@pytest.mark.parametrize(
    ("source", "facts", "told"),
    [
        ("tables", {"model": "GPT OSS 120B", "notes": "a known regression"}, "something is missing"),
        ("tables", {"model": "GPT OSS 120B"}, ""),
        ("tables", {"model": "Qwen3 30B", "notes": "a known regression"}, ""),
        ("others", {"model": "GPT OSS 120B", "notes": "a known regression"}, ""),
    ],
)
def test_a_run_is_only_judged_where_it_has_the_source_and_all_facts_of_an_entry(
    entries, source, facts, told
):
    where = {"model": "^gpt.oss", "notes": "regression"}
    entries("unfitted", Unfitted(source="^tables$", where=where, because="something is missing"))

    assert judged_only(run(source=source, **facts)) == told


def test_releases_of_megatron_bridge_exchange_tokens_as_the_recipes_of_their_time_say():
    """The library, and "+" where exchanges overlap another micro-batch (catalog/runs/stacks.yaml)."""
    recipes = {
        ("GPT OSS 120B", "B200", "bf16"): "26.02.01 all_to_all, 26.04 hybridep, 26.04.01 all_to_all",
        ("GPT OSS 120B", "B300", "bf16"): "26.02.01 all_to_all, 26.04 hybridep, 26.04.01 hybridep",
        ("GPT OSS 120B", "GB200", "bf16"): "26.02 all_to_all, 26.04 hybridep+, 26.04.01 all_to_all+",
        ("GPT OSS 120B", "GB300", "bf16"): "26.04 all_to_all, 26.04.01 all_to_all",
        ("Qwen3_235B_a22B", "B300", "mxfp8"): "26.02 all_to_all+, 26.04 all_to_all, 26.04.01 hybridep",
        ("Qwen3_235B_a22B", "B200", "mxfp8"): "25.11 all_to_all+, 26.02 all_to_all, 26.04.01 all_to_all",
        ("Qwen3_30B_a3B", "B200", "mxfp8"): "25.11 all_to_all, 26.02 all_to_all, 26.02.01 hybridep",
        (
            "DeepSeekV3",
            "GB200",
            "mxfp8",
        ): "25.09 all_to_all, 25.11 hybridep, 26.04 hybridep, 26.06 hybridep+",
    }
    for (model, device, precision), releases in recipes.items():
        for release in releases.split(", "):
            version, expected = release.split(" ")
            row = by(
                "Megatron-Bridge/Megatron-Core",
                f"NeMo {version}",
                model=model,
                machine=Machine(device=device),
                mapping=Mapping(precision=precision),
            )
            experts = dict(catalog.stack("megatron-bridge").experts.model_dump())
            for default in defaults_of(row, software_of(row)):
                experts |= default.stack.get("experts", {})
            overlap = "+" if experts["exchange_overlap"] == "other_micro_batch" else ""
            assert f"{experts['dispatcher']}{overlap}" == expected, (model, device, version)
