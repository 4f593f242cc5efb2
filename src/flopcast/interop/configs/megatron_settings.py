"""Settings of Megatron-Core that stand in a YAML file, as the flags that a launch script would have.

Answers: which flags say what these keys say, and whose line is each?
Elsewhere: which keys a format has (megatron_bridge.py, nemo.py), what the flags mean
(interop/megatron/).

Bridge and NeMo fill the same TransformerConfig that Megatron-LM's flags fill: their values are read by
the same reader: faults and assumptions then name the key that the file has, not the flag.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from flopcast.errors import Problem
from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.interop.megatron.arguments import Arguments
from flopcast.interop.megatron.flags import LISTED
from flopcast.interop.megatron.job_builder import JobBuilder
from flopcast.interop.megatron.model import read_model
from flopcast.interop.megatron.plan import read_plan
from flopcast.interop.megatron.stack import switched
from flopcast.interop.shell.variables import Word
from flopcast.library import catalog

Names = Mapping[str, Mapping[str, str]]
VALUES: Names = {  # a section, its field → the flag with the same value
    "model": {
        "num_layers": "--num-layers", "hidden_size": "--hidden-size",
        "ffn_hidden_size": "--ffn-hidden-size", "num_attention_heads": "--num-attention-heads",
        "kv_channels": "--kv-channels", "normalization": "--normalization",
        "hidden_dropout": "--hidden-dropout", "attention_dropout": "--attention-dropout",
        "rotary_percent": "--rotary-percent",
        "make_vocab_size_divisible_by": "--make-vocab-size-divisible-by",
        "vocab_size": "--vocab-size", "position_embedding_type": "--position-embedding-type",
        "seq_length": "--seq-length", "max_position_embeddings": "--max-position-embeddings",
        "tensor_model_parallel_size": "--tensor-model-parallel-size",
        "pipeline_model_parallel_size": "--pipeline-model-parallel-size",
        "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
        "context_parallel_size": "--context-parallel-size", "cp_comm_type": "--cp-comm-type",
        "expert_model_parallel_size": "--expert-model-parallel-size",
        "expert_tensor_parallel_size": "--expert-tensor-parallel-size",
        "num_layers_in_first_pipeline_stage": "--decoder-first-pipeline-num-layers",
        "num_layers_in_last_pipeline_stage": "--decoder-last-pipeline-num-layers",
        "pipeline_model_parallel_layout": "--pipeline-model-parallel-layout",
        "recompute_granularity": "--recompute-granularity", "recompute_method": "--recompute-method",
        "recompute_num_layers": "--recompute-num-layers", "recompute_modules": "--recompute-modules",
        "num_moe_experts": "--num-experts", "moe_layer_freq": "--moe-layer-freq",
        "moe_router_topk": "--moe-router-topk", "moe_ffn_hidden_size": "--moe-ffn-hidden-size",
        "moe_shared_expert_intermediate_size": "--moe-shared-expert-intermediate-size",
        "moe_router_score_function": "--moe-router-score-function",
        "moe_router_dtype": "--moe-router-dtype",
        "moe_token_dispatcher_type": "--moe-token-dispatcher-type",
        "moe_flex_dispatcher_backend": "--moe-flex-dispatcher-backend",
        "moe_router_load_balancing_type": "--moe-router-load-balancing-type",
        "moe_aux_loss_coeff": "--moe-aux-loss-coeff",
        "moe_expert_capacity_factor": "--moe-expert-capacity-factor",
        "moe_router_num_groups": "--moe-router-num-groups",
        "moe_router_group_topk": "--moe-router-group-topk", "mtp_num_layers": "--mtp-num-layers",
        "window_size": "--window-size", "window_attn_skip_freq": "--window-attn-skip-freq",
        "softmax_type": "--softmax-type", "q_lora_rank": "--q-lora-rank", "kv_lora_rank": "--kv-lora-rank",
        "qk_head_dim": "--qk-head-dim", "v_head_dim": "--v-head-dim",
        "qk_pos_emb_head_dim": "--qk-pos-emb-head-dim", "transformer_impl": "--transformer-impl",
    },
    "train": {"micro_batch_size": "--micro-batch-size", "global_batch_size": "--global-batch-size",
              "rampup_batch_size": "--rampup-batch-size"},
    "ddp": {"data_parallel_sharding_strategy": "--data-parallel-sharding-strategy"},
    "optimizer": {
        "optimizer": "--optimizer", "sgd_momentum": "--sgd-momentum",
        "main_params_dtype": "--main-params-dtype",
        "exp_avg_dtype": "--exp-avg-dtype", "exp_avg_sq_dtype": "--exp-avg-sq-dtype",
    },
    "dist": {},
    "mixed_precision": {
        "num_layers_at_start_in_bf16": "--num-layers-at-start-in-bf16",
        "num_layers_at_end_in_bf16": "--num-layers-at-end-in-bf16",
    },
}  # fmt: skip
ON: Names = {  # a section, its field that is true → the flag
    "model": {
        "sequence_parallel": "--sequence-parallel", "qk_layernorm": "--qk-layernorm",
        "add_qkv_bias": "--add-qkv-bias", "tp_comm_overlap": "--tp-comm-overlap",
        "moe_grouped_gemm": "--moe-grouped-gemm", "multi_latent_attention": "--multi-latent-attention",
        "account_for_embedding_in_pipeline_split": "--account-for-embedding-in-pipeline-split",
        "account_for_loss_in_pipeline_split": "--account-for-loss-in-pipeline-split",
        "moe_router_force_load_balancing": "--moe-router-force-load-balancing",
        "moe_pad_expert_input_to_capacity": "--moe-pad-expert-input-to-capacity",
        "moe_router_enable_expert_bias": "--moe-router-enable-expert-bias",
        "moe_shared_expert_gate": "--moe-shared-expert-gate", "moe_router_fusion": "--moe-router-fusion",
        "overlap_moe_expert_parallel_comm": "--overlap-moe-expert-parallel-comm",
        "distribute_saved_activations": "--distribute-saved-activations",
    },
    "train": {},
    "ddp": {
        "use_distributed_optimizer": "--use-distributed-optimizer",
        "overlap_grad_reduce": "--overlap-grad-reduce", "overlap_param_gather": "--overlap-param-gather",
        "average_in_collective": "--ddp-average-in-collective", "use_megatron_fsdp": "--use-megatron-fsdp",
    },
    "optimizer": {
        "use_distributed_optimizer": "--use-distributed-optimizer",
        "use_precision_aware_optimizer": "--use-precision-aware-optimizer",
        "optimizer_cpu_offload": "--optimizer-cpu-offload",
    },
    "dist": {"use_tp_pp_dp_mapping": "--use-tp-pp-dp-mapping", "use_torch_fsdp2": "--use-torch-fsdp2"},
    "mixed_precision": {
        "bf16": "--bf16", "fp16": "--fp16", "fp8_param_gather": "--fp8-param-gather",
        "first_last_layers_bf16": "--first-last-layers-bf16",
    },
}  # fmt: skip
OFF: Mapping[str, str] = {  # a field of the model that is false → its flag
    "add_bias_linear": "--disable-bias-linear",
    "share_embeddings_and_output_weights": "--untie-embeddings-and-output-weights",
    "gradient_accumulation_fusion": "--no-gradient-accumulation-fusion",
    "apply_rope_fusion": "--no-rope-fusion",
    "masked_softmax_fusion": "--no-masked-softmax-fusion",
    "bias_activation_fusion": "--no-bias-gelu-fusion",
    "bias_dropout_fusion": "--no-bias-dropout-fusion",
}
TYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.uint8": "fp8"}
FLAG = re.compile(r"--[a-z][a-z0-9-]*[a-z0-9]")


class TranslatedFlags:
    """Flags out of a sheet, each with the key that it stands for."""

    def __init__(self, reader: ConfigReader) -> None:
        """Start without flags."""
        self._sheet = reader
        self._words: list[Word] = []
        self._keys: dict[str, str] = {}

    def section(self, name: str, fields: str = "", skipped: tuple[str, ...] = ()) -> None:
        """Add every field of a section that corresponds to a flag; null is ignored.

        Parameters
        ----------
        name : str
            The section of the file.
        fields : str
            The section of the tables, where it has another name.
        skipped : tuple of str
            Fields that mean something else here.
        """
        fields = fields or name
        for field, flag in VALUES[fields].items():
            key, value = self._value(f"{name}.{field}")
            if field not in skipped and value is not None:
                self.say(flag, key, value if flag in LISTED or not isinstance(value, list) else str(value))
        switches = [(field, flag, True) for field, flag in ON[fields].items()]
        switches += [(field, flag, False) for field, flag in OFF.items() if fields == "model"]
        for field, flag, wanted in switches:
            key = f"{name}.{field}"
            given = field not in skipped and self._sheet.has(key)
            if given and self._sheet.flag(key, not wanted) is wanted:
                self.say(flag, key)

    def say(self, flag: str, key: str, value: object = None) -> None:
        """Add a flag with the value of a key, or alone."""
        line = self._line(key)
        self._keys.setdefault(flag, key)
        self._words.append(Word(flag, line))
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                self._words.append(Word(str(one), line))

    def add(self, word: str, key: str) -> None:
        """Add one more value of the last flag."""
        self._words.append(Word(word, self._line(key)))

    def name(self, flag: str, key: str) -> None:
        """Call a flag by a key, whether it is said or not."""
        self._keys.setdefault(flag, key)

    def read(self, ranks: int | None, base: str) -> dict[str, object]:
        """Read the job of all flags into the config reader; return what they change of its stack.

        Parameters
        ----------
        ranks : int or None
            Devices of the job; None where nobody says them, which is told elsewhere.
        base : str
            The stack of the catalogue that the program is.
        """
        reader = self._sheet
        arguments = Arguments(reader.document.name, self._words, 1)
        builder = JobBuilder(reader.document.name, 1, arguments)
        read_model(builder)
        read_plan(builder, ranks)
        changes = switched(arguments, catalog.stack(base))
        named = "--vocab-size" if reader.asked.model else ""  # the model of the command line has its own
        problems = [problem for problem in arguments.problems if problem.field != named]
        reader.problems += [self._told(problem) for problem in problems]
        reader.assumptions += [self._named(text) for text in arguments.assumptions]
        own = reader.data.get("model")
        model = {} if reader.asked.model else builder.data["model"]
        reader.data |= builder.data
        reader.data["model"] = (model if isinstance(model, dict) else {}) | (
            own if isinstance(own, dict) else {}
        )
        reader.lines = builder.lines | reader.lines
        return changes

    def _value(self, key: str) -> tuple[str, object]:
        """Return a field's key and value; a type is dumped as an object, `_target_: torch.bfloat16`.

        In overrides it is a text, torch.bfloat16.
        """
        target = f"{key}._target_"
        if self._sheet.has(target):
            name = self._sheet.text(target)
            return target, TYPES.get(name, name)
        value = self._sheet.raw(key) if self._sheet.has(key) else None
        return key, TYPES.get(value, value) if isinstance(value, str) else value

    def _line(self, key: str) -> int:
        """Return the line of a key."""
        line = self._sheet.where(key).rpartition(":")[2]
        return int(line) if line.isdecimal() else 1

    def _named(self, text: str) -> str:
        """Return a text with keys in place of their flags."""
        return FLAG.sub(lambda found: self._keys.get(found[0], found[0]), text)

    def _told(self, problem: Problem) -> Problem:
        """Return a fault of a flag as a fault of its key."""
        return replace(
            problem,
            field=self._named(problem.field),
            allowed=self._named(problem.allowed),
            because=self._named(problem.because).replace("Megatron-LM", self._sheet.keys.program),
            fix=self._named(problem.fix),
        )
