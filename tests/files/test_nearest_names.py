"""What is suggested for a name that nobody knows: what a user means, first."""

from all_cases import all_cases

from flopcast.files.nearest_names import nearest
from flopcast.library.catalog import names, unknown_name


@all_cases(
    ("kind", "written", "meant"),
    [
        ("clusters", "h100", "dgx-h100"),
        ("clusters", "a100", "dgx-a100"),
        ("clusters", "h200", "dgx-h200"),
        ("clusters", "b200", "dgx-b200"),
        ("clusters", "gb200", "gb200-nvl72"),
        ("clusters", "mi300x", "mi300x-8"),
        ("clusters", "p5", "aws-p5"),
        ("clusters", "DGX_H100", "dgx-h100"),
        ("models", "llama-3", "llama-3-8b"),
        ("models", "gpt-3-175b", "gpt3-175b"),
        ("models", "Llama 3.1 70B", "llama-3.1-70b"),
        ("models", "meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("models", "mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("stacks", "fsdp", "torch-fsdp2"),
    ],
)
def test_the_name_that_is_meant_comes_first(kind, written, meant):
    assert nearest(written, names(kind), 3)[0] == meant
    assert unknown_name(kind, written).fix.startswith(f"did you mean {meant}")


@all_cases("written", ["", "-", "/", "zzzzzzzz", "nothing", "claude"])
def test_where_nothing_is_near_nothing_is_suggested(written):
    assert nearest(written, names("models")) == []
    assert unknown_name("models", written).fix.startswith(
        "choose one of these names (flopcast catalog models lists all). For another model, give its"
    )


def test_of_two_names_equally_alike_the_one_that_begins_so_is_nearer():
    assert nearest("dpp", ["pp", "dp"]) == nearest("dpp", ["dp", "pp"]) == ["dp"]


@all_cases("kind", ["clusters", "models", "stacks", "devices"])
def test_every_name_is_nearest_to_itself(kind):
    assert [nearest(name.upper(), names(kind)) for name in names(kind)] == [[name] for name in names(kind)]


def test_of_a_folder_that_does_not_exist_both_readings_are_told():
    assert unknown_name("models", "models/mine").because.endswith("and there is no such file")
