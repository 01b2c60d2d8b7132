"""``nki.isa.constants``: the enums of ``nki.isa`` under the name of their older home."""

from __future__ import annotations

from neurosim.nki.isa import dge_mode as dge_mode
from neurosim.nki.isa import dma_engine as dma_engine
from neurosim.nki.isa import engine as engine
from neurosim.nki.isa import matmul_perf_mode as matmul_perf_mode
from neurosim.nki.isa import nc_version as nc_version
from neurosim.nki.isa import oob_mode as oob_mode
from neurosim.nki.isa import reduce_cmd as reduce_cmd
