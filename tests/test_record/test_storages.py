"""The table of storages gives back what was put into it, and keeps what repeats once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neurosim import dtypes
from neurosim.engines import Memory
from neurosim.record.storages import StorageInfo, Storages, default_name

TILE = StorageInfo("sbuf_3", Memory.sbuf, (128, 512), dtypes.bfloat16, 128, 1024, 7, "tile")
NAMES = (
    "sbuf_3",
    "sbuf_03",
    "sbuf_",
    "sbuf_-1",
    "psum_3",
    "weights",
    "",
    "sbuf_3_4",
    "sbuf_٣",
    "hbm_5",
    f"sbuf_{1 << 40}",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("memory", [Memory.sbuf, Memory.hbm, Memory.state])
def test_what_was_put_in_comes_out(name, memory):
    info = replace(TILE, name=name, memory=memory)
    table = Storages([TILE, info])
    assert table[1] == info
    assert table[-1] == info
    assert list(table) == [TILE, info] == table[:]


def test_one_can_be_replaced():
    table = Storages([TILE, replace(TILE, name="weights")])
    table[0] = replace(TILE, name="x", role="output", stack=2)
    table[1] = TILE
    assert table == Storages([replace(TILE, name="x", role="output", stack=2), TILE])
    assert table != [TILE, TILE]


def test_a_copy_is_its_own():
    table = Storages([TILE])
    other = table.copy()
    other.append(replace(TILE, name="x"))
    assert (len(table), len(other)) == (1, 2)


def test_no_storage_beyond_the_last():
    with pytest.raises(IndexError):
        Storages([TILE])[1]


def test_a_column_asks_each_kind_once():
    sizes = (64, 1024)
    table = Storages(
        replace(TILE, name=default_name(Memory.sbuf, number), row_bytes=sizes[number % 2]) for number in range(1000)
    )
    asked = []

    def row_bytes(info):
        asked.append(info)
        return info.row_bytes

    np.testing.assert_array_equal(table.column(row_bytes), [sizes[number % 2] for number in range(1000)])
    assert len(asked) == 2
    assert [info.name for info in table[:3]] == ["sbuf_0", "sbuf_1", "sbuf_2"]


def test_an_empty_table_has_empty_columns():
    assert Storages().column(lambda info: info.row_bytes).shape == (0,)
