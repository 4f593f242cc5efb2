"""Counts of models by PyTorch itself, and their graphs: how the files of `exported/` were made.

    PYTHONPATH=src python tests/graph/oracle.py FOLDER timm:resnet50 transformers:bert …

needs torch, timm, transformers and diffusers. It writes the graph of each model to FOLDER, and a line of
FOLDER/counts.csv with the parameters, the FLOP of a forward pass by torch.utils.flop_counter, and the bytes
that autograd saved, without weights. A graph is that of torch.export without stack traces, packed.
"""

import csv
import gzip
import json
import os
import signal
import sys
import traceback
import zipfile
from io import BytesIO
from pathlib import Path

KEPT = ("inputs", "outputs", "nodes", "tensor_values")
COLUMNS = ("model", "samples", "parameters", "forward_flop", "saved_bytes")
LONGEST_SECONDS = 240


def counts(torch, model, arguments):
    """Parameters, FLOP and saved bytes of a forward pass on fake tensors of a GPU.

    Models are told that they are exported, because some of them choose another path then.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_map_only
    from torch.utils.flop_counter import FlopCounterMode

    parameters = sum(each.numel() for each in model.parameters() if each.requires_grad)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = model.to_empty(device="cuda").train()
        given = tree_map_only(
            torch.Tensor, lambda each: torch.zeros(each.shape, dtype=each.dtype, device="cuda"), arguments
        )
        saved, counter = SavedBytes(model), FlopCounterMode(display=False, custom_mapping=of_experts(torch))
        kept = torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda tensor: tensor)
        torch.compiler._is_exporting_flag = torch.compiler._is_compiling_flag = True
        with attention_in_one_kernel(torch), torch.device("cuda"), counter, kept:
            model(**given)
    return parameters, counter.get_total_flops(), sum(each[0] for each in saved.found.values())


def of_experts(torch):
    """The FLOP of the product of experts that transformers registers; PyTorch's counter lacks it."""

    def flop(rows, weight, *_, out_shape=None, **__):
        return 2 * rows[0] * rows[1] * weight[-1]

    fallback = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return {fallback: flop} if fallback else {}


class SavedBytes:
    """The memory that autograd keeps, without weights: bytes, shape and dtype of each storage."""

    def __init__(self, model):
        self.weights = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}
        self.found, self.alive = {}, []

    def keep(self, tensor):
        """Note a tensor that autograd saves; it stays alive, so that no other gets its address."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.weights and storage._cdata not in self.found:
            self.found[storage._cdata] = int(storage.nbytes()), tuple(tensor.shape), str(tensor.dtype)
            self.alive.append(storage)
        return tensor


def attention_in_one_kernel(torch):
    """Attention by the kernels that PyTorch runs on a GPU; without one it chooses chains of products."""
    from torch.overrides import TorchFunctionMode

    flash = torch.ops.aten._scaled_dot_product_flash_attention
    masked = torch.ops.aten._scaled_dot_product_efficient_attention

    class OneKernel(TorchFunctionMode):
        def __torch_function__(self, function, types, given=(), named=None):
            if function is torch.nn.functional.scaled_dot_product_attention:
                return self.attention(*given, **(named or {}))
            return function(*given, **(named or {}))

        def attention(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **others):
            if others.get("enable_gqa") and attn_mask is not None:
                times = query.shape[-3] // key.shape[-3]
                key, value = (each.repeat_interleave(times, -3) for each in (key, value))
            lacks = 4 - query.dim()
            query, key, value = (each[(None,) * lacks] for each in (query, key, value))
            if attn_mask is None and query.shape[-1] == value.shape[-1]:
                result = flash(query, key, value, dropout_p, is_causal)[0]
            else:
                if attn_mask is not None:
                    shape = (*query.shape[:-1], key.shape[-2])
                    attn_mask = attn_mask.to(query.dtype).expand(shape)
                result = masked(query, key, value, attn_mask, True, dropout_p, is_causal)[0]
            return result[(0,) * lacks]

    return OneKernel()


def graph_of(torch, model, arguments):
    """The packed graph of an export."""
    file = BytesIO()
    torch.export.save(torch.export.export(model, (), arguments, strict=False), file)
    with zipfile.ZipFile(file) as archive:
        (entry,) = (name for name in archive.namelist() if name.endswith("models/model.json"))
        program = json.loads(archive.read(entry))
    module = program["graph_module"]
    shorten(module["graph"])
    graph = {key: module["graph"][key] for key in KEPT}
    signature = {"input_specs": module["signature"]["input_specs"]}
    short = {"graph_module": {"graph": graph, "signature": signature}, "torch_version": torch.__version__}
    return gzip.compress(json.dumps(short, separators=(",", ":")).encode(), 9, mtime=0)


def shorten(graph):
    """Take out what no reader needs."""
    for node in graph["nodes"]:
        for key in ("metadata", "name", "is_hop_single_tensor_return"):
            node.pop(key, None)
        for each in node["inputs"]:
            if "as_graph" in each["arg"]:
                shorten(each["arg"]["as_graph"]["graph"])
    for tensor in graph["tensor_values"].values():
        for key in ("device", "layout", "storage_offset"):
            tensor.pop(key, None)
        if tensor["requires_grad"]:
            tensor.pop("requires_grad")


def measure(torch, folder, name):
    """Write the graph of a model, and its counts as a line of the table."""
    from oracle_models import example

    with torch.device("meta"):
        model, arguments = example(torch, name)
        graph = graph_of(torch, model, arguments)
        model, arguments = example(torch, name)  # an export leaves marks in a model
    first = next(each for each in arguments.values() if isinstance(each, torch.Tensor))
    row = (name, len(first), *counts(torch, model, arguments))
    (folder / f"{name.replace(':', '.')}.json.gz").write_bytes(graph)
    with (folder / "counts.csv").open("a", newline="") as table:
        csv.writer(table, lineterminator="\n").writerow(row)
    return row


def main(folder, names):
    """Measure each model in a process of its own, so that a failure ends only that one."""
    import diffusers
    import timm
    import torch
    import transformers

    print(torch.__version__, timm.__version__, transformers.__version__, diffusers.__version__)
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    table = folder / "counts.csv"
    if not table.exists():
        table.write_text(",".join(COLUMNS) + "\n")
    done = {line.partition(",")[0] for line in table.read_text().splitlines()}
    for name in names:
        if name in done:
            continue
        if not (child := os.fork()):
            signal.alarm(LONGEST_SECONDS)
            try:
                print(*measure(torch, folder, name), flush=True)
            except BaseException as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                first = str(error).strip().partition("\n")[0][:300]
                print(
                    f"{name}: {type(error).__name__}: {first} ({place.filename}:{place.lineno})", flush=True
                )
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
