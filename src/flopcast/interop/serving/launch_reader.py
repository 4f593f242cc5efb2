"""The typed settings of one engine, and the code that all engines share.

Answers: which model, which weights and which cache format does an engine use?
Elsewhere: settings of a command or file (settings.py), settings of each engine (vllm.py and the other files
here), the formats (spec/published_formats.py), values by key and their faults
(interop/configs/config_reader.py).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from math import prod

from flopcast.errors import Problem
from flopcast.files.inputs import exists
from flopcast.files.other_forms import as_fraction
from flopcast.files.yaml_text import Document, Path, set_value
from flopcast.interop.configs.config_reader import ConfigReader
from flopcast.interop.serving.settings import LaunchKeys, Setting
from flopcast.interop.shell.parameters import from_outside
from flopcast.library import catalog
from flopcast.library.published_formats import published_in, stored_formats
from flopcast.records import replace

DEGREES = ("tensor_parallel", "pipeline_parallel", "data_parallel")  # of an instance
PUBLISHED = "the format that the model was published in"
DTYPES = dict.fromkeys(("auto", "half", "float16", "bfloat16", "fp16", "bf16"), "bf16")
EAGER_LAUNCH = "31 us"
"""Time in which the host launches one kernel if passes do not run from CUDA graphs. GPT-2 on H200 runs 139
kernels for a token. Without graphs, a token takes 4.81 ms with vLLM and 4.88 ms with SGLang (pull request
8352 of DeepSpeed). Without the host time of an iteration, these are 30.8 and 31.2 us for each kernel. Other
measurements give 24 us (Llama-3-8B, pull request 1401 of SGLang) to 77 us (Qwen2.5-Omni-7B on a shared
server, issue 7960 of vLLM-Omni).
"""
SUFFIXED = re.compile(r"(\d+(?:\.\d+)?(?=[km])|\d+)([kKmM])")
POWERS = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}
BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
MAY_HAVE_SUFFIX = ("max-model-len", "max-num-batched-tokens")
"""Options whose numbers may have a suffix, as in 8k.

vLLM parses these two options with `human_readable_int` (vllm/engine/arg_utils.py), and accepts only plain
integers for all other counts. SGLang (sglang/srt/server_args.py) and TensorRT-LLM
(tensorrt_llm/commands/serve.py) accept only plain integers for every count.
"""


class LaunchReader(ConfigReader):
    """The typed settings of one engine; it also collects the document of a job with one instance."""

    def __init__(
        self, settings: Iterable[Setting], keys: LaunchKeys, name: str, line: int, model: str | None
    ) -> None:
        """Sort the settings of one command.

        Parameters
        ----------
        settings : iterable of Setting
            Flags or keys in order; if one occurs several times, the last counts.
        keys : LaunchKeys
            The table of the engine.
        name, line
            File and line of the command, for messages.
        model : str or None
            The model that the user names instead of the command's.
        """
        last = {setting.key: setting for setting in settings}
        data: dict[str, object] = {}
        places: dict[Path, str] = {}
        for key, setting in last.items():
            path = tuple(key.split("."))
            held: object = data
            for part in path[:-1]:  # a plain value gives way to keys below it
                held = held.get(part) if isinstance(held, dict) else None
                if held is not None and not isinstance(held, dict):
                    data.pop(path[0])
                    break
            set_value(data, path, setting.value)
            places[path] = setting.place
        self.named_model: str | None = model
        self.launch_keys: LaunchKeys = keys
        self.role = ""
        self.replicas = 1
        self.program = ""  # the word of the command that starts the program
        self._shown = {key: setting.written for key, setting in last.items()}
        super().__init__(Document(name, data, {(): line}, places), keys)
        for key, setting in last.items():
            if setting.unknown and keys.sets(key):
                because = f"only the shell that runs the script knows the value of {setting.unknown}"
                self.fault(key, "a value", because, from_outside(setting.unknown), "is not stated")

    @property
    def entry_or_name(self) -> object:
        """Return the model of the command, without a limit on its requests."""
        model = self.data.get("model")
        return model.get("base") if isinstance(model, dict) else model

    def tokens(self, key: str, default: int = 1) -> int:
        """Return a count; some of vLLM's may be written as 8k (8000) or 8K (8192)."""
        match = SUFFIXED.fullmatch(str(self.raw(key))) if key in MAY_HAVE_SUFFIX else None
        return round(float(match[1]) * POWERS[match[2]]) if match else self.count(key, default)

    def shown(self, key: str) -> str:
        """Return a key as the file writes it, for messages."""
        return self._shown.get(key, f"--{key}")

    def assume(self, text: str, key: str = "") -> None:
        """Report an assumption; a key at its beginning appears as the file writes it."""
        if key and text.startswith(key):
            text = self.shown(key) + text.removeprefix(key)
        super().assume(text, key)

    def contradiction(self, key: str, other: str, because: str, value: int | None = None) -> None:
        """Report a setting that contradicts another one; without a `value` that fits, the fix is to
        remove the other.
        """
        fix = f"remove {self.shown(other)}" if value is None else f"write {value}"
        self.fault(key, f"a value that is compatible with {self.shown(other)}", because, fix)

    def check_visible(self, seen: int) -> None:
        """Report an instance that needs more devices than the script makes visible, or cannot divide heads.

        `seen` is the number of devices that CUDA_VISIBLE_DEVICES lists.
        """
        plan, known = self.part("plan"), catalog.known("models", str(self.entry_or_name))
        sizes = [each for name in DEGREES if isinstance(each := plan.get(name, 1), int)]
        ranks, path = self.degree(DEGREES[0]), ("plan", DEGREES[0])
        heads = [block.mixer.heads for block in catalog.model(known).blocks] if known else []
        most = seen * ranks // prod(sizes)
        is_right = ranks <= most and not any(count % ranks for count in heads)
        if most < 1 or path not in self.names or is_right:
            return
        right = max(each for each in range(1, most + 1) if not any(count % each for count in heads))
        allowed = f"at most {most}" + f", and a divisor of the {min(heads or [1])} heads" * bool(heads)
        because = f"CUDA_VISIBLE_DEVICES lists {seen} devices, and each rank holds whole attention heads"
        self.fault(self.names[path], allowed, because, f"write {right}")

    def remove(self, key: str, allowed: str, because: str) -> None:
        """Report a setting that must not be given."""
        self.fault(key, allowed, because, f"remove {self.shown(key)}")

    def faults(self) -> tuple[Problem, ...]:
        """Return the faults so far; settings appear as the file writes them."""
        return tuple(self._as_written(problem) for problem in self.problems)

    def _as_written(self, problem: Problem) -> Problem:
        shown, fix = self.shown(problem.field), problem.fix
        is_switch = shown.startswith("-") and problem.field in self.launch_keys.switches.split()
        turns_off = re.match("(?i)f|no?$", str(problem.value)) is not None
        if is_switch and (fix == "write true" or (fix == "write false" and not turns_off)):
            return replace(problem, field=shown, allowed="no value", fix=f"write {shown} without a value")
        if fix.startswith("write ") and len(fix.split()) == 2:
            fix = f"write {shown}{':' * (not shown.startswith('-'))} {fix.split()[1]}"
        elif shown.startswith("-"):
            if problem.fault and (near := re.fullmatch(r"did you mean (?:--)?([^ ?]+)\?", fix)):
                fix = f"did you mean --{near[1].replace('-', '_') if '_' in shown else near[1]}?"
            fix = re.sub(rf"(?<![\w-]){re.escape(problem.field)}", shown, fix) if shown not in fix else fix
        return replace(problem, field=shown, fix=fix)

    def read_model(self, key: str) -> str | None:
        """Read the model; return its entry in the catalogue, None for a file or an unknown name.

        A suffix such as "-FP8" or "-AWQ" names a copy in another format. The format becomes the weights
        of the plan, unless the model was published in it.
        """
        name = self.named_model or self.text(key)
        if not name:
            if not self.faulty(key):
                because = "the deployment needs a model to serve"
                allowed = "the name of a model of the Hugging Face hub, or a folder"
                fix = "add --model llama-3.1-8b, or another model"
                self.fault(key, allowed, because, fix, "is missing")
            return None
        name = name.rstrip("/")
        entry = catalog.known("models", name)
        if self.named_model is None:
            if entry is None and name[0] in "/.~" and not exists(name):
                allowed = "a folder with a config.json, or a name that `flopcast catalog models` lists"
                because = "there is no such folder here, and the catalogue has no model of this name"
                self.fault(key, allowed, because, "add --model NAME, the model that is in this folder")
            self.put(("model",), entry or name, key)
            if entry and entry not in name.lower():
                self.assume(f"the model {name} is {entry} in the catalogue", key)
        if entry and (formats := stored_formats(name, entry)):
            self.put(("plan", "weights"), formats.weights, key)
            if formats.expert_weights:
                self.put(("plan", "expert_weights"), formats.expert_weights, key)
            stored = formats.expert_weights or formats.weights
            self.assume(f"weights in {stored}, according to the name {name}", key)
        return entry

    def read_weights(self, key: str, formats: Mapping[str, str], entry: str | None) -> None:
        """Read how weights are quantised, and check that a model without quantisation runs in 16 bits.

        Parameters
        ----------
        formats : maps the words of the engine to formats; "" if the checkpoint determines the format
        """
        if self.has("dtype"):
            self.choice("dtype", DTYPES, "bf16")
        if not self.has(key):
            return
        kept = self.choice(key, formats, "")
        if kept:
            self._put_weights(kept, entry, key)
        elif not self.faulty(key):
            self.assume(f"{key} {self.text(key)}: {PUBLISHED}", key)

    def _put_weights(self, kept: str, entry: str | None, key: str) -> None:
        """Set the weights of the plan, unless the model or its copy is stored in a format of this kind."""
        plan = self.data.get("plan")
        of_copy = str(plan.get("weights")) if isinstance(plan, dict) else ""
        if not published_in(entry, kept) and not of_copy.startswith(kept):
            self.put(("plan", "weights"), kept, key)

    def put_replicas(self, number: int, name: str) -> None:
        """Set the number of replicas that a command starts; `name` is what the engine calls replicas."""
        key = "data-parallel-size"
        self.replicas = number
        self.put(("plan", "replicas"), number, key)
        self.assume(f"{key} {number}: the deployment has {number} independent {name}", key)

    def put_copies(self, *keys: str) -> None:
        """Read the copies of experts of each layer, if one of the flags states them."""
        for key in keys:
            if self.has(key) and self.raw(key) not in (0, "0"):
                self.put(("plan", "redundant_experts"), self.count(key), key)

    def read_cache(self, key: str) -> None:
        """Read the number format of the KV cache."""
        if self.has(key) and self.choice(key, self.words("caches"), "bf16") == "fp8":
            self.put(("plan", "cache"), "fp8", key)

    def put_count(self, field: str, key: str, share: int = 1) -> None:
        """Set a limit of the plan if it is stated; `share` equal groups divide it."""
        if self.has(key):
            self.put(("plan", field), max(self.tokens(key) // share, 1), key)

    def put_stated(self, field: str, key: str, read: Callable[[str], object] | None = None) -> None:
        """Set a field of the engine if a key states it: a whole number unless `read` returns another."""
        if self.has(key):
            self.put(("engine", field), (read or self.count)(key), key)

    def block_size(self, key: str) -> int:
        """Return the tokens of a KV block, for which vLLM accepts these sizes (vllm/config/cache.py)."""
        size = self.count(key)
        if size not in BLOCK_SIZES:
            allowed, fits = ", ".join(map(str, BLOCK_SIZES)), min(BLOCK_SIZES, key=lambda n: abs(n - size))
            self.fault(key, allowed, "the engine has no cache with blocks of this size", f"write {fits}")
        return size

    def put_eager(self, key: str) -> None:
        """Set the time of launches if a setting turns CUDA graphs off."""
        self.put(("engine", "launch_s"), EAGER_LAUNCH, key)
        text = f"{key}: without CUDA graphs, the host needs {EAGER_LAUNCH} to launch a kernel (launch_s)"
        self.assume(text, key)

    def prefill(self, key: str) -> str:
        """Return how an engine divides prompts, from its switch for chunked prefill."""
        return "chunked" if self.flag(key) else "whole"

    def put_memory(
        self, key: str, share: float = 1.0, part: str = "device memory that the engine uses"
    ) -> None:
        """Set the part of the memory that the engine uses, if it is stated; `share` of it are used.

        `part` says in an error what the key is a fraction of.
        """
        value = self.raw(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1:
            self.put(("engine", "memory_fraction"), share * float(value), key)
        elif self.has(key):
            because = f"this setting is the fraction of {part}"
            allowed = "a number above 0, at most 1"
            self.fault(key, allowed, because, as_fraction(value, allowed) or "write 0.9")

    def read_longest(self, key: str, entry: str | None = None, variable: str = "") -> None:
        """Read the longest request: the context of the model, if the command names an `entry`.

        Without an entry, a note says that the limit is ignored. An engine with an environment `variable`
        starts only if this is set where the longest request exceeds the context of the model.
        """
        if not self.has(key):
            return
        longest, most = self.tokens(key), catalog.model(entry).context_length if entry else 0
        if entry and self.data.get("model") == entry and not self.faulty(key):
            self.data["model"] = {"base": entry}
            self.put(("model", "context_length"), longest, key)
            self.assume(f"{key} {longest}: longer requests are errors (model.context_length)", key)
        else:
            self.assume(f"{key} {longest} is ignored: the traffic states the lengths of requests", key)
        if (
            variable
            and 0 < most < longest
            and not (self.below("hf-overrides") or self.below("rope-scaling"))
        ):
            refuses = f"{self.keys.program} refuses to start without {variable}=1"
            self.assume(f"{key} {longest} exceeds the {most} tokens of {entry}: {refuses}", key)

    def put_adapters(self, key: str, rank: int, slots: str) -> None:
        """Set the low-rank adapters that are loaded with the model: their rank, and how many fit."""
        self.put(("plan", "adapter_rank"), rank, key, "enable-lora")
        self.put_count("adapter_slots", slots)
        self.assume("requests use adapters only if the traffic contains them (adapters=8)", "enable-lora")

    def put_draft(self, drafter: str, drafted: int, *keys: str) -> None:
        """Set the method that drafts tokens, and their number; a draft model has its entry or its name."""
        self.put(("plan", "draft"), drafter, *keys)
        self.put(("plan", "drafted"), drafted, *keys)

    def draft_model(self, key: str) -> str:
        """Return the entry of the smaller model that drafts, or its name if the catalogue lacks it."""
        name = self.text(key)
        if not name and not self.faulty(key):
            because = "a smaller model drafts the tokens"
            allowed = "the name of a model of the Hugging Face hub"
            self.fault(key, allowed, because, f"add {key}", "is missing")
        return catalog.known("models", name) or name


def has_experts(entry: str | None) -> bool | None:
    """Return whether a model of the catalogue has routed experts; None if the catalogue lacks the model."""
    return None if entry is None else catalog.model(entry).has_experts
