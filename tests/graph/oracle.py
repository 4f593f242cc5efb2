"""Counts of models by PyTorch itself, and their graphs: how the files of `exported/` were made.

    python tests/graph/oracle.py timm:resnet50 transformers:clip …

needs torch, timm and transformers; nothing else in the tests does. A line of exported/counts.csv has the
parameters, the FLOP of a forward pass by torch.utils.flop_counter, and the bytes that autograd saved,
without weights. A graph is that of torch.export without stack traces, packed.
"""

import csv
import gzip
import json
import sys
import zipfile
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).with_name("exported")
KEPT = ("inputs", "outputs", "nodes", "tensor_values")


def example(torch, name):
    """A model on the device "meta", without dropout, and the arguments of a call."""
    library, _, word = name.partition(":")
    images = torch.zeros(2, 3, 224, 224)
    if library == "timm":
        import timm

        model = timm.create_model(word)
        return model, (torch.zeros(2, *model.default_cfg["input_size"]),)
    import transformers

    if word == "clip":
        return transformers.CLIPVisionModel(transformers.CLIPVisionConfig()), (images,)
    if word == "bert":
        config = transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        return transformers.BertModel(config), (torch.zeros(2, 256, dtype=torch.long),)
    raise SystemExit(f"no example of {name}")


def counts(torch, model, arguments):
    """Parameters, FLOP and saved bytes of a forward pass on fake tensors of a CPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

    saved, alive = {}, []
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = model.to_empty(device="cpu").train()
        given = [torch.zeros(each.shape, dtype=each.dtype) for each in arguments]
        weights = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}

        def keep(tensor):
            storage = tensor.untyped_storage()
            if storage._cdata not in weights and storage._cdata not in saved:
                saved[storage._cdata] = int(storage.nbytes())
                alive.append(storage)
            return tensor

        def attention(query, key, value, *_, **__):
            return sdpa_flop_count(query, key, value)

        kernels = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention}
        counter = FlopCounterMode(display=False, custom_mapping=kernels)
        with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(*given)
    parameters = sum(each.numel() for each in model.parameters())
    return parameters, counter.get_total_flops(), sum(saved.values())


def graph_of(torch, model, arguments):
    """The packed graph of an export."""
    file = BytesIO()
    torch.export.save(torch.export.export(model.train(), arguments, strict=False), file)
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
        for key in ("requires_grad", "device", "layout", "storage_offset"):
            tensor.pop(key, None)


def main(names):
    """Write the graphs and their counts."""
    import torch

    rows = [("model", "samples", "parameters", "forward_flop", "saved_bytes")]
    for name in names:
        with torch.device("meta"):
            model, arguments = example(torch, name)
            file = HERE / f"{name.partition(':')[2]}.json.gz"
            file.write_bytes(graph_of(torch, model, arguments))
        rows.append((file.name.partition(".")[0], len(arguments[0]), *counts(torch, model, arguments)))
        sys.stderr.write(f"{rows[-1]}\n")
    with (HERE / "counts.csv").open("w", newline="") as table:
        csv.writer(table).writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
