"""The length of a run: tokens, or samples and epochs, and what contradicts itself."""

import pytest
from all_cases import all_cases
from hypothesis import given
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.spec.batch import Batch
from flopcast.spec.run_length import RunLength

LONG_TAIL = Batch(seq=4096, micro_batches=({"seq": 512, "count": 3}, {}))


@given(st.integers(1, 10**7), st.floats(0.1, 20.0), st.integers(1, 10**5))
def test_samples_times_epochs_times_the_length_are_the_tokens(samples, epochs, length):
    tokens = RunLength(samples=samples, epochs=epochs).total_tokens(length)

    assert tokens == pytest.approx(samples * epochs * length, rel=1e-12)
    assert RunLength(tokens=samples * length, epochs=epochs).total_tokens(7) == pytest.approx(tokens)


def test_samples_of_different_lengths_have_the_mean_length():
    assert RunLength(samples=4).total_tokens(LONG_TAIL.mean_sequence_tokens) == 3 * 512 + 4096


@all_cases(("text", "number"), [("52000", 52_000), ("52k", 52_000), ("1.5M", 1_500_000), (7, 7)])
def test_samples_are_written_as_people_count_them(text, number):
    assert RunLength(samples=text).samples == number


@given(st.integers(1, 10**7))
def test_a_number_with_commas_as_flopcast_prints_it_is_read_as_the_same_number(number):
    printed = f"{number:,}"

    assert RunLength(samples=printed).samples == number
    assert RunLength(tokens=printed, epochs=printed).total_tokens(8) == number * number


@all_cases(
    "text", ["5,2", "0,520", "52,00", "52,0000", "5200,000", ",520", "52,000,", "52,,000", "1.5,000"]
)
def test_commas_that_separate_no_thousands_are_refused(text):
    for stated in ({"samples": text}, {"tokens": text}, {"samples": 1, "epochs": text}):
        with pytest.raises(ValueError, match="number"):
            RunLength(**stated)


@all_cases(
    ("stated", "field", "fix"),
    [
        ({"tokens": "2T", "samples": 1000}, "run.samples", "remove samples, or tokens"),
        ({"epochs": 3}, "run.epochs", "add samples: 52000"),
        ({}, "run", "add samples or tokens"),
        ({"samples": "many"}, "run.samples", "set samples to a value such as 52k"),
        ({"samples": 41000.5}, "run.samples", "write 41000 in place of 41000.5"),
        ({"samples": 1.5}, "run.samples", "set samples to a value such as 52000"),  # 1 is no likely length
        ({"samples": 0, "epochs": 3}, "run.samples", "set samples to a value such as 52000"),
        ({"tokens": "0"}, "run.tokens", "set tokens to a value such as 1T"),
        ({"samples": 8, "epochs": 0}, "run.epochs", "set epochs to a value such as 3"),
        ({"samples": 8, "epochs": "two"}, "run.epochs", "write 2 in place of two"),
        ({"samples": True}, "run.samples", "set samples to a value such as 52000"),
    ],
)
def test_a_length_that_is_none_is_told_once_with_an_edit(stated, field, fix):
    with pytest.raises(SpecError) as caught:
        build(RunLength, Document("job.yaml", {"run": stated}, {}), stated, ("run",))

    (problem,) = caught.value.problems
    assert (problem.field, problem.fix) == (field, fix)
    assert problem.because
