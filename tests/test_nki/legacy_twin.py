"""What legacy kernels mean, in NumPy: the names of ``neuronxcc.nki`` that random kernels use, on whole arrays.

Index tensors are NumPy arrays, a view is the positions that its brackets select, a mask is an array of bools, and
nothing waits or is lowered. Values are small whole numbers, so that no sum depends on its order.
"""

import types

import ml_dtypes
import numpy as np

PAD = 64
"""Indices may pass the end of an axis by this much, where a mask leaves them out."""


class Tile:
    """A tensor: values, and which of them a mask let be written (for results)."""

    def __init__(self, values, mask=None):
        self.array = np.ascontiguousarray(values)
        self.mask = np.ones(self.array.shape, bool) if mask is None else np.broadcast_to(mask, self.array.shape)

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    value = property(lambda self: self.array)

    def __getitem__(self, key):
        return View(self, key)

    def __setitem__(self, key, value):
        View(self, key).write(value)


class View:
    """What brackets select of a tile: positions, -1 beyond an end."""

    def __init__(self, base, key):
        self.base, self.key = base, key
        positions = np.arange(base.array.size).reshape(base.array.shape)
        positions = np.pad(positions, [(0, PAD)] * positions.ndim, constant_values=-1)
        if not (isinstance(key, tuple) and all(isinstance(entry, np.ndarray) for entry in key)):
            positions = positions[tuple(slice(0, extent) for extent in base.array.shape)]
        self.positions = positions[key]

    shape = property(lambda self: self.positions.shape)
    dtype = property(lambda self: self.base.dtype)
    mask = property(lambda self: np.ones(self.shape, bool))

    @property
    def value(self):
        return self.base.array.reshape(-1)[self.positions]

    def write(self, value, mask=True):
        if isinstance(value, (Tile, View)):
            mask = mask & np.broadcast_to(value.mask.reshape(_fit(value.shape, self.shape)), self.shape)
            value = value.value.reshape(_fit(value.shape, self.shape))
        where = np.broadcast_to(mask, self.shape)
        assert (self.positions[where] >= 0).all(), "a view leaves its tensor"
        flat = self.base.array.reshape(-1)
        flat[self.positions[where]] = np.broadcast_to(value, self.shape)[where].astype(self.dtype)


def _fit(shape, to):
    """Return a shape without axes of extent 1 that the other does not have."""
    return to if len(shape) != len(to) and np.prod(shape) == np.prod(to) else shape


def _operator_methods(cls):
    signs = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "lt": np.less, "ge": np.greater_equal}
    for sign, function in signs.items():
        setattr(cls, f"__{sign}__", lambda self, other, f=function: apply(f, self, other))
        if sign in ("add", "sub", "mul"):
            setattr(cls, f"__r{sign}__", lambda self, other, f=function: apply(f, other, self))
    for sign in ("add", "sub", "mul"):
        setattr(cls, f"__i{sign}__", lambda self, other, f=signs[sign]: update(self, f, other))
    cls.__neg__ = lambda self: apply(np.multiply, self, -1)


def update(target, function, other):
    """``target <function>= other``, in place."""
    view = target if isinstance(target, View) else View(target, ...)
    made = function(view.value.astype(np.float32), _value(other).astype(np.float32))
    mask = other.mask if isinstance(other, Tile) else True
    view.write(made, np.broadcast_to(mask, view.shape))
    return target


def _value(operand):
    if isinstance(operand, (Tile, View)):
        return operand.value.astype(np.float32)
    return np.float32(operand)


def apply(function, *operands, dtype=None, mask=None):
    """Return an element-by-element function, rounded to ``dtype`` or the promoted type."""
    made = function(*[_value(operand) for operand in operands])
    if dtype is None:
        dtype = promoted(*operands) if made.dtype != bool else np.uint8
    return result(made, dtype, mask)


def promoted(*operands):
    """Return the widest of the tiles' types; numbers are float32 or int32, which the wider wins over."""
    found = [operand.dtype for operand in operands if isinstance(operand, (Tile, View))]
    return max(found, key=lambda dtype: dtype.itemsize)


def result(values, dtype, mask):
    shape = values.shape
    if mask is not None:
        mask = np.broadcast_to(mask, shape)
    if len(shape) == 1:
        values = values[:, None]
        mask = None if mask is None else mask[:, None]
    return Tile(values.astype(dtype), mask)


_operator_methods(Tile)
_operator_methods(View)

FUNCTIONS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": np.less,
    "greater_equal": np.greater_equal,
    "abs": np.abs,
    "square": np.square,
    "relu": lambda x: np.maximum(x, 0),
    "negative": np.negative,
    "copy": np.positive,
}


def _function(function):
    def call(*operands, dtype=None, mask=None):
        if not any(isinstance(operand, (Tile, View)) for operand in operands):
            return function(*operands)  # as op= of an instruction
        return apply(function, *operands, dtype=dtype, mask=mask)

    return call


def load(source, *, mask=None, dtype=None):
    view = source if isinstance(source, View) else View(source, ...)
    where = np.ones(view.shape, bool) if mask is None else np.broadcast_to(mask, view.shape)
    assert (view.positions[where] >= 0).all(), "a load leaves its tensor"
    return result(view.value, dtype or view.dtype, mask)


def store(target, value, *, mask=None):
    View(target, ...).write(value) if isinstance(target, Tile) else target.write(value, True if mask is None else mask)


def reduced(function):
    def reduce(x, axis, *, dtype=None, mask=None, keepdims=False):
        data = _value(x)
        rows = None
        if mask is not None:
            where = np.broadcast_to(mask, data.shape)
            axes = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
            made = function.reduce(data, axis=axes, keepdims=keepdims, where=where, initial=EMPTY[function])
            rows = np.logical_or.reduce(where, axis=axes, keepdims=keepdims)
        else:
            axes = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
            made = function.reduce(data, axis=axes, keepdims=keepdims)
        return result(made, dtype or x.dtype, rows)

    return reduce


EMPTY = {np.add: 0, np.maximum: -np.inf, np.minimum: np.inf}


def where(condition, x, y, *, dtype=None, mask=None):
    return apply(lambda c, a, b: np.where(c != 0, a, b), condition, x, y, dtype=dtype or promoted(x, y), mask=mask)


def matmul(x, y, *, transpose_x=False, mask=None):
    left = _value(x).T if transpose_x else _value(x)
    return Tile(left @ _value(y))


def transpose(x, *, dtype=None, mask=None):
    return Tile(_value(x).T.astype(dtype or x.dtype))


def _filled(shape, value, dtype):
    return Tile(np.full([int(extent) for extent in shape], value, dtype))


def tensor_scalar(
    data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, *, dtype=None, mask=None
):
    made, values = _value(data), [_value(operand0), None if op1 is None else _value(operand1)]
    for op, value, reverse in ((op0, values[0], reverse0), (op1, values[1], False)):
        if op is not None:
            value = value.reshape(-1, *[1] * (made.ndim - 1)) if value.ndim else value
            made = op(value, made) if reverse else op(made, value)
    return result(made, dtype or data.dtype, mask)


def activation(op, data, *, bias=None, scale=1.0, mask=None, dtype=None):
    made = _value(data)
    factor, plus = _value(scale), 0 if bias is None else _value(bias)
    made = made * (factor.reshape(-1, *[1] * (made.ndim - 1)) if np.ndim(factor) else factor)
    made = made + (plus.reshape(-1, *[1] * (made.ndim - 1)) if np.ndim(plus) else plus)
    return result(op(made), dtype or data.dtype, mask)


class _Grid(tuple):
    p, x, y = (property(lambda self, place=place: self[place]) for place in range(3))


class _MGrid:
    def __getitem__(self, key):
        return _Grid(np.ogrid[key])


language = types.SimpleNamespace(
    arange=np.arange,
    mgrid=_MGrid(),
    par_dim=int,
    ds=lambda start, size: slice(start, start + size),
    affine_range=range,
    sequential_range=range,
    static_range=range,
    ndarray=lambda shape, dtype, buffer=None: _filled(shape, 0, dtype),
    zeros=lambda shape, dtype, buffer=None: _filled(shape, 0, dtype),
    full=lambda shape, value, dtype, buffer=None: _filled(shape, value, dtype),
    load=load,
    store=store,
    sum=reduced(np.add),
    max=reduced(np.maximum),
    min=reduced(np.minimum),
    where=where,
    matmul=matmul,
    transpose=transpose,
    float32=np.float32,
    bfloat16=ml_dtypes.bfloat16,
    sbuf=None,
    psum=None,
    shared_hbm=None,
    hbm=None,
    **{name: _function(function) for name, function in FUNCTIONS.items()},
)
isa = types.SimpleNamespace(
    tensor_tensor=lambda data1, data2, op, *, dtype=None, mask=None: apply(op, data1, data2, dtype=dtype, mask=mask),
    tensor_scalar=tensor_scalar,
    activation=lambda op, data, **options: activation(FUNCTIONS[op.__name__], data, **options),
    tensor_copy=lambda src, *, mask=None, dtype=None: apply(np.positive, src, dtype=dtype, mask=mask),
    tensor_reduce=lambda op, data, axis, **options: reduced(op)(data, axis, **options),
    nc_transpose=lambda data, **options: transpose(data),
    nc_matmul=lambda stationary, moving, **options: matmul(stationary, moving, transpose_x=True),
    memset=lambda shape, value, dtype, mask=None: result(np.full(shape, value, np.float32), dtype, mask),
)
