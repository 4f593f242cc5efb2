"""Operator graphs that are written down as a sequence of calls, as a model's code is."""

from itertools import pairwise

from graph_cases import graph_of, node, tensor

from flopcast.records import replace


class Builder:
    """Collects the tensors and operators of a graph; activations have one format, weights are in fp32."""

    def __init__(self, dtype="fp32"):
        self.dtype, self.tensors, self.nodes, self.inputs = dtype, [], [], []

    def input(self, name, *shape, dtype=None):
        """An input of the graph."""
        self.tensors.append(tensor(name, *shape, dtype=dtype or self.dtype))
        self.inputs.append(name)
        return name

    def weight(self, *shape, trained=True, dtype="fp32"):
        """A parameter."""
        weight = tensor(f"w{len(self.tensors)}", *shape, parameter=True, dtype=dtype)
        self.tensors.append(replace(weight, is_trained=trained))
        return weight.name

    def run(self, operator, inputs, *shape, dtype=None, **attributes):
        """The output of an operator that reads these tensors."""
        name = f"t{len(self.tensors)}"
        self.tensors.append(tensor(name, *shape, dtype=dtype or self.dtype))
        self.nodes.append(node(operator, inputs, name, **attributes))
        return name

    def layers(self, x, rows, *widths, activation="relu"):
        """Linear layers of these widths, an activation after each."""
        for depth, width in pairwise(widths):
            x = self.run("linear", f"{x} {self.weight(width, depth)} {self.weight(width)}", rows, width)
            x = self.run(activation, x, rows, width)
        return x

    def graph(self, output, samples):
        """The graph; if activations have 16 bits, its tensors have the formats that they state."""
        found = graph_of(self.tensors, self.nodes, " ".join(self.inputs), output, samples)
        return replace(found, states_formats=self.dtype != "fp32")
