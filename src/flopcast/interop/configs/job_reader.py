"""One foreign file, and the job that its importer creates: model, plan, batch and further models.

Answers: which model of the catalogue does the file name, over how many ranks is the job divided, which
states are outside the devices, and which reference, teacher, critic and head does it have?
Elsewhere: the values of the file (config_reader.py), the meaning of its keys (one file for each format),
names (library/catalog.py), placements (spec/offload.py), further models (workload/companions.py).
"""

from collections.abc import Mapping
from math import prod

from flopcast.errors import MISSING, SpecError
from flopcast.files.nearest_names import choice_fix, nearest, some_of
from flopcast.files.yaml_text import Document, line_in
from flopcast.interop.configs.config_reader import SLIP, ConfigReader
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.keys import Keys, keys_of
from flopcast.layers.adapted_linears import meant_linear
from flopcast.library import catalog
from flopcast.library.hub import misspelt
from flopcast.spec.divisors import contradicted, divisors, nearest_multiples, undivided
from flopcast.spec.plan import Plan

SHARDED_STATES = ("optimizer:host", "parameters:host")  # what the CPU offload of FSDP moves
ACTIVATIONS, PAGEABLE = ("activations:host",), {"gradient_copies": "pageable"}
OTHER = "other"  # an optimizer that a program has, but flopcast does not
PAIR = 2  # sequences of a sample: the chosen and the rejected answer
PAIRED = ("reference", "alone", "reward")  # kinds of training whose samples are pairs
KTO_PASSES = 3  # one of the model itself for the divergence, and two of the reference
FLAVOURS = keys_of("torchtitan").words["flavours"]  # model/flavor → a name that the catalogue knows


class JobReader(ConfigReader):
    """The values of a file, and the job that they describe."""

    def __init__(self, document: Document, keys: Keys, options: ImportOptions | None = None) -> None:
        """Sort the keys of the file, as `ConfigReader` does."""
        super().__init__(document, keys, options)
        self.other_ranks: str = ""  # what to write instead of a batch that the assumed ranks do not divide

    def fill(self, key: str, value: object) -> None:
        """Set a key that is missing in the file to the default of its program."""
        if not self.has(key):
            key = self.first(key)
            self._values[key] = (tuple(key.split(".")), value)

    def put_degree(self, field: str, size: int, *keys: str) -> None:
        """Set a degree of the plan if it is above 1."""
        if size > 1:
            self.put(("plan", field), size, *keys)

    def put_degrees(self, keys: Mapping[str, str], stated: int | None, *of_devices: str) -> int:
        """Put degrees, by the field of the plan, and replicas into the plan; return the number of replicas.

        `stated` is the number of devices according to the keys `of_devices`.
        """
        sizes = {field: self.count(key) for field, key in keys.items()}
        replicas = self.replicas({keys[field]: size for field, size in sizes.items()}, stated)
        self.put(("plan", "data_parallel"), replicas, *of_devices)
        for field, size in sizes.items():
            self.put_degree(field, size, keys[field])
        return replicas

    def put_shards(self, group: int, replicas: int, *keys: str) -> None:
        """Put the ranks of a shard group into the plan, if there are several groups."""
        if 0 < group < replicas:
            right = next(each for each in divisors(replicas) if each >= group)
            fix = f"set {self.first(keys[0])} to {right}"
            if self.fills_replicas(-(-replicas // group), group, replicas, keys[0], fix):
                self.put(("plan", "data_shard"), group, *keys)

    def fills_replicas(self, sets: int, group: int, replicas: int, key: str, fix: str) -> bool:
        """Return whether this number of shard groups contains all replicas; if not, report it at a key."""
        if sets * group != replicas:
            because = "every data-parallel rank belongs to exactly one shard group"
            ranks = f"{replicas} (the number of data-parallel ranks)"
            allowed = f"values for which the number of groups, multiplied by the ranks of one, is {ranks}"
            more = (self.options.devices or 0) // replicas * sets * group
            if more and (more < 8 or more % 8 == 0):  # whole nodes of the usual size
                fix = f"set --gpus to {more}, or {fix}"
            self.fault(key, allowed, because, fix)
        return sets * group == replicas

    def put_checkpointing(self, key: str, usual: bool = False) -> None:
        """Put recompute of whole blocks into the plan if activation checkpointing is on."""
        if self.flag(key, usual):
            self.put(("plan", "recompute"), "full", key)

    def put_named_optimizer(self, name: str, kinds: Mapping[str, str], key: str) -> None:
        """Set the plan's optimizer by its name; an unsupported one counts as AdamW, with a note.

        The `kinds` map names to optimizers, and to `OTHER` if flopcast does not support them. Programs
        whose table has such names refuse all other names. The others accept any class, unless its name is a
        misspelling.
        """
        kind = kinds.get(name, OTHER if name else "adamw")
        near = [] if name in kinds else nearest(name, kinds, least_ratio=SLIP)
        if name and name not in kinds and (near or OTHER in kinds.values()):
            because = f"{self.keys.program} has no such optimizer"
            self.fault(key, some_of([*kinds]), because, choice_fix(name, kinds, "adamw"))
        elif kind == OTHER:
            self.assume(f"flopcast predicts the optimizer step of AdamW instead of {name}", key)
        self.put_optimizer("adamw" if kind == OTHER else kind, key)

    def put_optimizer(self, kind: str, *keys: str) -> None:
        """Set the plan's optimizer, unless it is the default."""
        if kind != Plan.model_fields["optimizer"].default:
            self.put(("plan", "optimizer"), kind, *keys)

    def replicas(self, degrees: Mapping[str, int], stated: int | None = None, last: str = "") -> int:
        """Return the number of replicas; report a degree that contradicts the devices, `last` if all do."""
        devices, share = self.ranks(stated), prod(degrees.values())
        if last and self.options.devices and stated not in (None, devices) and devices % share == 0:
            self.fault(last, *contradicted(devices, stated, share))
        if devices % share and (self.options.devices or stated or self.options.whole):
            known = stated and not stated % share and f"{stated}, as the file states"
            named = {self.first(key): size for key, size in degrees.items()}
            self.fault(*undivided(devices, named, known or ""))
        return max(devices // share, 1)

    def ranks(self, stated: int | None = None) -> int:
        """Return the number of devices; report a fault if neither file nor command line states it.

        The command line overrides the number that the file has `stated`.
        """
        devices = self.options.devices or stated or self.options.whole
        if self.options.devices and stated not in (None, self.options.devices):
            self.assume(f"{self.options.devices} devices as requested, instead of {stated} in the file")
        if devices is not None and devices == self.options.whole and not (self.options.devices or stated):
            self.assume(f"all {devices} devices of the cluster, because no number of devices is stated")
            self.other_ranks = f", or add --gpus N: without it, all {devices} devices of the cluster train"
        if devices is None:
            because = "flopcast needs the number of devices to compute the data-parallel degree"
            allowed, fix = "--gpus N, or --cluster NAME:NODES", "add --gpus N, the number of devices"
            self.fault("world size", allowed, because, fix, "is not in the file")
        return devices or 1

    def read_model(self, key: str, written: str | None = None) -> None:
        """Read the model that a key names, or `written` if it is given; report an unknown model.

        --model on the command line takes precedence.
        """
        if self.options.model:
            return
        name = self.text(key) if written is None else written
        name = name.replace("___", ".")  # in the folders of ModelScope's cache
        entry = catalog.known("models", FLAVOURS.get(name.lower(), name)) if name else None
        if entry:
            self.put(("model", "base"), entry, key)
            self.assume(f"the model {name} is {entry} in the catalogue", key)
            if catalog.model(entry).mtp:  # trained by Megatron's and DeepSeek's own programs alone
                self.put(("model", "mtp"), 0, key)
                text = f"{self.keys.program} does not train the multi-token prediction of {entry}"
                self.assume(text, key)
            return
        if not self.faulty(key):
            allowed = "a name that `flopcast catalog models` lists, with or without its owner"
            unknown = "the catalogue has no model with this name, and flopcast downloads nothing"
            given = name and (written is None or self.has(key))
            because = unknown if given else "flopcast needs a model for a prediction"
            fix = "download the model's config.json and add --model config.json, or add --model NAME"
            if near := misspelt(name, FLAVOURS, catalog.names("models")):
                fix = f"did you mean {near}? If not, {fix}"
            self.fault(key, allowed, because, fix, "" if given else MISSING)

    def place(self, words: tuple[str, ...], *keys: str) -> None:
        """Add placements to those of the plan; a kind of state that already has a place keeps it.

        Parameters
        ----------
        words : placements, such as "optimizer:host:0.5"
        keys : the keys that state the placements

        Examples
        --------
        >>> reader = JobReader(Document("a.yaml", {}, {}), Keys(program="A trainer"))
        >>> reader.place(("optimizer:nvme",))
        >>> reader.place(("optimizer:host", "activations:host"))
        >>> reader.part("plan")["offload"]
        'optimizer:nvme,activations:host'
        """
        held = self._placed()
        added = [word for word in words if not self.has_place(word.partition(":")[0])]
        if added:
            self.put(("plan", "offload"), ",".join((*held, *added)), *(() if held else keys))

    def place_if(self, key: str, words: tuple[str, ...]) -> None:
        """Add placements to those of the plan if a switch is on."""
        if self.flag(key):
            self.place(words, key)

    def has_place(self, kind: str) -> bool:
        """Return whether the plan places a kind of state, such as "optimizer", outside the devices."""
        return any(word.partition(":")[0] == kind for word in self._placed())

    def _placed(self) -> list[str]:
        return [word for word in str(self.part("plan").get("offload", "")).split(",") if word]

    def put_whole_batch(
        self, micro: tuple[str, int], whole: tuple[str, int], replicas: int, unit: str, sequences: int = 1
    ) -> None:
        """Put the micro-batch, and the batch of all replicas that it divides, into the plan.

        Parameters
        ----------
        micro, whole : each a key and its default
        replicas : number of data-parallel ranks
        unit : the unit of the file: "samples" or "sequences"
        sequences : number of sequences in each unit
        """
        (micro_key, usual_micro), (key, usual) = micro, whole
        each, total = self.count(micro_key, usual_micro), self.count(key, usual)
        share = each * replicas
        if total % share:
            counted = f"{each} {unit if each > 1 else unit[:-1]}"
            because = f"each of {replicas} replicas runs whole micro-batches of {counted}"
            fix = f"write {nearest_multiples(total, share)}{self.other_ranks}"
            self.fault(key, f"a multiple of {share}", because, fix)
        self.put(("plan", "micro_batch"), sequences * each, micro_key)
        self.put(("plan", "global_batch"), sequences * total, key)

    def filled_micro_batch(self, tokens: tuple[str, int], length: int, share: int, ranks: int = 1) -> int:
        """Return the number of sequences that fill a micro-batch up to a limit on tokens.

        The number divides the share of a replica.

        Parameters
        ----------
        tokens : the key of the limit per device, and its value
        length : tokens of a sequence, which `ranks` devices hold together
        share : number of sequences of a replica
        """
        key, most = self.first(tokens[0]), tokens[1] * ranks
        if most < length:
            least = -(-length // ranks)
            because = f"a micro-batch holds at least one sequence of {length} tokens"
            self.fault(key, f"at least {least}", because, f"write {key}: {least}")
            return 1
        number = next((size for size in range(min(most // length, share), 0, -1) if share % size == 0), 1)
        text = f"each micro-batch has {number} sequences of up to {length} tokens, at most {most} in all"
        self.assume(text, key)
        return number

    def note_lengths(self, key: str, packed: bool) -> None:
        """Add a note on how sequences are counted, because the file does not state their lengths."""
        padded = "all sequences are predicted with the length of the longest one, as if they were padded"
        self.assume("each packed sequence is predicted as one document" if packed else padded, key)

    def names_all_linears(self, key: str, *words: object) -> bool:
        """Return whether adapters apply to all linear layers: the key is missing or names them all."""
        return self.raw(key) in (None, "all-linear", ["all-linear"], *words)

    def linears(self, key: str, named: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
        """Return the linear layers with adapters; report unknown layers, and a file that names none.

        `named` maps names in the file to linear layers, and to "" if they are not among the `known` ones.
        """
        key = self.first(key)
        for name, linear in named.items():
            if not linear:
                every = self.keys.words.get("all_linears", {"all-linear": ""})
                free = [each for each in (*known, *every) if each not in named]
                near = nearest(name, free, len(free), least_ratio=0.8)
                near = [each for each in free if each in near and len(each) == len(near[0])]
                near = near or [each for each in free if known.get(each) == meant_linear(name)]
                fix = f"write {near[0]} in place of {name}" if near else f"remove {name}"
                self.fault(key, ", ".join(known), f"adapters of {name} are not supported yet", fix)
        targets = list(dict.fromkeys(filter(None, named.values())))
        targets = [next(iter(known), "")] if self.faulty(key) and not targets else targets
        if not targets and not self.faulty(key):
            because, fix = "only listed linear layers get adapters", f"add {key}: [{next(iter(known), '')}]"
            fault = "names no linear layer" if self.has(key) else MISSING
            self.fault(key, ", ".join(known), because, fix, fault)
        return targets

    def put_adapters(
        self, targets: list[str], key: str, rank: tuple[str, int], dropout: tuple[str, float]
    ) -> None:
        """Put low-rank adapters into the model; `rank` and `dropout` are keys and their defaults."""
        self.put(("model", "adapters", "rank"), self.count(*rank), rank[0])
        self.put(("model", "adapters", "targets"), targets, key)
        if share := self.fraction(*dropout):
            self.put(("model", "adapters", "dropout"), share, dropout[0])

    def write_scores(self, *keys: str) -> None:
        """Make attention write its scores to memory, whatever the stack is."""
        named = stack if isinstance(stack := self.data["stack"], dict) else {"base": stack}
        kernel = {"attention_kernel": "materialised", "attention_generation": "newest"}
        self.put(("stack",), named | kernel, *keys)

    def note_pairs(self, *keys: str) -> None:
        """Note that a sample is a pair of sequences."""
        given = next((key for key in keys if self.has(key)), "")
        self.assume("a sample consists of two sequences, the chosen and the rejected one", given)

    def put_reference(self, *keys: str, passes: int = 1, own: bool = False) -> None:
        """Put a frozen reference into the model: with its `own` weights, or those below the adapters.

        Call this function after the adapters were read.
        """
        kind = "shared" if "adapters" in self.part("model") and not own else "separate"
        self.put(("model", "reference"), kind, *keys)
        if passes > 1:
            self.put(("model", "reference_passes"), passes, *keys)

    def put_score(self, key: str) -> None:
        """Put a head with a single output into the model, and note its pairs."""
        self.put(("model", "head"), "score", key)
        self.note_pairs(key)

    def put_preference(self, kind: str, *keys: str, own: bool = False) -> None:
        """Put the reference or the head of preference tuning into the model, after its adapters.

        Parameters
        ----------
        kind : "reward" (a reward model), "reference" (DPO), "alone" (ORPO and others without a reference),
            "kto", or "" for any other training
        own : whether the reference has weights of its own
        """
        if kind == "reward":
            self.put_score(*keys)
        if kind in ("reference", "alone"):
            self.note_pairs(*keys)
        if kind in ("reference", "kto"):
            self.put_reference(*keys, passes=KTO_PASSES if kind == "kto" else 1, own=own)

    def put_teacher(self, key: str, name: str) -> None:
        """Put a teacher of the catalogue into the model; report an unknown one."""
        entry = catalog.known("models", name) if name else None
        if entry is None:
            allowed = "a name that `flopcast catalog models` lists, with or without its owner"
            because = "flopcast needs the shape of the teacher to predict its time and memory"
            return self.fault(key, allowed, because, "write such a name, or describe the job by hand")
        self.put(("model", "teacher"), entry, key)
        self.assume(f"the teacher {name} is {entry} in the catalogue", key)

    def made(self) -> Document:
        """Return the job's document.

        Raises
        ------
        SpecError
            The file has faults, which are reported in its order; faults of the whole file come first.
        """
        if self.problems:
            raise SpecError(sorted(self.problems, key=lambda each: (line_in(each.where), each.field)))
        data = self.data | {"assumptions": self.assumptions}
        lines = {path: line for path, line in self.document.lines.items() if path == ()} | self.lines
        return Document(self.document.name, data, lines, self.places, self.names)
