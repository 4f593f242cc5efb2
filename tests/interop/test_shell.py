"""Scripts as commands: what bash would run, and where it was written; nothing is executed.

Expected words are those that GNU bash 5.2 gives for the same text.
"""

from functools import partial

import pytest
from all_cases import all_cases

from flopcast.errors import SpecError, problems_of
from flopcast.interop.shell.script import read_script
from flopcast.interop.shell.text import MAX_CHARACTERS, script_text


def shown(text):
    """The words of every command `show …` of a script."""
    commands = read_script(text, "run.sh").commands
    return [[w.text for w in c.words[1:]] for c in commands if c.words[0].text == "show"]


def words(text):
    """The words of the last command, each with its line and what is unknown in it."""
    last = read_script(text, "run.sh").commands[-1]
    return [(word.text, word.line, word.unknown) for word in last.words]


def told(text):
    """The one fault of a text."""
    with pytest.raises(SpecError) as error:
        read_script(text, "run.sh")
    (problem,) = error.value.problems
    return problem


@all_cases(
    ("text", "expected"),
    [
        ("A=1; show $A \"$A\" '$A' \\$A", [["1", "1", "$A", "$A"]]),
        ('A="a  b"; show $A; show "$A"', [["a", "b"], ["a  b"]]),
        ('show a\\ b "a\\"b" "a\\$b" \'a"b\' a"b c"d', [["a b", 'a"b', "a$b", 'a"b', "ab cd"]]),
        ('show a \\\n  b # comment\nshow c#d "#e"', [["a", "b"], ["c#d", "#e"]]),
        ('A=""; show $A x "$A"', [["x", ""]]),
        ('A="1\u20032 3"; show $A', [["1\u20032", "3"]]),  # blanks of other scripts are letters
        ("A=(\u2003 1\xa0); show ${A[@]} \u20032", [["\u2003", "1\xa0", "\u20032"]]),
        ('A="pre-"; show ${A}post "$A"post $A"x y"', [["pre-post", "pre-post", "pre-x y"]]),
        ('B=" lead trail "; show a${B}b', [["a", "lead", "trail", "b"]]),
        ("show a > /dev/null 2>&1 b; show 2>/dev/null c", [["a", "b"], ["c"]]),
        ("show a|show b && show c;show d", [["a"], ["b"], ["c"], ["d"]]),
        ("show a\r\nshow b\r\n", [["a"], ["b"]]),
    ],
)
def test_words_and_quotes_are_those_of_the_shell(text, expected):
    assert shown(text) == expected


@all_cases(
    ("text", "expected"),
    [
        ("show ${N:-8} ${N-9}; N=; show ${N:-8} ${N:+z}", [["8", "9"], ["8"]]),
        ("show ${M:=5} $M", [["5", "5"]]),
        ("A=2; show ${A:-8} ${A:+set} ${B:+unset}", [["2", "set"]]),
        ("show ${A:-${B:-${C:-deep}}}", [["deep"]]),
        ("A=x; A+=y; show $A", [["xy"]]),
        ('X="1 2"; Y="$X 3"; show $Y "$Y"', [["1", "2", "3", "1 2 3"]]),
        ('A=a; export B="$A b" C=c; show "$B" $C', [["a b", "c"]]),
        ('Q=1; unset Q; show "${Q:-gone}"', [["gone"]]),
        (": ${TP:=2}; show $TP", [["2"]]),
    ],
)
def test_variables_and_their_defaults_are_filled_in(text, expected):
    assert shown(text) == expected


@all_cases(
    ("text", "expected"),
    [
        ("A=4; show $((A*2)) $(($A+3*2)) $(( (A - 1) / 2 ))", ["8", "10", "1"]),
        ("A=4; show $((-A/3)) $((10%4)) $((-7/2))", ["-1", "2", "-3"]),
        ("A=2; B=$((A*A)); C=$((B * B - 1)); show $C", ["15"]),
        ("N=3 G=8\nshow $((${N}*${G}))", ["24"]),
    ],
)
def test_whole_number_arithmetic_rounds_towards_zero(text, expected):
    assert shown(text) == [expected]


@all_cases("expression", ["1/0", "NODES*8", "$1*8", "2**9999999", "1.5*2", "a b", "9" * 300, "f()"])
def test_arithmetic_that_cannot_be_done_stays_unknown(expression):
    ((_, _, unknown),) = words(f"show $(({expression}))")[1:]

    assert unknown == f"$(({expression}))"


@all_cases(
    ("text", "expected"),
    [
        ('A=(1 "2 3" 4); show ${A[@]}; show "${A[@]}"', [["1", "2", "3", "4"], ["1", "2 3", "4"]]),
        ('A=(1 "2 3" 4); show "x${A[@]}y"; show ${A[2]} $A', [["x1", "2 3", "4y"], ["4", "1"]]),
        ('A=(); show a "${A[@]}" b', [["a", "b"]]),
        ('A=(1); A+=(2 3); show "${A[@]}"', [["1", "2", "3"]]),
        ("A=(\n  --x 1 # why\n  --y\n); show ${A[*]}", [["--x", "1", "--y"]]),
        ('B=7; A=("--x $B"); show ${A[@]}; show "${A[@]}"', [["--x", "7"], ["--x 7"]]),
    ],
)
def test_arrays_give_their_elements(text, expected):
    assert shown(text) == expected


def test_a_string_of_options_is_split_and_each_keeps_its_own_line():
    text = 'WIDTH=64\nARGS="\n  --layers 2 \\\n  --hidden $WIDTH"\nshow $ARGS'

    assert words(text)[1:] == [("--layers", 3, ""), ("2", 3, ""), ("--hidden", 4, ""), ("64", 1, "")]


def test_an_element_of_an_array_keeps_the_line_where_it_stands():
    assert words('A=(\n--a\n# no\n--b\n)\nshow "${A[@]}"')[1:] == [("--a", 2, ""), ("--b", 4, "")]


@all_cases(
    ("asked", "unknown"),
    [
        ("$1", "$1"),
        ("$@", "$@"),
        ("$(nproc --all)", "$(nproc --all)"),
        ("`hostname`", "`hostname`"),
        ("$NEVER_SET", "$NEVER_SET"),
        ("${A%.*}", "${A%.*}"),
        ("${#A[@]}", "${#A[@]}"),
        ("x${RANK}y", "${RANK}"),
        ("<(sort f)", "<(sort f)"),
        ("<your path>", "<your path>"),
    ],
)
def test_what_only_a_running_shell_knows_stays_as_it_is_written(asked, unknown):
    assert words(f"A=a.b\nshow {asked}")[1:] == [(asked, 2, unknown)]


def test_no_command_of_a_script_is_run(tmp_path):
    target = tmp_path / "made"

    read_script(f"touch {target}; A=$(touch {target}); `touch {target}`; eval touch {target}", "run.sh")

    assert not target.exists()


@all_cases(
    ("text", "expected"),
    [
        ("A=8; if [ $A -gt 4 ]; then show big; else show small; fi", [["big"]]),
        ('A=8; if [[ $A == 8 && -n "$A" ]]; then show yes; fi', [["yes"]]),
        ('A=8; if [ "$A" != 8 ] || [ -z "$A" ]; then show no; else show other; fi', [["other"]]),
        (
            "if [ 1 = 2 ]; then show a; elif [ 2 = 2 ]; then show b; elif [ 3 = 3 ]; then show c; fi",
            [["b"]],
        ),
        ("if ! [ 1 -eq 2 ]; then show n; fi; if [ ! 1 -eq 1 ]; then show m; fi", [["n"]]),
        ("if test a = b; then show a; else\nif [ a ]; then show b; fi\nfi; show c", [["b"], ["c"]]),
        ("A=ab*; if [[ abc == $A ]]; then show glob; fi", [["glob"]]),
        ("A=c; case $A in a) show 1;; b|c) show 2;; *) show 3;; esac", [["2"]]),
        ("A=z; case $A in\n(a) show 1;;\n*) show 3\nesac; show 4", [["3"], ["4"]]),
    ],
)
def test_a_branch_that_the_script_decides_is_read_alone(text, expected):
    assert shown(text) == expected
    assert read_script(text, "run.sh").notes == ()


def test_a_branch_that_only_a_running_shell_decides_is_read_and_told():
    text = "TP=2\nif [ -f big ]; then\n  TP=4\nelse\n  TP=8\nfi\nshow $TP"

    script = read_script(text, "run.sh")

    assert [word.text for word in script.commands[-1].words] == ["show", "8"]
    assert script.notes == (
        "run.sh: line 2: only a running shell can decide this condition, so flopcast reads all branches"
        " in order",
    )


def test_a_branch_that_changes_no_command_is_not_told():
    text = "if [ ! -f train.py ]; then echo none; exit 1; fi\nwhile read -r l; do echo $l; done\nshow a"

    assert read_script(text, "run.sh").notes == ()


def test_an_option_parser_does_not_replace_defaults_by_what_it_cannot_know():
    text = (
        "TP=2\nwhile [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; *) shift;; esac; done\nshow $TP"
    )

    assert shown(text) == [["2"]]


def test_the_body_of_a_loop_is_read_once_with_the_first_value():
    script = read_script("for N in 2 4 8; do show $N; done", "run.sh")

    assert [[w.text for w in c.words] for c in script.commands] == [["show", "2"]]
    assert len(script.notes) == 1


def test_a_here_document_is_left_out():
    text = "cat <<EOF > f\nshow not $A\nit's\nEOF\nshow after; cat <<-'X'\n\tshow \"no\n\tX\nshow end"

    assert shown(text) == [["after"], ["end"]]


def test_eval_and_bash_c_read_a_text_as_a_script():
    text = "ARGS='--a 1'\nCMD=\"show 'b c' $ARGS\"\neval $CMD\nsrun -N 2 bash -lc \"$CMD\""

    commands = read_script(text, "run.sh").commands

    assert [w.text for w in commands[0].words] == ["show", "b c", "--a", "1"]
    assert [w.text for w in commands[1].words] == ["srun", "-N", "2", "show", "b c", "--a", "1"]


def test_an_inner_shell_fills_in_variables_that_single_quotes_kept():
    text = "export RUN='python t.py'\nsrun bash -c '$RUN --rank $SLURM_PROCID'"

    assert [text for text, _, _ in words(text)] == ["srun", "python", "t.py", "--rank", "$SLURM_PROCID"]


def test_variables_before_a_command_are_its_own():
    script = read_script("WORLD_SIZE=4 X=1 show a", "run.sh")

    (command,) = script.commands
    assert {key: word.text for key, word in command.environment.items()} == {"WORLD_SIZE": "4", "X": "1"}
    assert "WORLD_SIZE" not in script.variables


def test_options_of_slurm_are_read_by_their_long_names():
    text = (
        "#!/bin/bash\n#SBATCH -N 4 --gres=gpu:a100:8\n#SBATCH --ntasks-per-node=2 # two\nshow $SLURM_NNODES"
    )

    script = read_script(text, "run.sh")

    asked = {key: (word.text, word.line) for key, word in script.directives.items()}
    assert asked["nodes"] == ("4", 2)
    assert asked["gpus-per-node"] == ("8", 2)
    assert asked["ntasks-per-node"] == ("2", 3)
    assert script.commands[-1].words[1].text == "4"


@all_cases("line", ["#SBATCH ", "#SBATCH --nodes", "#SBATCH -N", "#SBATCH nonsense", "#SBATCH # -N 4"])
def test_a_line_for_slurm_that_asks_for_nothing_does_no_harm(line):
    script = read_script(f"{line}\nshow a", "run.sh")

    assert [word.text for word in script.directives.values()] in ([], [""])


@all_cases(
    ("text", "line", "opening"),
    [
        ("A=1\nB='x\ny", 2, "'"),
        ('A=1\n\nshow "a\nb', 3, '"'),
        ("show `ls", 1, "`"),
        ("show\nA=$(ls (", 2, "("),
        ("show ${A", 1, "{"),
        ("A=(1 2\n3", 1, "("),
    ],
)
def test_what_is_never_closed_is_told_on_the_line_where_it_opens(text, line, opening):
    problem = told(text)

    assert problem.where == f"run.sh:{line}"
    assert str(problem.value).startswith(opening)
    assert problem.fix.startswith("add the closing")


def test_values_that_double_themselves_are_refused():
    problem = told("A=x\n" + 'A="$A$A"\n' * 60 + "show $A")

    assert problem.field == "variable"
    assert "4000000 characters" in problem.allowed


@all_cases(
    "text",
    [
        "${A:-" * 30 + "x" + "}" * 30,
        "A='eval $A'; eval $A",
        "A='bash -c \"$A\"'; eval $A",
        "if [ a ]; then\n" * 40,
        "a;" * 200_000,
        "x" * (MAX_CHARACTERS + 1),
    ],
)
def test_nesting_and_size_are_bounded(text):
    assert "at most" in told(text).allowed


@all_cases("text", ["", "#", "if", "for", "for x in", "while", "case x in a", "fi ) ;; esac", "$", "\\"])
def test_a_broken_off_script_has_no_commands_and_does_no_harm(text):
    commands = read_script(text, "run.sh").commands

    assert all(word.text in ("$", "") for command in commands for word in command.words)


def test_a_file_that_is_no_text_is_refused_with_the_line():
    with pytest.raises(SpecError) as told_of:
        script_text(b"#!/bin/sh\n\x7fELF\x00\x01", "run.sh")

    assert told_of.value.problems[0].where == "run.sh:2"


def test_letters_of_other_encodings_do_not_stop_a_script():
    assert "show" in script_text("# für\nshow a".encode("latin-1"), "run.sh")


def test_a_file_that_is_too_large_is_refused():
    with pytest.raises(SpecError, match="at most 1000000 bytes"):
        script_text(b"a" * (MAX_CHARACTERS + 1), "run.sh")


def words_of(script):
    """The words of the command with the most of them."""
    return max(([word.text for word in command.words] for command in script.commands), key=len)


def test_a_here_document_that_sbatch_or_a_shell_reads_is_a_script():
    body = (
        "#SBATCH --nodes=$NODES\n#SBATCH --gpus-per-node=8\nsrun --nodes=\\$SLURM_NNODES train.py --tp $TP"
    )
    for reader in ("sbatch <<EOF", "bash <<EOF", "cat <<EOF | sbatch", "sbatch --parsable <<-EOF && echo"):
        script = read_script(f"NODES=4; TP=8\n{reader}\n{body}\nEOF\n", "run.sh")

        assert words_of(script) == ["srun", "--nodes=4", "train.py", "--tp", "8"], reader
        assert script.directives["nodes"].text == "4"
        assert {word.line for command in script.commands for word in command.words if word.text == "8"} == {
            1
        }


def test_a_quoted_delimiter_keeps_a_here_document_as_it_is():
    text = "TP=8\nsbatch --nodes=2 <<'EOF'\nTP=4\ntrain.py --tp $TP --n $SLURM_NNODES \"a b\"\nEOF\n"

    script = read_script(text, "run.sh")

    assert words_of(script) == ["train.py", "--tp", "4", "--n", "2", "a b"]
    assert script.directives["nodes"].text == "2"


def test_a_here_document_that_nothing_runs_is_left_out():
    text = 'cat <<EOF > config.json\n{"it\'s": `unclosed\nEOF\npython train.py --tp 8\n'

    script = read_script(text, "run.sh")

    assert words_of(script) == ["python", "train.py", "--tp", "8"]


def test_arguments_and_variables_come_from_outside():
    text = (
        '#!/bin/bash\n#SBATCH --nodes=1\nTP=$1\nrun --tp $TP --pp ${2:-4} --dp ${DP:-1} "$@" --n $NNODES\n'
    )

    script = read_script(text, "run.sh", {"1": "8", "2": "a b"}, {"NNODES": "16", "DP": "2"})

    assert words_of(script) == [
        *["run", "--tp", "8", "--pp", "a", "b", "--dp", "2", "8"],
        "a b",
        "--n",
        "16",
    ]
    assert script.commands[0].words[0].line == 4
    assert words_of(read_script(text, "run.sh", {"1": "8"}, {}))[4] == "4"


def test_a_script_sets_and_shifts_its_own_arguments():
    script = read_script('set -- 8 4 2\nTP=$1; shift\nrun --tp $TP --pp $1 "$@"\n', "run.sh")

    assert words_of(script) == ["run", "--tp", "8", "--pp", "4", "4", "2"]


def test_values_that_a_script_does_not_use_are_told():
    cases = [
        ({"1": "8", "2": "4"}, {}, ["--arg"]),
        ({"2": "4"}, {}, ["--arg"]),
        ({"10": "4"}, {}, []),
        ({"1": "8"}, {"DP": "2"}, ["--env"]),
        ({"1": "8"}, {"WORLD_SIZE": "64"}, []),
    ]
    for arguments, environment, fields in cases:
        read = partial(read_script, "run --tp $1 ${10} ${DPS}\n", "run.sh", arguments, environment)

        assert [problem.field for problem in problems_of(read)] == fields, (arguments, environment)


def test_a_script_that_is_written_to_a_file_or_wrapped_is_read_where_it_runs():
    inner = "#SBATCH --nodes=2\nsrun train.py --tp $TP"
    texts = {
        "sbatch": f"TP=8\ncat > job.sh <<EOF\n{inner}\nEOF\nsbatch job.sh\n",
        "bash": f"TP=8\ncat <<EOF > ./job.sh\n{inner}\nEOF\nbash job.sh\n",
        "itself": f"TP=8\ncat <<EOF > job.sh\n{inner}\nEOF\nchmod +x job.sh && ./job.sh\n",
        "wrap": 'TP=8\nsbatch --nodes=2 --wrap="srun train.py --tp $TP"\n',
        "ssh": 'TP=8\nssh -t node-3 "srun train.py --tp $TP"\n',
        "xpk": 'TP=8\npython3 xpk.py workload create --command "srun train.py --tp $TP" --num-slices=1\n',
        "wrap apart": 'TP=8\nsbatch --nodes=2 --wrap "srun train.py --tp $TP"\n',
    }
    for name, text in texts.items():
        script = read_script(text, "run.sh")

        assert ["srun", "train.py", "--tp", "8"] in [[w.text for w in c.words] for c in script.commands], (
            name
        )
        assert name in ("ssh", "xpk") or script.directives["nodes"].text == "2", name


def test_what_stands_before_a_shell_stands_before_the_commands_that_it_reads():
    script = read_script("srun --nodes=2 bash -s <<'EOF'\ntrain.py --tp 8\nEOF\n", "run.sh")

    assert words_of(script) == ["srun", "--nodes=2", "train.py", "--tp", "8"]


def test_a_file_that_is_written_and_never_run_is_no_script():
    script = read_script("cat > a.sh <<EOF\ntrain.py --tp 4\nEOF\nrun --tp 8\n", "run.sh")

    assert words_of(script) == ["run", "--tp", "8"]
