"""Options that would have no effect on what a command prints are no options of it."""

from all_cases import all_cases
from command_line import flopcast

OF_RUN = {"--tokens": "2T", "--epochs": "3", "--price": "2 USD/h", "--checkpoint": "lazy host"}
WITHOUT = {
    "memory": ("memory",),
    "explain": ("explain", "step"),
    "export": ("export", "megatron"),
    "diagnose": ("diagnose",),
    "calibrate from-run": ("calibrate", "from-run", "--observed-step", "1"),
}
JOB = ("llama-3-8b", "--gpus", "16", "--plan", "dp=16 zero=1")


@all_cases("name", WITHOUT)
def test_the_length_and_the_price_of_a_run_are_no_options_where_they_change_nothing(name):
    for option, value in OF_RUN.items():
        if (name, option) == ("memory", "--epochs"):
            continue  # belongs to the samples of a fine-tune
        ended = flopcast(*WITHOUT[name], *JOB, option, value)

        assert ended.code == 1
        assert f"{option} is not known" in ended.err


def test_samples_make_a_fine_tune_whose_default_batch_needs_less_memory():
    plain, tuned = (
        flopcast("memory", "llama-3-8b", "--gpus", "16", *more) for more in ((), ("--samples", "52k"))
    )

    assert "as in recipes of fine-tuning" in tuned.out
    assert "a job with a number of samples is a fine-tune" in tuned.out
    assert plain.out != tuned.out


def test_memory_takes_the_epochs_of_a_fine_tune_and_refuses_them_alone():
    words = ("memory", *JOB, "--seq", "1024", "--epochs", "3")

    assert flopcast(*words, "--samples", "52k").code == 0
    assert "--epochs: run.epochs needs tokens or samples" in flopcast(*words).err


def test_a_checkpoint_interval_that_is_longer_than_the_run_is_not_printed():
    words = ("run", *JOB, "--seq", "1024")

    short, long = (flopcast(*words, "--tokens", tokens).out for tokens in ("1B", "2T"))

    assert "the run ends before a checkpoint is due" in short
    assert "a checkpoint every" not in short
    assert "a checkpoint every" in long


def test_a_field_of_the_stack_may_be_changed_without_naming_the_stack():
    named, silent = (
        flopcast("memory", *JOB, *stack, "stack.attention_kernel=materialised")
        for stack in (("--stack", "megatron-core"), ())
    )
    usual = flopcast("memory", *JOB)
    wrong = flopcast("memory", *JOB, "stack.attention_kernel=fast")

    assert silent.code == 0
    assert silent.out.partition("\n\nassumed")[0] == named.out.partition("\n\nassumed")[0]
    assert silent.out != usual.out
    assert "stack megatron-core" in silent.out
    assert "1 error" in wrong.err
    assert "stack.name" not in wrong.err
