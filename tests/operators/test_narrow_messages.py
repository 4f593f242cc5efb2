"""Collectives that are narrow one way: kinds and bytes of both directions."""

from functools import partial

from all_cases import all_cases

from flopcast.dtypes import constant
from flopcast.operators.exchanges import Combine, Dispatch
from flopcast.operators.low_precision_messages import DUALS, LowPrecisionMessage
from flopcast.operators.messages import MESSAGES

WIDE = MESSAGES | {
    "hybrid_dispatch": partial(Dispatch, library="hybridep"),
    "hybrid_combine": partial(Combine, library="hybridep"),
}


def narrow(kind):
    return LowPrecisionMessage(kind=kind, axis="tp", message_bytes=constant(100), dual_bytes=constant(200))


@all_cases("kind", DUALS)
def test_the_dual_is_the_adjoint_collective_of_wide_messages(kind):
    wide = WIDE[kind](axis="tp", message_bytes=constant(100))

    assert narrow(kind).dual().collective == wide.dual().collective
    assert narrow(kind).collective == wide.collective


@all_cases("kind", DUALS)
def test_each_direction_has_its_own_bytes_and_the_dual_of_the_dual_is_the_message(kind):
    message = narrow(kind)
    back = message.dual().dual()

    assert message.dual().message_bytes == 200
    assert (back.kind, back.axis, back.message_bytes, back.dual_bytes) == (kind, "tp", 100, 200)
