"""Arithmetic and conditions of scripts, against what POSIX and C say of them; nothing is executed."""

import operator

import pytest
from all_cases import all_cases
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flopcast.interop.shell.conditions import decided
from flopcast.interop.shell.lexer import tokens_of
from flopcast.interop.shell.script import read_script
from flopcast.interop.shell.variables import MAX_NUMBER, Piece, Variables, is_known, text_of

LAWS = settings(max_examples=60)
COMPARISONS = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}
whole = st.integers(-50, 50)


def computed(expression, **variables):
    """What `$((…))` becomes; None where only a running shell knows."""
    known = Variables("run.sh", {name: (Piece(str(value), 1),) for name, value in variables.items()})
    (token,) = tokens_of(f"$(({expression}))", "run.sh")
    value = known.value(token.parts)
    return int(text_of(value)) if is_known(value) else None


def verdict(text, **variables):
    """Whether a condition holds; None where only a running shell knows."""
    known = Variables("run.sh", {name: (Piece(str(value), 1),) for name, value in variables.items()})
    return decided(tokens_of(text, "run.sh"), known)


def quotient(a, b):
    """C's division: towards zero (ISO C, 6.5.5), which POSIX asks of a shell (2.6.4)."""
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


@LAWS
@given(a=whole, b=whole.filter(bool))
@example(a=-7, b=3)
@example(a=7, b=-3)
def test_quotient_and_remainder_are_those_of_c(a, b):
    assert computed("A / B", A=a, B=b) == quotient(a, b)
    assert computed("A % B", A=a, B=b) == a - b * quotient(a, b)


@all_cases(
    ("written", "number"),
    [
        ("$(expr 16 / $N)", 4),
        ("`expr $N \\* 3`", 12),
        ("$(expr $N + 1)", 5),
        ('$(echo "$N * 2" | bc)', 8),
        ("$( expr $N % 3 )", 1),
        ("$(expr length abc)", None),
        ("$(expr $UNSET / 2)", None),
        ("$(expr 1 / 0)", None),
        ("$(expr 16 / $(nproc))", None),
        ("$(nproc)", None),
        ("$(expr 4; rm x)", None),
        ("$(cat 4 | bc)", None),
    ],
)
def test_a_command_that_only_computes_is_its_result(written, number):
    """POSIX, expr: whole numbers, division towards zero; recipes divide a batch by the ranks this way."""
    known = Variables("run.sh", {"N": (Piece("4", 1),)})
    (token,) = tokens_of(written, "run.sh")

    value = known.value(token.parts)

    assert is_known(value) == (number is not None)
    assert number is None or text_of(value) == str(number)


@LAWS
@given(a=st.integers(-MAX_NUMBER + 1, MAX_NUMBER - 1), b=st.integers(1, 1000))
@example(a=-(2**53) - 1, b=2)
@example(a=2**53 + 1, b=1)
def test_large_numbers_are_divided_exactly(a, b):
    assert computed("A / B", A=a, B=b) == quotient(a, b)


@LAWS
@given(a=whole, b=whole, c=whole)
def test_products_bind_closer_than_sums_and_parentheses_closest(a, b, c):
    assert computed("A + B * C", A=a, B=b, C=c) == a + b * c
    assert computed("(A + B) * C", A=a, B=b, C=c) == (a + b) * c
    assert computed("A - B - C", A=a, B=b, C=c) == a - b - c
    assert computed("-A - -B", A=a, B=b) == b - a


@LAWS
@given(nodes=st.integers(1, 4096), devices=st.integers(1, 16), tp=st.integers(1, 8), pp=st.integers(1, 16))
def test_the_replicas_that_a_script_computes_are_those_of_its_devices(nodes, devices, tp, pp):
    text = "WORLD=$((NODES * GPUS)); DP=$(($WORLD / ($TP * $PP))); show $DP"
    given_ = f"NODES={nodes}; GPUS={devices}; TP={tp}; PP={pp}; "

    command = read_script(given_ + text, "run.sh").commands[-1]

    assert command.words[-1].text == str(nodes * devices // (tp * pp))


@all_cases(
    "expression",
    [
        "1 / 0",
        "1 % 0",
        "A",
        "A + 1",
        "$A * 2",
        "2 ** 70",
        "1.5 + 1",
        "'8' * 2",
        "f(2)",
        "1 < 2",
        "8 and 9",
        "9" * 30 + " * 1" * 60,
        "[1]",
        f"{MAX_NUMBER} * {MAX_NUMBER}",
    ],
)
def test_what_is_no_known_whole_number_is_left_to_the_shell(expression):
    assert computed(expression) is None


@pytest.mark.parametrize("name", COMPARISONS)
@LAWS
@given(a=whole, b=whole)
@example(a=3, b=3)
def test_numbers_are_compared_as_numbers(name, a, b):
    expected = COMPARISONS[name](a, b)

    assert verdict(f"[ $A {name} $B ]", A=a, B=b) is expected
    assert verdict(f"[[ $A {name} {b} ]]", A=a) is expected
    assert verdict(f"test {a} {name} $B", B=b) is expected
    assert verdict(f"[ ! $A {name} $B ]", A=a, B=b) is not expected


@all_cases(
    ("text", "expected"),
    [
        ('[ "$A" = "$A" ]', True),
        ('[ "$A" == bf16 ]', True),
        ('[ "$A" != bf16 ]', False),
        ('[[ "$A" == bf* ]]', True),
        ('[[ "$A" == fp* ]]', False),
        ("[ -n $A ]", True),
        ("[ -z $A ]", False),
        ('[ -z "$EMPTY" ]', True),
        ('[ -n "$EMPTY" ]', False),
        ("[ $A ]", True),
        ("[ ! $A ]", False),
        ("[ $A -gt 1 ]", None),
        ("[ -f $A ]", None),
        ("[ $OTHER = bf16 ]", None),
        ("grep -q x file", None),
        ("[ $A = bf16 ] | cat", None),
    ],
)
def test_texts_are_compared_and_what_only_a_running_shell_sees_is_not_decided(text, expected):
    assert verdict(text, A="bf16", EMPTY="") is expected


TRUTH = {"[ 1 = 1 ]": True, "[ 1 = 2 ]": False, "[ -f x ]": None}


@all_cases("left", TRUTH)
@all_cases("right", TRUTH)
def test_and_and_or_know_what_one_side_alone_decides(left, right):
    """Kleene's logic of three values: unknown unless either value would give the same."""
    of_left = [TRUTH[left]] if TRUTH[left] is not None else [True, False]
    of_right = [TRUTH[right]] if TRUTH[right] is not None else [True, False]
    both = {a and b for a in of_left for b in of_right}
    either = {a or b for a in of_left for b in of_right}

    assert verdict(f"{left} && {right}") is (both.pop() if len(both) == 1 else None)
    assert verdict(f"{left} || {right}") is (either.pop() if len(either) == 1 else None)


@pytest.mark.parametrize(
    ("condition", "taken"), [("$TP -gt 1", "yes"), ("$TP -gt 8", "no"), ("$TP -eq 8 && $TP -lt 8", "no")]
)
def test_a_branch_that_the_script_decides_is_the_one_that_runs(condition, taken):
    tests = " && ".join(f"[ {part} ]" for part in condition.split(" && "))
    text = f"TP=8\nif {tests}; then\n  WORD=yes\nelse\n  WORD=no\nfi\nshow $WORD\n"

    assert read_script(text, "run.sh").commands[-1].words[-1].text == taken
