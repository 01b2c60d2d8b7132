"""Keys of most kernels, which take a short way, give what the long way gives: the same view, or the same refusal."""

from __future__ import annotations

import itertools

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import NeurosimError
from neurosim.views.indexing import indexed

ENTRIES = (
    slice(None),
    slice(0, 1),
    slice(1, 3),
    slice(1, None),
    slice(None, 2),
    slice(2, 1),
    slice(0, 99),
    slice(-2, None),
    slice(np.int64(0), 2),
    slice(False, True),
    slice(0, 1.0),
    slice(0, 4, 2),
    slice(0, 2, 1),
    np.int64(1),
    *(0, 1, -1, 99, True, 1.0, None, ...),
)
SHAPES = ((4, 48), (4, 6, 8))


def asked(view):
    """Return all that there is to know about a view."""
    array = view.array().__array_interface__
    places = view.start_partition, view.relative_partition, view.free_offset, view.offset_bytes, view.spot
    return (
        type(view),
        view.key,
        view.family,
        view.partition_axis,
        places,
        array["data"],
        array["strides"],
        array["shape"],
    )


def outcome(call):
    """Return what a call gives, or what it says."""
    try:
        return asked(call())
    except NeurosimError as error:
        return type(error), str(error)


@pytest.mark.parametrize("buffer", [nl.shared_hbm, nl.sbuf, nl.psum])
@pytest.mark.parametrize("shape", SHAPES, ids=["two axes", "three axes"])
def test_short_and_long_way(shape, buffer):
    views = (
        lambda t: t,
        lambda t: t[1:3, 2:5],
        lambda t: t[:, 1::2],
        lambda t: t[..., 3] if len(shape) > 2 else t.expand_dim(2),
    )

    def kernel():
        out = nl.ndarray((4, 48), dtype=nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((4, 48), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0)
        nisa.dma_copy(dst=out, src=tile)
        tensor = nl.ndarray(shape, dtype=nl.float32, buffer=buffer)
        for view in views:
            tile = view(tensor)
            assert tile.array().shape == tile.shape  # its bytes are there, and views share them
            for count in range(1, len(tile.shape) + 1):
                for key in itertools.product(ENTRIES, repeat=count):
                    if count == 3 and key[1] not in ENTRIES[:5]:
                        continue
                    assert outcome(lambda: tile[key]) == outcome(lambda: indexed(tile, key)), (tile, key)  # noqa: B023
        return out

    neurosim.simulate(kernel, replay=False)()
