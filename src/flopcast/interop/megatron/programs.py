"""Programs of Megatron-LM, and configurations of NeMo, that do not train a GPT-like model.

Answers: does this program train a GPT-like model and, if not, what does it train?
Elsewhere: the command of a script that trains (training_command.py), NeMo's keys (interop/configs/nemo.py).

Names of programs are those of NVIDIA/Megatron-LM and microsoft/Megatron-DeepSpeed (pretrain_bert.py,
pretrain_vision_classify.py …). Names of configurations are those of NVIDIA/NeMo 1.x (`name:
megatron_mamba` in examples/nlp/language_modeling/conf, `name: nemo_neva` in examples/multimodal).
"""

import re

from flopcast.interop.megatron.flags import OTHER_MODELS


def other_model(name: str) -> str:
    """Return what a program or configuration of this name trains, "" for a GPT-like model.

    Examples
    --------
    >>> [other_model(name) for name in ("/megatron/pretrain_bert.py", "megatron_hyena", "pretrain_gpt.py")]
    ['an encoder, whose attention is not causal', 'state-space or recurrent layers', '']
    """
    last = name.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".py")
    parts = re.split(r"[_\-.]", last)
    return next((OTHER_MODELS[part] for part in parts if part in OTHER_MODELS), "")


def other_class(target: str) -> str:
    """Return the same as `other_model`, for a class by its path in Python.

    >>> other_class("megatron.bridge.models.qwen_vl.Qwen25VLModelProvider")
    'a language model with a vision encoder'
    >>> other_class("megatron.bridge.models.NemotronHModelProvider"), other_class("models.GPTModelProvider")
    ('state-space or recurrent layers', '')
    """
    words = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", target.rpartition(".")[2])
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", words).lower()
    return OTHER_MODELS["mamba"] if "_h_" in words else other_model(words)
