"""The wheel: it builds, installs into an empty environment, and answers there without the checkout."""

import re
import sys
import tomllib
import venv
import zipfile

import pytest
from children import ran
from command_line import flopcast
from conftest import PACKAGE, REPOSITORY

JOB = (
    "--model",
    "llama-3-8b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "64",
    "--plan",
    "dp=32 tp=2 gbs=512 sp zero=1",
)


def run(*words, **options):
    """A command that must succeed; its output."""
    done = ran(words, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the checkout."""
    out = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        out,
        REPOSITORY,
    )
    (found,) = out.glob("flopcast-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of an environment that holds the wheel and what it needs, and nothing else."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place)
    pip = (sys.executable, "-m", "pip", "--python", place)  # one of its own would take seconds to install
    run(*pip, "install", "-q", "--disable-pip-version-check", "--no-compile", wheel, cwd=place)
    return place


def test_the_wheel_is_pure_python_and_holds_every_file_of_the_package(wheel):
    ours = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.startswith("flopcast-")}

    assert wheel.name.endswith("-py3-none-any.whl")
    assert held == ours


def test_the_wheel_says_that_it_is_typed(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert "flopcast/py.typed" in archive.namelist()  # PEP 561: type checkers read its annotations


def test_the_wheel_answers_without_the_checkout_and_says_what_it_says(installed, tmp_path):
    words = ("predict", *JOB, "--json")

    told = run(installed / "bin" / "flopcast", *words, cwd=tmp_path)

    where = run(
        installed / "bin" / "python", "-c", "import flopcast; print(flopcast.__file__)", cwd=tmp_path
    )
    assert where.startswith(str(installed))
    assert told == flopcast(*words).out


def test_the_container_copies_what_an_installation_needs_and_installs_an_extra_that_exists():
    text = (REPOSITORY / "Containerfile").read_text(encoding="utf-8")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    copied = {word for line in re.findall(r"^COPY (.*)$", text, re.M) for word in line.split()[:-1]}

    assert all((REPOSITORY / name).exists() for name in copied)
    assert {"src", "pyproject.toml", project["readme"], *project["license-files"]} <= copied
    assert set(re.findall(r"\.\[(\w+)\]", text)) <= set(project["optional-dependencies"])
    assert re.search(r'^ENTRYPOINT \["(\w+)"\]$', text, re.M)[1] in project["scripts"]
