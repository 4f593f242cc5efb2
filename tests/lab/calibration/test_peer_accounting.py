"""Every table of other projects is used, or left out with a reason."""

import re

from conftest import REPOSITORY

from flopcast.lab.calibration import collective_files
from flopcast.lab.calibration.peer_fit import PEER_FILES

PAGE = REPOSITORY / "docs" / "accuracy" / "unused-tables.md"
LEFT_OUT = re.findall(r"`([^`/]+/[^`]+)`(?=[^|]*\| \S+ )", PAGE.read_text(encoding="utf-8"))
NO_KERNELS = {  # steps, requests and data sheets: they judge whole predictions, or name devices
    "aiconfigurator/serving_measured_ttft_tpot",
    "aiconfigurator/systems",
    "simumax/b200_measured_training_steps",
    "vtrain/a100_multi_node_iterations",
    "vtrain/a100_single_node_iterations",
}


def stem(path):
    """A table's name without its endings."""
    return str(path).partition(".csv")[0]


def used():
    """Tables that give some curve."""
    fabrics = (*collective_files.WITH_LATENCY, *collective_files.WITHOUT_LATENCY)
    return {stem(f.path) for f in PEER_FILES} | {stem(f.path).removeprefix("peers/") for f in fabrics}


def test_every_table_of_the_data_is_used_or_left_out_with_a_reason(shared):
    folder = shared / "data" / "peers"
    tables = {stem(path.relative_to(folder)) for path in folder.glob("*/*.csv*")}
    named = {table for table in tables if any(table in name for name in LEFT_OUT)}

    assert tables - used() - named - NO_KERNELS == set()


def test_tables_of_steps_make_no_curve():
    assert used() & NO_KERNELS == set()
