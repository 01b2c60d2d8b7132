"""``nki.collectives``: there, with replica groups, and refused where a kernel calls one."""

from __future__ import annotations

import inspect

import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, KernelError, Unsupported

X = np.ones((128, 4), np.float32)
CALLS = [name for name in ncc.__all__ if name != "ReplicaGroup"]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_refused_at_its_line(name):
    function = getattr(ncc, name)
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is inspect.Parameter.empty]

    def kernel(x):
        function(*[x] * len(needed))

    with pytest.raises(Unsupported, match=rf"nki\.collectives\.{name} is not built yet") as caught:
        neurosim.simulate(kernel)(X)
    assert "in kernel" in caught.value.where[0]
    with pytest.raises(KernelError, match="outside of a kernel"):
        function(*[X] * len(needed))


def test_a_kernel_that_only_may_call_one_runs():
    def kernel(x, group=None):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(out, nl.load(x))
        if group is not None and len(group.groups[0]) > 1:
            ncc.all_reduce([out], [out], group, nl.add)
        return out

    np.testing.assert_array_equal(neurosim.simulate(kernel)(X, ncc.ReplicaGroup([[0]])).outputs, X)
    with pytest.raises(Unsupported, match="all_reduce"):
        neurosim.simulate(kernel)(X, ncc.ReplicaGroup([[0, 1]]))


def test_replica_groups():
    group = ncc.ReplicaGroup(((0, 1), (2, 3)))
    assert group == ncc.ReplicaGroup(groups=((0, 1), (2, 3)))
    assert isinstance(group, nl.NKIObject)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([], "give lists of ranks"),
        ([[]], "give lists of ranks"),
        ([0, 1], "give lists of ranks"),
        (None, "give lists of ranks"),
        ([[0, -1]], "give lists of ranks"),
        ([[True]], "give lists of ranks"),
        ([[0, 1], [1, 2]], "rank 1 is there twice"),
        ([[3, 3]], "rank 3 is there twice"),
    ],
)
def test_groups_that_make_no_sense(groups, words):
    with pytest.raises(IllegalOperand, match=words):
        ncc.ReplicaGroup(groups)


def test_names_that_are_none():
    with pytest.raises(AttributeError, match="did you mean all_reduce"):
        _ = ncc.all_reduced


def test_generations_are_ordered():
    gen2, gen3, gen4 = nisa.nc_version.gen2, nisa.nc_version.gen3, nisa.nc_version.gen4
    assert gen2 < gen3 < gen4
    assert neurosim.simulate(lambda: nisa.get_nc_version() >= gen3, "trn2")().outputs is True
    assert neurosim.simulate(lambda: nisa.get_nc_version() >= gen3, "trn1")().outputs is False
    assert neurosim.simulate(nisa.get_nc_sub_version, "trn3")().outputs == 0


def test_what_people_catch():
    def kernel(x):
        try:
            nisa.tensor_copy(dst=nl.ndarray((64, 4), nl.float32), src=nl.load(x))
        except nisa.NkiValidationError as error:
            return type(error).__name__
        return None

    assert neurosim.simulate(kernel)(X).outputs == "IllegalOperand"
