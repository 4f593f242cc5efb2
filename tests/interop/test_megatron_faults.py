"""Broken launch scripts: every fault of a script at once, each on its line, with an edit that mends it."""

import re

import pytest
from all_cases import all_cases
from megatron_cases import FLAGS, LAUNCHER, SCRIPTS, script_of, told

from flopcast.errors import SpecError
from flopcast.interop.megatron.flags import REFUSED
from flopcast.interop.megatron.launch_script import launch_document

REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "seq_length", "micro_batch_size")
LAST = len(FLAGS) + 2  # the line of a flag that is added to the small script


def only(text, devices=None):
    """The one fault of a script."""
    (problem,) = told(text, devices)
    return problem


@all_cases("name", REQUIRED)
def test_a_flag_that_a_job_cannot_do_without_is_named(name):
    problem = only(script_of(**{name: None}))

    assert problem.field == f"--{name.replace('_', '-')}"
    assert problem.fault == "is missing"
    assert problem.where == "run.sh:1"
    assert re.fullmatch(f"add {problem.field} with a value, such as {problem.field} [0-9]+", problem.fix)


def test_all_missing_flags_are_told_at_once():
    problems = told(script_of(**dict.fromkeys(REQUIRED)))

    assert sorted(problem.field for problem in problems) == sorted(
        f"--{name.replace('_', '-')}" for name in REQUIRED
    )


@all_cases(
    ("flag", "near"),
    [
        ("--num-layer 24", "--num-layers"),
        ("--hidden_size 1024", "--hidden-size"),
        ("--seq-lenght 1024", "--seq-length"),
        ("--sequence-paralel", "--sequence-parallel"),
        ("--use-distributed-optimiser", "--use-distributed-optimizer"),
        ("--num-expert 8", "--num-experts"),
    ],
)
def test_a_slip_in_a_flag_that_matters_is_a_fault_with_the_right_name(flag, near):
    problem = only(script_of(flag))

    assert problem.where == f"run.sh:{LAST}"
    assert problem.fault == "is not known"
    stated = ("--num-layers", "--hidden-size", "--seq-length")  # which the script gives under their names
    assert problem.fix == (f"remove {flag}: {near} is given" if near in stated else f"did you mean {near}?")


def test_dashes_apart_from_their_name_are_one_fault_whichever_flag_stands_before_them():
    for before in ("", "--swiglu ", "--seed 3 ", "--split 98 1 1 "):
        problem = only(script_of(f"{before}-- disable-bias-linear"))

        assert (problem.field, problem.where) == ("--", f"run.sh:{LAST}")
        assert problem.fix == 'write --disable-bias-linear in place of "-- disable-bias-linear"'


def test_a_slip_in_a_required_flag_is_told_once_not_as_missing_too():
    problem = only(script_of("--num-layer 24", num_layers=None))

    assert problem.fix == "did you mean --num-layers?"


@all_cases(
    ("flag", "value"),
    [
        ("--num-layers", "abc"),
        ("--num-layers", "0"),
        ("--num-layers", "-4"),
        ("--num-layers", "-"),
        ("--num-layers", "1.5"),
        ("--micro-batch-size", "0"),
        ("--global-batch-size", "1e3"),
        ("--hidden-size", "9" * 20),
        ("--seq-length", "²"),
        ("--tensor-model-parallel-size", "two"),
        ("--hidden-dropout", "1.5"),
        ("--attention-dropout", "nan"),
        ("--rotary-percent", "half"),
        ("--normalization", "BatchNorm"),
        ("--position-embedding-type", "sinusoidal"),
        ("--recompute-granularity", "some"),
        ("--fp8-format", "e5m2"),
        ("--attention-backend", "flush"),
    ],
)
def test_a_value_that_a_flag_cannot_have_is_told_on_its_line(flag, value):
    rope = "--position-embedding-type rope" if flag == "--rotary-percent" else ""

    problem = only(script_of(f"{rope} {flag} {value}"))

    assert (problem.field, problem.value, problem.where) == (flag, value, f"run.sh:{LAST}")
    assert problem.allowed
    assert problem.fix


@all_cases("flag", ["--num-layers", "--normalization", "--hidden-dropout", "--micro-batch-size"])
def test_a_flag_without_its_value_is_told(flag):
    problem = only(script_of(f"{flag} --swiglu"))

    assert (problem.field, problem.fault, problem.where) == (flag, "has no value", f"run.sh:{LAST}")


def test_a_value_that_only_a_running_shell_knows_is_told_by_its_name():
    problem = only(f"LAYERS=$1\n{script_of(num_layers='$LAYERS')}")

    assert (problem.field, problem.value, problem.where) == ("--num-layers", "$1", "run.sh:1")
    assert problem.because == "only the shell that runs the script knows the value of $1"


def test_a_wrong_value_is_told_where_the_variable_is_set():
    problem = only(f"\n\nLAYERS=many\n{script_of(num_layers='$LAYERS')}")

    assert problem.where == "run.sh:3"


@all_cases(
    ("flags", "field", "other"),
    [
        ("--fp16", "--fp16", "--bf16"),
        ("--swiglu --squared-relu", "--swiglu", "--squared-relu"),
        (
            "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
            "--num-layers-per-virtual-pipeline-stage 3",
            "--num-layers-per-virtual-pipeline-stage",
            "--num-virtual-stages-per-pipeline-rank",
        ),
        (
            "--use-distributed-optimizer --use-torch-fsdp2",
            "--use-distributed-optimizer",
            "--use-torch-fsdp2",
        ),
        (
            "--pipeline-model-parallel-layout 'Et*24L' --account-for-loss-in-pipeline-split",
            "--pipeline-model-parallel-layout",
            "--account-for-loss-in-pipeline-split",
        ),
        (
            "--decoder-last-pipeline-num-layers 24 --account-for-loss-in-pipeline-split",
            "--decoder-last-pipeline-num-layers",
            "--account-for-loss-in-pipeline-split",
        ),
    ],
)
def test_flags_that_contradict_each_other_are_told_together(flags, field, other):
    problem = only(script_of(flags))

    assert problem.field == field
    assert problem.fault == f"conflicts with {other}"
    assert problem.fix == f"remove {field} or {other}"


@all_cases(
    ("flags", "field", "said"),
    [
        (
            "--overlap-param-gather",
            "--overlap-param-gather",
            "no such flag, unless --use-distributed-optimizer is given",
        ),
        ("--seq-length 4096", "--max-position-embeddings", "4096 or more"),
        ("--sequence-parallel True", "--sequence-parallel", "no value"),
        ("--tensor-model-parallel-size 2 4", "--tensor-model-parallel-size", "one value"),
        (
            "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4",
            "--num-layers-per-virtual-pipeline-stage",
            "a divisor of 6 (the number of layers of a stage: 24 layers / 4 stages): 1, 2, 3, 6",
        ),
        (
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5",
            "--decoder-first-pipeline-num-layers",
            "a number for which the rest of the 24 layers can be divided evenly over the other 3 stages",
        ),
        (
            "--pipeline-model-parallel-size 4 --account-for-loss-in-pipeline-split",
            "--account-for-loss-in-pipeline-split",
            "a script without this flag, because 25 layers cannot be divided evenly over 4 chunks",
        ),
        (
            "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*20|x|L'",
            "--pipeline-model-parallel-layout",
            "E, t, m, L and bars, e.g. 'Et*3|(tt|)*6L'",
        ),
        (
            "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*20|t*4L'",
            "--pipeline-model-parallel-layout",
            "a number of chunks that is a multiple of 4",
        ),
    ],
)
def test_a_flag_that_does_not_go_with_the_others_is_told(flags, field, said):
    problem = only(script_of(flags))

    assert problem.field == field
    assert problem.allowed == said


def test_chunks_that_do_not_divide_a_stage_are_told_beside_a_fault_of_something_else():
    flags = "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4"

    problems = told(script_of(f"{flags} --hidden-dropout 2"))

    assert {problem.field for problem in problems} == {
        "--num-layers-per-virtual-pipeline-stage",
        "--hidden-dropout",
    }


@pytest.mark.parametrize(
    "broken", ["--num-layers many", "--num-layer 24", "--pipeline-model-parallel-size 0"]
)
def test_chunks_are_not_judged_by_a_number_that_is_itself_a_fault(broken):
    flags = "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4"
    layers = {"num_layers": None} if broken.startswith("--num-layer ") else {}

    problem = only(script_of(f"{flags} {broken}", **layers))

    assert problem.field == broken.split()[0]


def test_a_word_that_is_read_nowhere_is_not_said_to_be_unknown_to_megatron():
    problem = only(script_of("--context-parallel-size 2 --cp-comm-type a2a+p2p"))

    assert problem.because == "flopcast does not support this value"


def test_words_to_be_filled_in_after_a_name_are_a_note_and_misspelt_flags_still_faults():
    """Scripts of MindSpeed-LLM have the path "your tokenizer path"."""
    made = launch_document(script_of("--tokenizer-name-or-path your tokenizer path"), "run.sh")
    slip = only(script_of("--tokenizer-name-or-path path swiglu"))

    assert any("tokenizer path after --tokenizer-name-or-path" in note for note in made.data["assumptions"])
    assert slip.fix == "write --swiglu in place of swiglu"


def test_training_in_32_bits_is_refused_by_name():
    problem = only(script_of(bf16=None))

    assert problem.fault == "or --fp16 is missing"
    assert problem.because == "flopcast does not yet support training in fp32 with Megatron-LM"


@all_cases("flag", sorted(REFUSED))
def test_what_is_not_modelled_is_refused_by_the_name_of_the_flag(flag):
    problem = only(script_of(f"{flag} 8"))

    assert (problem.field, problem.where) == (flag, f"run.sh:{LAST}")
    assert REFUSED[flag] in problem.because


@pytest.mark.parametrize("flags", ["--num-experts 1", "--mtp-num-layers 0", "--hybrid-attention-ratio 0.0"])
def test_a_refused_flag_whose_value_asks_for_nothing_is_no_fault(flags):
    assert told(script_of(flags)) == ()


def test_state_space_layers_are_refused_in_words():
    problem = only(script_of("--is-hybrid-model"))

    assert (
        problem.because == "flopcast does not yet support hybrid models with Mamba-2 layers in this format"
    )


def test_ranks_that_do_not_form_whole_replicas_are_told():
    problem = only(script_of("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2"))

    assert problem.field == "--tensor-model-parallel-size"
    assert problem.because.startswith("a replica of the model has 16 ranks")
    assert "--gpus to 16, or a multiple" in problem.fix


@all_cases(
    "launcher",
    [
        "torchrun --nproc_per_node 8 --nnodes $NNODES pretrain_gpt.py",
        "torchrun --nproc_per_node gpu pretrain_gpt.py",
        "python -m torch.distributed.launch --nproc_per_node $(nvidia-smi -L | wc -l) pretrain_gpt.py",
        "deepspeed pretrain_gpt.py",
        "deepspeed --hostfile hosts --num_gpus 8 pretrain_gpt.py",
        "accelerate launch pretrain_gpt.py",
        "mpirun pretrain_gpt.py",
        "srun python pretrain_gpt.py",
        "WORLD_SIZE=$N python pretrain_gpt.py",
    ],
)
def test_a_world_size_that_the_script_leaves_open_is_asked_for(launcher):
    text = script_of(launcher=launcher, global_batch_size="64")

    problem = only(text)

    assert problem.field == "world size"
    variable = re.search(r"--\w+ \$(\w+)", launcher)
    assert problem.fix == (
        f"add --env {variable[1]}=2, with its value"
        if variable
        else "add the number of devices, such as --gpus 16"
    )
    assert told(text, devices=8) == ()


@all_cases(
    "text",
    [
        "",
        "# only a comment\n",
        "echo --num-layers 24 --hidden-size 1024 --seq-length 2048 --bf16\n",
        "python preprocess_data.py --input a.json --tokenizer-type GPT2BPETokenizer\n",
        "bash train_inner.sh 7B 8 4\n",
        f"cat <<EOF\n{script_of()}EOF\n",
        f"if false; then :; fi\n# {LAUNCHER} --num-layers 2\n",
    ],
)
def test_a_script_that_trains_nothing_is_told_so(text):
    problem = only(text)

    assert problem.field == "training command"
    assert problem.fault.startswith("was not found")
    assert problem.where == "run.sh"


def test_a_script_whose_flags_stand_in_another_file_is_told_which():
    problem = only("TP=8\n. ./CONFIG.sh\nsrun ./run.sh\n")

    assert problem.because.endswith("(run.sh: line 2: . ./CONFIG.sh: flopcast does not read other files)")


@all_cases(
    ("text", "line", "said"),
    [
        (script_of("--lr '1e-4"), LAST, "add the closing '"),
        ('ARGS="--num-layers 2\n' + script_of(), 1, 'add the closing "'),
        (script_of() + "\x00\x01", LAST + 1, "give a text file"),
        ("A=--swiglu\n" + "A=$A$A\n" * 40, 0, "make the values of the variables shorter"),
    ],
)
def test_a_script_that_cannot_be_read_is_told_with_its_line(text, line, said):
    problem = only(text)

    assert problem.fix == said
    assert not line or problem.where == f"run.sh:{line}"


def test_a_module_of_recompute_that_is_not_modelled_is_told():
    problem = only(script_of("--recompute-activations --recompute-modules core_attn mhc"))

    assert (problem.field, problem.value) == ("--recompute-modules", "mhc")
    assert "core_attn" in problem.allowed


def test_a_binary_file_is_refused():
    with pytest.raises(SpecError) as error:
        launch_document(b"\x89PNG\r\n\x1a\n\x00\x00", "run.sh", None)

    assert error.value.problems[0].field == "character"


def test_every_fault_of_a_script_is_told_at_once_in_the_order_of_lines():
    text = script_of(
        "--hidden-dropout 2 --sequence-paralel --window-size 4",
        launcher="srun python t.py",
        num_layers="x",
        bf16=None,
    )

    problems = told(text)

    told_at = [(problem.where, problem.field) for problem in problems]
    lines = [int(where.removeprefix("run.sh:")) for where, _ in told_at]
    assert lines == sorted(lines)
    assert sorted(told_at) == [
        ("run.sh:1", "--bf16"),
        ("run.sh:1", "world size"),
        (f"run.sh:{LAST - 1}", "--hidden-dropout"),
        (f"run.sh:{LAST - 1}", "--sequence-paralel"),
        (f"run.sh:{LAST - 1}", "--window-size"),
        ("run.sh:2", "--num-layers"),
    ]


@all_cases("path", sorted(SCRIPTS.iterdir()))
@all_cases("share", [0.2, 0.5, 0.8])
def test_a_script_that_breaks_off_is_read_or_told_but_never_a_crash(path, share):
    text = path.read_text(encoding="utf-8")

    problems = told(text[: int(len(text) * share)])

    assert all(problem.fix and problem.allowed for problem in problems)


def test_a_number_of_layers_that_no_model_has_is_refused_at_once():
    (problem,) = told(script_of(num_layers="1000000000"))

    assert (problem.where, problem.field) == ("run.sh:2", "--num-layers")
    assert problem.allowed == "at most 4096"


@pytest.mark.parametrize(
    ("text", "line", "named"),
    [
        ("llamafactory-cli train sft.yaml\n", 1, "sft.yaml"),
        ("accelerate launch --config_file acc.yaml -m axolotl.cli.train own.yml\n", 1, "own.yml"),
        ("cd x\ntune run lora_finetune --config llama.yaml batch_size=4\n", 2, "llama.yaml"),
        ("CONFIG_FILE=own.toml ./run_train.sh --training.steps 2\n", 1, "own.toml"),
    ],
)
def test_a_script_that_names_a_file_of_settings_says_which_file_to_give(text, line, named):
    with pytest.raises(SpecError) as error:
        launch_document(text.encode(), "run.sh", 8)

    (fault,) = error.value.problems
    assert fault.where == f"run.sh:{line}"
    assert fault.fix.endswith(f"flopcast predict {named}")


def test_a_file_that_is_only_printed_is_no_file_of_settings():
    with pytest.raises(SpecError) as error:
        launch_document(b"cat own.yaml\nls\n", "run.sh", 8)

    assert "not found in the file" in str(error.value)
