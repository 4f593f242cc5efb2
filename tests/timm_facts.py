"""Facts of timm's models, counted from their code: `python tests/timm_facts.py TABLES [FOLDER]`.

TABLES is the folder of timm's tables (data/graphs), which name models and sizes of images. The script
needs torch and timm, which tests do not; it writes src/flopcast/catalog/graphs/timm.json.gz. A model runs
once on fake tensors under automatic mixed precision: nothing is computed, no weight is loaded. Counts of
each model are kept in FOLDER, so that a run that was broken off goes on. 1,800 models take 45 minutes.

A tensor is one of samples if it depends on the input; its size is divided by the batch. Views run no
kernel. Operators that a compiler joins are those that pass over the same elements, one behind the other:
casts, elementwise operators and copies, with one reduction among them at most.
"""

import csv
import gzip
import json
import logging
import math
import sys
import warnings
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import timm
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PLACE = Path(__file__).resolve().parents[1] / "src/flopcast/catalog/graphs/timm.json.gz"
BATCH = 2
KINDS = ("convolution", "product", "attention", "pass", "fused")
VIEWS = """
    view t _unsafe_view permute expand transpose slice select unbind unsqueeze split_with_sizes detach
    split alias unfold squeeze as_strided as_strided_ _reshape_alias view_as_real view_as_complex diagonal
    chunk narrow real imag unsafe_chunk unsafe_split lift_fresh detach_
    """.split()  # noqa: SIM905  names in a row are read more easily
JOINED = """
    add mul sub rsub div relu gelu silu sigmoid tanh hardswish hardsigmoid leaky_relu hardtanh clamp
    clamp_min clamp_max pow exp sqrt rsqrt neg cudnn_batch_norm native_batch_norm _to_copy clone copy elu
    mish where abs cos sin softplus log erf reciprocal maximum minimum masked_fill eq ne lt gt bitwise_not
    logical_not threshold prelu cat stack constant_pad_nd roll repeat index lerp addcmul square fill zeros
    full arange ones flip
    """.split()  # noqa: SIM905
REDUCTIONS = """
    native_layer_norm native_group_norm _softmax mean sum amax amin linalg_vector_norm var_mean var std
    _fused_rms_norm max min norm argmax std_mean _log_softmax cumsum
    """.split()  # noqa: SIM905
NORMS = """
    native_layer_norm native_group_norm cudnn_batch_norm native_batch_norm _fused_rms_norm
    max_pool2d_with_indices
    """.split()  # noqa: SIM905


class Recorder(TorchDispatchMode):
    """Lists the operators that run: name, inputs, outputs, options. Tensors are numbered."""

    def __init__(self, sample):
        super().__init__()
        self.nodes, self.kept, self.numbers = [], [], {}
        self.of_samples = {self.number(sample)}
        self.paused = False

    def number(self, tensor):
        """Return the number of a tensor, which is kept so that its id stays its own."""
        if id(tensor) not in self.numbers:
            self.numbers[id(tensor)] = len(self.kept)
            self.kept.append(tensor)
        return self.numbers[id(tensor)]

    def described(self, tensor):
        """Return number, shape, bytes of an element, whether it is of samples, and the order in memory."""
        order = "planes" if tensor.is_contiguous() else "strided"
        if (
            order == "strided"
            and tensor.dim() == 4
            and tensor.is_contiguous(memory_format=torch.channels_last)
        ):
            order = "pixels"
        number = self.number(tensor)
        return number, list(tensor.shape), tensor.element_size(), number in self.of_samples, order

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = str(function)
        if not self.paused and not name.startswith("prim"):
            options = None
            if ".convolution" in name:
                options = {"stride": args[3][0], "transposed": bool(args[6]), "groups": args[8]}
            self.add(name.split(".")[1], (args, kwargs), out, options)
        return out

    def add(self, name, given, out, options=None):
        """Record an operator."""
        inputs = [value for value in tree_leaves(given) if isinstance(value, torch.Tensor)]
        outputs = [value for value in tree_leaves(out) if isinstance(value, torch.Tensor)]
        if not outputs:
            return
        read = [self.described(tensor) for tensor in inputs]
        if any(tensor[3] for tensor in read):
            self.of_samples.update(self.number(tensor) for tensor in outputs)
        memory = {id(tensor.untyped_storage()): self.number(tensor) for tensor in inputs}
        written = [
            (*self.described(tensor), memory.get(id(tensor.untyped_storage()), -1)) for tensor in outputs
        ]
        self.nodes.append((name, read, written, options))


class Attention(TorchFunctionMode):
    """Records scaled_dot_product_attention as one operator."""

    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is not functional.scaled_dot_product_attention:
            return function(*args, **kwargs)
        query, key, value = args[:3]
        mask = kwargs.get("attn_mask", args[3] if len(args) > 3 else None)
        self.recorder.paused = True
        dtype = torch.get_autocast_dtype("cuda")
        out = torch.empty(*query.shape[:-1], value.shape[-1], dtype=dtype, device=query.device)
        if query.dim() == 4:
            out = out.transpose(1, 2).contiguous().transpose(1, 2)
        self.recorder.paused = False
        self.recorder.add("attention", ((query, key, value), mask), out, {"masked": mask is not None})
        return out


@contextmanager
def mixed_precision():
    """Turn autocast on for a device that is not there, which torch.autocast would refuse."""
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.float16)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        torch.set_autocast_enabled("cuda", False)


def recorded(name, size):
    """Return the operators of a model on images of a size, its parameters, and its number of weights."""
    with torch.device("meta"):
        model = timm.create_model(name)
        if model.default_cfg.get("input_size", (3, size, size))[-1] != size:
            with suppress(Exception):  # of models whose size is fixed by their input alone
                model = timm.create_model(name, img_size=size)
    model.eval()
    with FakeTensorMode(allow_non_fake_inputs=True):
        for module in model.modules():
            for kind in (module._parameters, module._buffers):
                for key, tensor in kind.items():
                    if tensor is not None:
                        fake = torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")
                        kind[key] = torch.nn.Parameter(fake) if kind is module._parameters else fake
        sample = torch.empty(BATCH, 3, size, size, device="cuda")
        recorder = Recorder(sample)
        with mixed_precision(), torch.no_grad(), Attention(recorder), recorder:
            model(sample)
        used = [tensor for tensor in model.parameters() if id(tensor) in recorder.numbers]
        return recorder.nodes, sum(tensor.numel() for tensor in model.parameters()), len(used)


def plain(value):
    """Return a whole number as an int, and others with three decimals."""
    return int(value) if abs(value - round(value)) < 1e-9 else round(value, 3)


def sizes(tensors):
    """Return elements and bytes of a sample, and bytes of tensors that are not of samples."""
    elements = size_bytes = fixed = fixed_bytes = 0
    for _, shape, width, of_samples, *_ in tensors:
        count = math.prod(shape)
        if of_samples:
            elements, size_bytes = elements + count / BATCH, size_bytes + count * width / BATCH
        else:
            fixed, fixed_bytes = fixed + count, fixed_bytes + count * width
    return elements, size_bytes, fixed, fixed_bytes


def convolution(read, written, options):
    """Return the columns of a convolution; one over a sequence has images of height 1."""
    images, weight = read[0], read[1]
    spatial = [(1, *shape[2:])[-2:] for shape in (images[1], written[0][1], weight[1])]
    (in_height, in_width), (out_height, out_width), window = spatial
    count = images[1][0] / BATCH if images[3] else images[1][0]
    return (
        *(
            plain(count),
            images[1][1],
            written[0][1][1],
            in_height,
            in_width,
            out_height,
            out_width,
            *window,
        ),
        *(options["stride"], options["groups"], int(images[4] == "pixels"), int(options["transposed"])),
        *(int(images[3]), int(len(read) > 2)),
    )


def product(name, read):
    """Return the columns of a product of matrices."""
    left, right = read[-2:]
    batch = left[1][0] if len(left[1]) == 3 else 1
    rows, depth, columns = left[1][-2], left[1][-1], right[1][-1]
    if left[3] and len(left[1]) == 2:
        return 1, 1, plain(rows / BATCH), columns, depth
    if left[3] and not right[3] and batch % BATCH:
        return 1, batch, plain(rows / BATCH), columns, depth
    if (left[3] or right[3]) and len(left[1]) == 3:
        return 2, plain(batch / BATCH), rows, columns, depth
    if right[3]:
        return 3, 1, rows, plain(columns / BATCH), depth
    return 0, batch, rows, columns, depth


def attention(read, options):
    """Return the columns of attention."""
    query, key, value = (tensor[1] for tensor in read[:3])
    heads = plain(math.prod(query[:-2]) / BATCH)
    return heads, query[-2], key[-2], query[-1], value[-1], int(options["masked"])


def one_pass(name, read, written):
    """Return the columns of an operator that moves memory, behind its name."""
    if name in NORMS:
        written = written[:1]
    if name == "copy":
        read = read[1:]
    elements, read_bytes, _, fixed_bytes = sizes(read)
    out, written_bytes, _, fixed_out_bytes = sizes(written)
    if name == "index":  # reads what it writes
        elements, read_bytes = min(elements, out), min(read_bytes, written_bytes)
    row = 1
    if name in ("native_layer_norm", "_softmax", "_fused_rms_norm"):
        row = read[0][1][-1]
    elif name == "native_group_norm":
        row = math.prod(read[0][1][1:])
    elif name in REDUCTIONS and out:
        row = max(1, round(elements / out))
    least = math.prod(written[0][1]) / 2
    strided = any(tensor[4] == "strided" for tensor in read if math.prod(tensor[1]) >= least)
    moved = (elements, out, read_bytes, written_bytes, fixed_bytes + fixed_out_bytes)
    return (name, *map(plain, moved), row, int(strided))


class Joined:
    """Operators that a compiler joins: what they read and write outside, and their most elements."""

    def __init__(self, number, elements):
        self.number, self.elements = number, elements
        self.reduces = self.ends = False
        self.read, self.written = {}, {}
        self.operators, self.row = 0, 1

    def takes(self, elements, reduces):
        """Return whether an operator over so many elements can join."""
        if reduces and self.reduces and self.ends:
            return False
        rows = self.elements % max(elements, 1) == 0 and elements <= self.elements
        return elements == self.elements or (rows and not reduces and self.reduces)

    def columns(self):
        """Return the columns of the joined kernel."""
        read, _, fixed, _ = sizes(self.read.values())
        written = sizes(self.written.values())[0]
        row = self.row if self.reduces else 1
        return int(self.reduces), plain(read), plain(written), plain(fixed), row, self.operators


class Kernels:
    """Counts kernels of a model: one for each operator, and joined by a compiler."""

    def __init__(self):
        self.eager, self.fused = Counter(), Counter()
        self.origin, self.owner, self.groups = {}, {}, []

    def root(self, tensor):
        """Return the number of the tensor whose memory a tensor is a view of."""
        number = tensor[0]
        while number in self.origin:
            number = self.origin[number]
        return number

    def add(self, name, read, written, options):
        """Count an operator."""
        if name in VIEWS:
            self.origin.update({out[0]: out[-1] for out in written if out[-1] not in (-1, out[0])})
            return
        kernel = kernel_of(name, read, written, options)
        self.eager[kernel] += 1
        joins = kernel[0] == "pass" and (name in JOINED or name in REDUCTIONS)
        of_samples = any(tensor[3] for tensor in read)
        group = self.group_of(name, read, written, kernel[1]) if joins and of_samples else None
        for tensor in read:
            self.read(tensor, group)
        if group is None and (of_samples or not joins):
            self.fused[kernel] += 1
        for tensor in written:
            self.owner.pop(self.root(tensor), None)
            if group is not None:
                self.owner[self.root(tensor)] = group

    def group_of(self, name, read, written, columns):
        """Return the group that an operator joins, or a new one."""
        reduces = name in REDUCTIONS
        elements = max(math.prod(tensor[1]) for tensor in (*read, *written) if tensor[3])
        known = [self.owner.get(self.root(tensor)) for tensor in read if tensor[3]]
        group = max(filter(None, known), key=lambda each: each.number, default=None)
        if group is None or not group.takes(elements, reduces):
            group = Joined(len(self.groups), elements)
            self.groups.append(group)
        else:
            group.ends |= group.reduces and not reduces
        group.operators += 1
        if reduces:
            group.reduces, group.row = True, max(group.row, columns[6])
        return group

    def read(self, tensor, group):
        """Note that an operator of a group, or of none, reads a tensor."""
        producer = self.owner.get(self.root(tensor))
        if producer is group:
            return
        if group is not None:
            group.read[self.root(tensor)] = tensor
        if producer is not None:
            producer.written.setdefault(self.root(tensor), tensor)


def kernel_of(name, read, written, options):
    """Return the kind and the columns of an operator."""
    if name == "convolution":
        return "convolution", convolution(read, written, options)
    if name in ("mm", "addmm", "bmm", "baddbmm"):
        return "product", product(name, read)
    if name == "attention":
        return "attention", attention(read, options)
    return "pass", one_pass(name, read, written)


def counted(nodes):
    """Return the kernels of a model, one for each operator and joined by a compiler, with their counts."""
    kernels = Kernels()
    for name, *node in nodes:
        kernels.add(name if name in VIEWS else name.rstrip("_"), *node)
    kernels.fused.update(("fused", group.columns()) for group in kernels.groups)
    return list(kernels.eager.items()), list(kernels.fused.items())


def facts_of(name, size):
    """Return what a file of counts holds of one model."""
    nodes, parameters, weights = recorded(name, size)
    eager, fused = counted(nodes)
    return {"counts": [parameters, weights], "eager": eager, "fused": fused}


def packed(models):
    """Return the facts of all models as one file's data: distinct operators once, models by position."""
    rows = {kind: {} for kind in KINDS}
    operators = {}

    def row_of(kind, columns):
        if kind == "pass":
            operators.setdefault(columns[0], len(operators))
            columns = (operators[columns[0]], *columns[1:])
        return rows[kind].setdefault(tuple(columns), len(rows[kind]))

    found = {}
    for name, facts in sorted(models.items()):
        found[name] = [
            [(kind, row_of(kind, columns), count) for (kind, columns), count in facts[way]]
            for way in ("eager", "fused")
        ]
    first, position = {}, 0
    for kind in KINDS:
        first[kind], position = position, position + len(rows[kind])
    data = {
        "format_version": 1,
        "source": f"timm {timm.__version__} (Apache-2.0), the forward pass under autocast on fake tensors",
        "operators": list(operators),
        **{kind: [list(row) for row in rows[kind]] for kind in KINDS},
    }
    flat = {
        name: [
            models[name]["counts"],
            *(
                [value for kind, row, count in sorted(way) for value in (first[kind] + row, count)]
                for way in ways
            ),
        ]
        for name, ways in found.items()
    }
    return data | {"models": flat}


def measured_models(tables):
    """Return the names and sizes of images in tables of timm."""
    found = {}
    for path in sorted(tables.glob("timm_*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                size = row.get("infer_img_size") or row["train_img_size"]
                found[row["model"], int(size)] = None
    return list(found)


def main(tables, folder):
    """Count all models that the folder does not hold yet, and write the file."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    models = {}
    for name, size in measured_models(tables):
        place = folder / f"{name}@{size}.json"
        if not place.is_file():
            try:
                found = facts_of(name, size)
            except Exception as error:
                found = {"error": repr(error)[:200]}
            place.write_text(json.dumps(found), encoding="utf-8")
        found = json.loads(place.read_text(encoding="utf-8"))
        if "error" in found:
            sys.stdout.write(f"{name}@{size}: {found['error']}\n")
        else:
            models[f"{name}@{size}"] = found
    text = json.dumps(packed(models), separators=(",", ":"))
    PLACE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    sys.stdout.write(f"{len(models)} models: compare with git diff --stat\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "timm_counts"))
