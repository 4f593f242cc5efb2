"""The audit of printed rates: what a run really trained, where its name leaves that open.

Answers: do the FLOP that a row counts for a token include a module of multi-token prediction? How long are
the documents of packed sequences, by the attention that is left in them?
Elsewhere: conventions of FLOP (report/flop_conventions.py), how a row becomes a job (job.py).

A row that prints TFLOP/s and tokens/s says how many FLOP its source counts for a token. They are compared
with what the model counts for one; times play no part in it.
"""

from flopcast.lab.validation.run import PASSES, Run
from flopcast.spec.model import Model

MOST_DOCUMENTS = 64  # in a sequence: shorter ones leave less attention than printed digits tell
ROUNDING_FRACTION = 0.01  # rates are printed with three or four digits
CLOSE_FRACTION = 0.05  # further off, the row counts by a formula of its own, and nothing is concluded


def printed_token_flop(run: Run) -> float | None:
    """Return FLOP per token by the source; None if it prints a single rate, or counts recompute."""
    seen = run.observed
    if not seen.device_flop_per_s or not seen.device_tokens_per_s or seen.flop_convention == "hardware":
        return None
    return seen.device_flop_per_s / seen.device_tokens_per_s


def trains_mtp(run: Run, model: Model) -> bool | None:
    """Return whether the printed FLOP per token are nearer to those with multi-token prediction.

    Returns
    -------
    bool or None
        By the attention convention that the row names, or else by whichever is nearer; None where the row
        does not say enough, or neither count is within 5 %.
    """
    printed, length = printed_token_flop(run), run.sequence_length
    if printed is None or length is None or not model.mtp:
        return None
    conventions = {"full": (False,), "causal": (True,)}.get(run.observed.attention, (False, True))
    off = {
        (modules, causal): abs(
            PASSES * model.model_copy(update={"mtp": modules}).forward_flop(length, causal=causal) / length
            - printed
        )
        for modules in (0, model.mtp)
        for causal in conventions
    }
    nearest = min(off, key=lambda case: off[case])
    return nearest[0] > 0 if off[nearest] < CLOSE_FRACTION * printed else None


def packed_documents(run: Run, model: Model) -> tuple[int, ...] | None:
    """Return lengths of the documents that are packed into a sequence, as equal ones.

    Returns
    -------
    tuple of int or None
        As many documents as leave the printed FLOP of a token their attention: of n equal ones, 1 / n of a
        whole sequence's full attention. None where the row prints too little, or less than all weights'
        products (frozen ones are half as much), or more than whole attention.
    """
    printed, length = printed_token_flop(run), run.sequence_length
    if printed is None or length is None:
        return None
    attention = PASSES * model.attention_flop(length, windows=False) / length
    products = PASSES * model.forward_flop(length, windows=False) / length - attention
    fraction = (printed - products) / attention
    least, most = products * (1.0 - ROUNDING_FRACTION), (products + attention) * (1.0 + ROUNDING_FRACTION)
    if not least <= printed <= most:
        return None
    count = round(1.0 / min(max(fraction, 1.0 / MOST_DOCUMENTS), 1.0))
    return (*[length // count] * (count - 1), length - length // count * (count - 1))
