"""The instruction set that a kernel writer programs against: one file per datapath family, devices as data.

Nothing is imported here, so that asking for the devices does not load an instruction.
"""

NEUROSIM_ISA = 1
"""Marks this package as neurosim's, and not another one of the same name."""
