"""Random legacy kernels, as source text: what people write, in every spelling that the dialect has for it.

A kernel of ``maker(random)`` takes HBM tensors ``x0`` [24, 40] and ``x1`` [3, 16, 24] and returns one. It uses only
what :mod:`legacy_twin` has, too.
"""

X0, X1 = (24, 40), (3, 16, 24)


class Maker:
    """Makes one kernel; ``random`` decides."""

    def __init__(self, random):
        self.random, self.lines, self.depth = random, [], 1
        self.tiles = {}  # name -> (partitions, free axes, dtype), all written
        self.count = 0
        self.loop = None  # name and extent of the loop's variable
        self.outer = set()  # tiles from outside of the loop

    # -- small choices --------------------------------------------------------------------------------------------

    def pick(self, *choices):
        return self.random.choice(choices)

    def odds(self, part):
        return self.random.random() < part

    def line(self, text):
        self.lines.append("    " * self.depth + text)

    def name(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def dtype(self):
        return "nl.bfloat16" if self.odds(0.15) else "np.float32"

    def extent(self, most=8):
        return self.random.randint(1, most)

    # -- indices --------------------------------------------------------------------------------------------------

    def along(self, count, axis, ndim, start=0, step=1):
        """Return an index tensor: ``start + step · i`` along one axis."""
        keys = ", ".join(":" if at == axis else "None" for at in range(ndim))
        form = self.random.random()
        if form < 0.25 and step > 0:
            inner = f"nl.arange({start}, {start + step * count}, {step})"
            return f"{inner}[{keys}]"
        if form < 0.5 and ndim == 2:
            grid = f"nl.mgrid[0:{count}, 0:1]" if axis == 0 else f"nl.mgrid[0:1, 0:{count}]"
            inner = f"{grid}.{'px'[axis]}"
        else:
            inner = f"nl.arange({count})[{keys}]"
        if step != 1:
            inner = f"{step} * {inner}" if self.odds(0.5) else f"{inner} * {step}"
        return f"{inner} + {start}" if start or self.odds(0.2) else inner

    def place(self, count, extent):
        """Return the start and the step of ``count`` indices below ``extent``."""
        step = self.random.randint(1, max(1, (extent - 1) // max(1, count - 1))) if self.odds(0.4) else 1
        if count == 1:
            return self.random.randrange(extent), 1
        start = self.random.randint(0, extent - 1 - step * (count - 1))
        if self.odds(0.1):
            return start + step * (count - 1), -step
        return start, step

    def brackets(self, counts, extents, first=True):
        """Return brackets that select ``counts`` of ``extents``; the first axis from 0 unless ``first``."""
        places = [self.place(count, extent) for count, extent in zip(counts, extents, strict=True)]
        if first:
            places[0] = (0, 1)
        if self.odds(0.45):
            return ", ".join(
                self.along(count, axis, len(counts), *place)
                for axis, (count, place) in enumerate(zip(counts, places, strict=True))
            )
        texts = []
        for count, extent, (start, step) in zip(counts, extents, places, strict=True):
            if step < 0:
                start, step = start + step * (count - 1), -step
            if count == extent and self.odds(0.5):
                texts.append(":")
            elif step == 1 and self.odds(0.3):
                texts.append(f"nl.ds({start}, {count})")
            else:
                texts.append(f"{start}:{start + step * (count - 1) + 1}" + (f":{step}" if step > 1 else ""))
        return ", ".join(texts)

    def mask(self, counts):
        """Return a mask of a tile, box or not; it selects something."""
        ndim = len(counts)
        terms = []
        for axis, count in enumerate(counts):
            if self.odds(0.6):
                index = self.along(count, axis, ndim)
                low = self.random.randrange(count)
                terms.append(self.pick(f"({index} < {low + 1})", f"({index} >= {low})", f"({low} >= {index})"))
                terms = terms[:1] if len(terms) > 1 and self.odds(0.3) else terms
        if ndim == 2 and self.odds(0.3):
            one, other = self.along(counts[0], 0, 2), self.along(counts[1], 1, 2)
            forms = f"({one} >= {other})", f"({one} + {other} < {sum(counts) - 1})", f"({one} != {other})"
            terms.append(self.pick(*forms))
        return " & ".join(terms) or f"({self.along(counts[-1], ndim - 1, ndim)} < {counts[-1]})"

    def box(self, counts):
        """Return a mask that is a box, from each axis' beginning."""
        axis = self.random.randrange(len(counts))
        index = self.along(counts[axis], axis, len(counts))
        return f"({index} < {self.random.randint(1, counts[axis])})"

    # -- values ---------------------------------------------------------------------------------------------------

    def source(self, counts):
        """Return a view of an input, of a shape with two or three axes."""
        if len(counts) == 3:
            extents = (X1[1], X1[2])
            if counts[1] * counts[2] <= X1[2] and self.odds(0.5):
                rows, step = self.place(counts[0], X1[1])
                inner = [self.along(counts[0], 0, 3, rows, step), self.along(counts[1], 1, 3, 0, counts[2])]
                return f"x1[{self.random.randrange(3)}, {inner[0]}, {inner[1]} + nl.arange({counts[2]})[None, None, :]]"
            if counts[0] <= 3 and counts[1] <= 16 and counts[2] <= 24:
                return f"x1[{self.brackets(counts, X1, first=False)}]"
            rows, step = self.place(counts[0], extents[0])
            window = f"{self.along(counts[1], 1, 3)} + {self.along(counts[2], 2, 3)}"
            return f"x1[{self.random.randrange(3)}, {self.along(counts[0], 0, 3, rows, step)}, {window}]"
        if self.loop and self.odds(0.6) and counts[0] * self.loop[1] <= X0[0]:
            variable, _ = self.loop
            columns, step = self.place(counts[1], X0[1])
            ip, jf = f"nl.arange({counts[0]})[:, None]", self.along(counts[1], 1, 2, columns, step)
            if self.odds(0.5) or step < 0:
                return f"x0[{variable} * {counts[0]} + {ip}, {jf}]"
            columns = f"{columns}:{columns + step * (counts[1] - 1) + 1}:{step}"
            return f"x0[{variable} * {counts[0]}:({variable} + 1) * {counts[0]}, {columns}]"
        if self.odds(0.3):
            return f"x1[{self.random.randrange(3)}, {self.brackets(counts, X1[1:], first=False)}]"
        return f"x0[{self.brackets(counts, X0, first=False)}]"

    def tile(self, counts):
        """Return an operand of a shape: a view of a tile, or a load."""
        fitting = [
            name
            for name, (shape, _) in self.tiles.items()
            if len(shape) == len(counts) and all(own >= count for own, count in zip(shape, counts, strict=True))
        ]
        if fitting and self.odds(0.75):
            name = self.random.choice(fitting)
            shape = self.tiles[name][0]
            if shape == counts and self.odds(0.5):
                return self.pick(name, f"{name}[...]")
            return f"{name}[{self.brackets(counts, shape)}]"
        return f"nl.load({self.source(counts)}{', dtype=nl.bfloat16' if self.odds(0.1) else ''})"

    def column(self, rows):
        """Return a column: of a tile, or a reduction."""
        if self.odds(0.5):
            name = self.pick("sum", "max", "min")
            width = self.extent()
            return f"nl.{name}({self.tile((rows, width))}, axis={self.pick('1', '[1]', '(1,)')}, keepdims=True)"
        return self.tile((rows, 1))

    def value(self, counts, depth=2, mask=""):
        """Return an expression of a shape; ``mask`` goes to the outermost function."""
        suffix = f", mask={mask}" if mask else ""
        form = self.random.randrange(13)
        if depth == 0:
            return self.tile(counts) if not mask else f"nl.copy({self.tile(counts)}{suffix})"
        inner = lambda: self.value(counts, depth - 1)  # noqa: E731
        two = len(counts) == 2
        if form == 0:
            return f"nl.{self.pick('add', 'subtract', 'maximum', 'minimum')}({inner()}, {inner()}{suffix})"
        if form == 1 and not mask:
            return f"({inner()} {self.pick('+', '-')} {self.pick(inner(), '3', '2.0')})"
        if form == 2:
            return f"nl.multiply({self.tile(counts)}, {self.pick(self.tile(counts), '2', '-1.0')}{suffix})"
        if form == 3:
            return f"nl.{self.pick('abs', 'relu', 'negative', 'copy')}({inner()}{suffix})"
        if form == 4:
            op = self.pick("np.add", "nl.subtract", "np.maximum")
            return f"nisa.tensor_tensor({inner()}, {inner()}, {op}{self.cast()}{suffix})"
        if form == 5:
            operand = self.pick("3.0", "-2", self.column(counts[0]))
            more = self.pick("", f", op1=np.multiply, operand1={self.pick('2.0', '-1')}")
            reverse = self.pick("", ", reverse0=True")
            return (
                f"nisa.tensor_scalar({inner()}, {self.pick('np.add', 'np.subtract')}, {operand}{reverse}{more}{suffix})"
            )
        if form == 6:
            options = self.pick("", ", scale=2.0", f", bias={self.column(counts[0])}", ", scale=-1.0")
            return f"nisa.activation(np.{self.pick('copy', 'square')}, {self.tile(counts)}{options}{suffix})"
        if form == 7:
            condition = f"{self.tile(counts)} {self.pick('<', '>=')} {self.pick('0', inner())}"
            return f"nl.where({condition}, {inner()}, {inner()}{suffix})"
        if form == 8 and two:
            return f"nl.{self.pick('add', 'subtract')}({inner()}, {self.column(counts[0])}{suffix})"
        if form == 9 and two and not mask:
            turned = self.tile((counts[1], counts[0]))
            return self.pick(f"nl.transpose({turned})", f"nisa.tensor_copy(nisa.nc_transpose({turned}))")
        if form == 10 and two and not mask:
            summed = self.extent()
            right = self.tile((summed, counts[1]))
            if self.odds(0.5):
                return f"nl.copy(nl.matmul({self.tile((counts[0], summed))}, {right}))"
            return f"nl.copy(nl.matmul({self.tile((summed, counts[0]))}, {right}, transpose_x=True))"
        if form == 11 and not two and not mask:
            return f"nl.add({inner()}, {self.tile((counts[0], 1, counts[2]))})"
        if form == 12 and two and counts[1] > 1 and not mask:
            summed = self.tile((counts[0], counts[1], self.extent(4)))
            if self.odds(0.5):
                return f"nisa.tensor_reduce(np.add, {summed}, axis=[2])"
            return f"nl.{self.pick('sum', 'max', 'min')}({summed}, axis=2)"
        return f"nl.load({self.source(counts)}{suffix})"

    def cast(self):
        return f", dtype={self.dtype()}" if self.odds(0.2) else ""

    # -- statements -----------------------------------------------------------------------------------------------

    def shape(self):
        return (self.extent(), self.extent(12)) if self.odds(0.75) else (self.extent(), self.extent(4), self.extent(5))

    def new_tile(self):
        """Declare a tile that is written."""
        shape, name, dtype = self.shape(), self.name("t"), self.dtype()
        extents = ", ".join(map(str, (f"nl.par_dim({shape[0]})" if self.odds(0.4) else shape[0], *shape[1:])))
        form = self.random.randrange(4)
        if form == 0:
            self.line(f"{name} = nl.{self.pick('zeros', 'ndarray')}(({extents}), dtype={dtype}, buffer=nl.sbuf)")
            self.line(f"{name}[...] = {self.value(shape)}")
        elif form == 1:
            self.line(f"{name} = nl.full(({extents}), {self.pick('3', '-2', '0')}, dtype={dtype})")
        else:
            self.line(f"{name} = {self.value(shape)}")
        self.tiles[name] = (shape, dtype)

    def assign(self):
        """Write part of a tile, perhaps masked, perhaps in place."""
        mine = [name for name in self.tiles if name not in self.outer]
        if not mine:
            self.new_tile()
            return
        name = self.random.choice(mine)
        shape, _ = self.tiles[name]
        counts = tuple(self.extent(extent) for extent in shape)
        form = self.random.randrange(4)
        if form == 0:
            self.line(f"{name}[{self.brackets(counts, shape)}] = {self.value(counts, mask=self.mask(counts))}")
        elif form == 1:
            self.line(f"{name}[{self.brackets(counts, shape)}] {self.pick('+=', '-=')} {self.value(counts)}")
        elif form == 2:
            self.line(f"{name}[{self.brackets(counts, shape)}] = {self.pick('2', '-1.0', self.tile(counts))}")
        else:
            self.line(f"{name}[{self.brackets(counts, shape)}] = {self.value(counts)}")

    def masked_load(self):
        """Load the last, smaller part of an input: indices pass its end."""
        shape, name = (self.extent(), self.extent(12)), self.name("t")
        rows, columns = X0[0] - self.random.randint(1, shape[0]), X0[1] - self.random.randint(1, shape[1])
        ip, jf = f"(nl.arange({shape[0]})[:, None] + {rows})", f"(nl.arange({shape[1]})[None, :] + {columns})"
        self.line(f"{name} = nl.full({shape}, 1, dtype=np.float32)")
        self.line(f"{name}[...] = nl.load(x0[{ip}, {jf}], mask=({ip} < {X0[0]}) & ({jf} < {X0[1]}))")
        self.tiles[name] = (shape, "np.float32")

    def masked_reduction(self):
        """Reduce a box of a tile; rows that the mask leaves out keep what they hold."""
        shape = (self.extent(), self.extent(12))
        name = self.name("t")
        self.line(f"{name} = nl.zeros(({shape[0]}, 1), dtype=np.float32)")
        op = self.pick("sum", "max", "min")
        self.line(f"{name}[...] = nl.{op}({self.tile(shape)}, axis=1, keepdims=True, mask={self.box(shape)})")
        self.tiles[name] = ((shape[0], 1), "np.float32")

    def accumulate(self):
        """Accumulate matmuls in PSUM over a loop."""
        rows, columns, depth, trips = self.extent(), self.extent(12), self.extent(), self.extent(3)
        name, variable = self.name("acc"), self.name("k")
        self.line(f"{name} = nl.zeros((nl.par_dim({rows}), {columns}), np.float32, buffer=nl.psum)")
        self.line(f"for {variable} in nl.affine_range({trips}):")
        self.depth += 1
        outer, self.loop, known = self.loop, (variable, trips), dict(self.tiles)
        left = f"nl.load({self.source((depth, rows))})"
        right = f"nl.load({self.source((depth, columns))})"
        place = self.pick("...", ":, :")
        product = self.pick(f"nisa.nc_matmul({left}, {right})", f"nl.matmul({left}, {right}, transpose_x=True)")
        self.line(f"{name}[{place}] += {product}")
        self.depth -= 1
        self.loop, self.tiles = outer, known
        kept = self.name("t")
        self.line(f"{kept} = nl.copy({name})")
        self.tiles[kept] = ((rows, columns), "np.float32")

    def loops(self):
        """Run a loop: tiles of a tensor with block dimensions, and a sum over iterations."""
        trips, shape, variable = self.random.randint(1, 3), (self.extent(), self.extent(12)), self.name("i")
        blocks, total = self.name("b"), self.name("t")
        self.line(f"{blocks} = nl.ndarray(({trips}, nl.par_dim({shape[0]}), {shape[1]}), dtype=np.float32)")
        self.line(f"{total} = nl.zeros({shape}, dtype=np.float32)")
        self.line(f"for {variable} in nl.{self.pick('affine_range', 'sequential_range', 'static_range')}({trips}):")
        self.depth += 1
        known, outer, held = dict(self.tiles), self.loop, self.outer
        self.loop, self.outer = (variable, trips), set(self.tiles)
        for _ in range(self.random.randint(0, 2)):
            self.new_tile()
        indices = f"{self.along(shape[0], 0, 2)}, {self.along(shape[1], 1, 2)}"
        whole = self.pick(f"{variable}", f"{variable}, :, :", f"{variable}, {indices}")
        self.line(f"{blocks}[{whole}] = {self.value(shape)}")
        self.line(f"{total} += {blocks}[{variable}]" if self.odds(0.5) else f"{total}[...] += {self.value(shape)}")
        self.depth -= 1
        self.tiles, self.loop, self.outer = known, outer, held
        self.tiles[total] = (shape, "np.float32")
        read = self.name("t")
        self.line(f"{read} = nl.copy({blocks}[{self.random.randrange(trips)}])")
        self.tiles[read] = (shape, "np.float32")

    def program(self):
        """Return the source of a kernel, which stores each tile it has left."""
        steps = [self.new_tile, self.assign, self.assign, self.masked_load, self.masked_reduction]
        steps += [self.accumulate, self.loops]
        self.new_tile()
        for _ in range(self.random.randint(2, 6)):
            self.pick(*steps)()
        head = ["def kernel(x0, x1):"]
        rows = len(self.tiles) * 8
        self.line(f"out = nl.ndarray(({rows}, 64), dtype=np.float32, buffer=nl.{self.pick('shared_hbm', 'hbm')})")
        self.line(f"for r in range({rows // 8}):")
        self.line("    nl.store(out[r * 8:r * 8 + 8], nl.full((8, 64), 0, dtype=np.float32))")
        for at, (name, (shape, _)) in enumerate(self.tiles.items()):
            if len(shape) == 3:
                self.line(f"for q in range({shape[1]}):")
                target = f"out[{8 * at}:{8 * at + shape[0]}, q * {shape[2]}:(q + 1) * {shape[2]}]"
                self.line(f"    nl.store({target}, {name}[:, q, :])")
            else:
                mask = f", mask={self.mask(shape)}" if self.odds(0.3) else ""
                ip, jf = f"{8 * at} + nl.arange({shape[0]})[:, None]", f"nl.arange({shape[1]})[None, :]"
                step = self.pick(1, 2) if shape[1] <= 12 else 1
                self.line(f"nl.store(out[{ip}, {step} * {jf}], {name}{mask})")
        self.line("return out")
        return "\n".join(head + self.lines) + "\n"


def source_of(random):
    """Return the source of a random kernel."""
    return Maker(random).program()
