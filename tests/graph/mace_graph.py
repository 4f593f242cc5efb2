"""MACE with products of Luo et al. (arXiv:2401.10216) over plane waves, or over a grid of the sphere.

The sizes are those of the training of arXiv:2506.13523 (atomicarchitects/PriceofFreedom): two interactions
with 256 channels, hidden degrees up to 2, harmonics up to degree 3 and products of three factors. Small
kernels on edges, such as the recursion of spherical harmonics, are merged into a few.
"""

from graph_builder import Builder

CHANNELS, KINDS, DEGREES, HIDDEN = 256, 4, range(4), 2
COMPLEX = {"dtype": "complex64"}


def wide(degree):
    """Components of a harmonic of this degree."""
    return 2 * degree + 1


class Mace(Builder):
    """Builds the graph for a batch of molecules; weights are frozen, positions have a gradient."""

    def __init__(self, atoms, edges, on_grid):
        super().__init__()
        self.atoms, self.edges, self.on_grid = atoms, edges, on_grid

    def times(self, first, second, *shape, **more):
        return self.run("multiply", f"{first} {second}", *shape, **more)

    def weight(self, *shape, trained=False, **more):
        return super().weight(*shape, trained=trained, **more)

    def linear(self, x, rows, depth, width):
        return self.run("matmul", f"{x} {self.weight(depth, width)}", rows, width)

    def linear_by_degree(self, x, depths):
        """A linear layer for each degree, over all components."""
        parts = []
        for degree, depth in enumerate(depths):
            rows = self.atoms * wide(degree)
            parts.append(self.linear(self.run("copy", x, rows, depth), rows, depth, CHANNELS))
        shape = (self.atoms, CHANNELS, len(depths) ** 2)
        return self.run("concatenate", " ".join(parts), *shape) if len(depths) > 1 else parts[0]

    def interaction(self, x, highest, harmonics, radial):
        """Messages of neighbours: their features times harmonics and weights of the distance."""
        x = self.linear_by_degree(x, [CHANNELS] * (highest + 1))
        paths = [
            (left, right, out)
            for left in range(highest + 1)
            for right in DEGREES
            for out in DEGREES
            if abs(left - right) <= out <= left + right and (left + right + out) % 2 == 0
        ]
        weights = self.layers(radial, self.edges, 8, 64, 64, 64, CHANNELS * len(paths), activation="silu")
        sent = self.run("gather", f"{x} senders", self.edges, CHANNELS * (highest + 1) ** 2)
        outer, messages = {}, []
        for left, right, out in paths:
            size = wide(left) * wide(right)
            if (left, right) not in outer:
                outer[left, right] = self.times(sent, harmonics[right], self.edges, CHANNELS, size)
            found = outer[left, right]
            if left and right:
                table = self.weight(size, wide(out))
                found = self.run("matmul", f"{found} {table}", self.edges, CHANNELS, wide(out))
            messages.append(self.times(found, weights, self.edges, CHANNELS, wide(out)))
        total = CHANNELS * sum(wide(out) for *_, out in paths)
        joined = self.run("concatenate", " ".join(messages), self.edges, total)
        zeros = self.run("constant", "", self.atoms, total)
        summed = self.run("scatter", f"{zeros} receivers {joined}", self.atoms, total)
        depths = [CHANNELS * sum(out == degree for *_, out in paths) for degree in DEGREES]
        return self.linear_by_degree(summed, depths)

    def over_waves(self, x):
        """The second and the third power of a function, by the Fourier transforms of its coefficients."""
        shape = (self.atoms, CHANNELS)

        def to_waves(x, degree):
            side = wide(degree)
            table = self.weight(degree + 1, side, side, 2, **COMPLEX)
            terms = self.times(x, table, *shape, degree + 1, side, side, 2, **COMPLEX)
            both = self.run("sum", terms, *shape, side, side, 2, **COMPLEX)
            flipped = self.run("copy", both, *shape, side, side, **COMPLEX)
            return self.run("add", f"{both} {flipped}", *shape, side, side, **COMPLEX)

        def product(first, second, side):
            padded = [self.run("pad", x, *shape, side, side, **COMPLEX) for x in (first, second)]
            left, right = (self.run("fourier", x, *shape, side, side, **COMPLEX) for x in padded)
            both = self.times(left, right, *shape, side, side, **COMPLEX)
            return self.run("fourier", both, *shape, side, side, **COMPLEX)

        def to_harmonics(x, degree):
            side, parts = wide(degree), []
            for part in (x, self.run("copy", x, *shape, side, side, **COMPLEX)):  # the copy is reversed
                table = self.weight(degree + 1, side, side, **COMPLEX)
                terms = self.times(part, table, *shape, degree + 1, side, side, **COMPLEX)
                parts.append(self.run("sum", terms, *shape, degree + 1, side, **COMPLEX))
            return self.run("add", " ".join(parts), *shape, degree + 1, side, **COMPLEX)

        one = to_waves(self.run("pad", x, *shape, 4, 7), 3)
        two = product(one, one, wide(6))
        return [to_harmonics(two, 6), to_harmonics(product(one, two, wide(9)), 9)]

    def over_grid(self, x):
        """The same powers, by values at places of a grid of the sphere."""
        shape, powers = (self.atoms, CHANNELS), [x]
        for power in (1, 2):
            degree = 3 * (power + 1)
            rows, columns = 2 * (degree + 1), 2 * degree + 1

            def on_grid(x, degree, rows=rows, columns=columns):
                size = wide(degree) * rows
                table = self.weight((degree + 1) ** 2, size)
                x = self.run(
                    "copy", self.run("matmul", f"{x} {table}", *shape, size), *shape, rows, wide(degree)
                )
                return self.run(
                    "matmul", f"{x} {self.weight(wide(degree), columns)}", *shape, rows, columns
                )

            values = self.times(on_grid(powers[-1], 3 * power), on_grid(x, 3), *shape, rows, columns)
            table = self.weight(columns, wide(degree))
            found = self.run("matmul", f"{values} {table}", *shape, rows, wide(degree))
            found = self.run("copy", found, *shape, rows * wide(degree))
            table = self.weight(rows * wide(degree), (degree + 1) ** 2)
            powers.append(self.run("matmul", f"{found} {table}", *shape, (degree + 1) ** 2))
        return powers[1:]

    def products(self, x, highest):
        """A weighted sum of the powers, and a linear layer for each degree."""
        shape = (self.atoms, CHANNELS, (highest + 1) ** 2)
        total = None
        for power in (x, *(self.over_grid(x) if self.on_grid else self.over_waves(x))):
            of_kinds = self.weight(KINDS, CHANNELS, highest + 1)
            weights = self.times("kinds", of_kinds, self.atoms, KINDS, CHANNELS, highest + 1)
            weights = self.run("sum", weights, self.atoms, CHANNELS, highest + 1)
            scaled = self.times(power, weights, *shape)
            total = scaled if total is None else self.run("add", f"{total} {scaled}", *shape)
        return self.linear_by_degree(total, [CHANNELS] * (highest + 1))

    def skip(self, x, components):
        """A linear layer for each kind of atom."""
        rows = self.atoms * components
        by_kind = self.times(x, "kinds", self.atoms, CHANNELS * components, KINDS)
        return self.linear(by_kind, rows, KINDS * CHANNELS, CHANNELS)

    def energy(self, molecules):
        """The energies of all molecules."""
        positions = self.input("positions", self.atoms, 3)
        self.input("kinds", self.atoms, KINDS)
        ends = [self.input(name, self.edges, dtype="int64") for name in ("senders", "receivers")]
        moved = self.times(positions, self.weight(1, trained=True), self.atoms, 3)
        both = " ".join(self.run("gather", f"{moved} {end}", self.edges, 3) for end in ends)
        vectors = self.run("subtract", both, self.edges, 3)
        lengths = self.run("norm", vectors, self.edges, 1)
        waves = self.run("sin", self.times(lengths, self.weight(8), self.edges, 8), self.edges, 8)
        radial = self.times(waves, lengths, self.edges, 8)
        harmonics = [self.run("divide", f"{vectors} {lengths}", self.edges, 1)]
        for degree in DEGREES[1:]:
            harmonics.append(self.times(vectors, harmonics[-1], self.edges, wide(degree)))
        x = self.linear("kinds", self.atoms, KINDS, CHANNELS)
        parts = self.products(self.interaction(x, 0, harmonics, radial), HIDDEN), self.skip(x, 1)
        x = self.run("add", " ".join(parts), self.atoms, CHANNELS * (HIDDEN + 1) ** 2)
        parts = self.products(self.interaction(x, HIDDEN, harmonics, radial), 0), self.skip(x, 1)
        y = self.run("add", " ".join(parts), self.atoms, CHANNELS)
        y = self.layers(y, self.atoms, CHANNELS, 16, 1, activation="silu")
        both = f"{self.linear(x, self.atoms, CHANNELS, 1)} {y}"
        return self.run("sum", self.run("add", both, self.atoms, 1), molecules)
