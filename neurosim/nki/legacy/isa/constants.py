"""``neuronxcc.nki.isa.constants``: enumerations under their older path."""

from __future__ import annotations

from neurosim.nki.legacy.isa import dge_mode as dge_mode
from neurosim.nki.legacy.isa import engine as engine
from neurosim.nki.legacy.isa import nc_version as nc_version
from neurosim.nki.legacy.isa import oob_mode as oob_mode
from neurosim.nki.legacy.isa import reduce_cmd as reduce_cmd
