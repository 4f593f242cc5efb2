"""Watts of single kernels, against kernels of 0.2 ms and more whose power was read for a second."""

import numpy as np
import pytest
from power_accuracy import DEVICES, PAGE, TEXT, errors_of_passes, table


@pytest.mark.parametrize("device", DEVICES)
def test_watts_of_kernels_are_those_that_boards_report(shared, device):
    for file, most in (("gemm", 0.12), ("moe", 0.04), ("generation_attention", 0.2)):
        off = errors_of_passes(shared, device, file)

        assert len(off) >= 40, file
        assert np.median(np.abs(off)) <= most, file


def test_the_page_is_what_its_command_prints(shared):
    page = PAGE.read_text(encoding="utf-8")

    assert page == TEXT.replace("{table}", table(shared)), "python tests/power_accuracy.py writes it"
