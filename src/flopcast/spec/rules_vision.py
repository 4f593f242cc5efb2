"""The rules about vision towers: images and their tokens, heads, and what is not supported yet.

Answers: do the images of a batch fit its sequences, and does a plan divide the tower?
Elsewhere: what a tower may consist of (layers/vision.py), heads of the decoder (rules_heads.py), what a
rule is (checks.py).
"""

from flopcast.layers.images import images_text
from flopcast.spec.checks import Case, Rule, first
from flopcast.spec.divisors import divisors, listed


def _image_tokens(case: Case) -> int:
    """Return the tokens of a sequence that its images take; 0 without a tower."""
    return case.model.vision.tokens(case.batch.images) if case.model.vision else 0


def _divided(case: Case) -> int:
    """Return what a tensor-parallel degree must divide; 0 without a tower."""
    return case.model.vision.divided if case.model.vision else 0


def _degree(case: Case) -> int:
    """Return the largest degree up to that of the first plan that divides the tower."""
    return max(each for each in divisors(_divided(case)) if each <= first(case.plans.tensor_parallel))


def _all_list_images(case: Case) -> bool:
    """Return whether micro-batches are listed and each has images of its own."""
    listed_ones = [each for ranks in case.batch.lists for each in ranks.micro_batches]
    return bool(listed_ones) and all(each.images is not None for each in listed_ones)


RULES: tuple[Rule, ...] = (
    Rule(
        field="batch.images",
        holds=lambda c: not c.batch.images or c.model.vision is not None,
        value=lambda c: images_text(c.batch.images),
        allowed="no images, because the model has no vision tower",
        because="the model has no layers that read images",
        fix="remove batch.images",
    ),
    Rule(
        field="batch.sequence_length",
        holds=lambda c: _image_tokens(c) <= c.batch.sequence_length,
        allowed=lambda c: (
            f"at least {_image_tokens(c)} (the number of tokens of its images, "
            f"{images_text(c.batch.images)})"
        ),
        because="the tokens of images are part of the sequence",
        fix=lambda c: {"sequence_length": _image_tokens(c)},
    ),
    Rule(
        field="batch.images",
        holds=lambda c: len({bool(kind.images) for kind in c.batch.kinds}) == 1,
        value=lambda c: images_text(c.batch.images) or "none",
        allowed="either images in all listed micro-batches, or no images at all",
        because="steps in which only some micro-batches have images are not supported yet",
        fix="describe the images of each micro-batch",
        about_lists=True,
    ),
    Rule(
        field="batch.images",
        holds=lambda c: not (c.batch.images and _all_list_images(c)),
        value=lambda c: images_text(c.batch.images),
        allowed="no value, because each micro-batch states its images",
        because="batch.images applies only to micro-batches that do not state their own images",
        fix="remove batch.images",
        about_lists=True,
    ),
    Rule(
        field="plan.tensor_parallel",
        holds=lambda c: c.model.vision is None or _divided(c) % c.plans.tensor_parallel == 0,
        allowed=lambda c: f"a divisor of {_divided(c)}: {listed(divisors(_divided(c)))}",
        because="tensor parallelism also divides the heads and MLPs of the vision tower",
        fix=lambda c: {"tensor_parallel": _degree(c)},
    ),
)
