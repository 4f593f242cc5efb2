"""The rule about linear attention: it is served, and not trained yet.

Elsewhere: the layer (layers/gated_delta_net.py), rules of serving (serving/checks.py), what a rule is
(checks.py).
"""

from flopcast.layers.gated_delta_net import GatedDeltaNet
from flopcast.spec.checks import Case, Rule


def _linear(case: Case) -> list[int]:
    """Return the blocks with linear attention, by place in the model."""
    return [n for n, block in enumerate(case.model.blocks) if isinstance(block.mixer, GatedDeltaNet)]


RULES: tuple[Rule, ...] = (
    Rule(
        field=lambda c: f"model.blocks.{_linear(c)[0]}.mixer",
        value=lambda c: c.model.blocks[_linear(c)[0]].mixer.kind,
        holds=lambda c: not _linear(c),
        allowed="attention or latent_attention",
        because=(
            "training of linear attention is not supported yet, because no measurements of its kernels "
            "are public"
        ),
        fix="choose another model, or predict how this one is served, with --engine vllm",
    ),
)
