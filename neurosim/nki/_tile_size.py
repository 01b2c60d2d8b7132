"""``nl.tile_size``: sizes of the chip that the kernel runs on.

Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``, ``_TileSize``.
"""

from __future__ import annotations

from typing import Any

from isa.batchnorm import FMAX
from neurosim.chip import Chip
from neurosim.devices import load_chip
from neurosim.kernel import running
from neurosim.nki._missing import missing

_FLOAT32_BYTES = 4


class TileSize:
    """Sizes in elements or bytes; asked for outside of a kernel, they are the default chip's."""

    def __getattr__(self, name: str) -> Any:
        raise missing("nki.language.tile_size", name, frozenset(), dir(type(self)))

    @property
    def _chip(self) -> Chip:
        kernel = running()
        return load_chip() if kernel is None else kernel.chip

    @property
    def pmax(self) -> int:
        """Partitions of a tile, at most."""
        return self._chip.partitions

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes of a PSUM bank in each partition."""
        return self._chip.psum.bank_bytes

    @property
    def psum_bank_fmax(self) -> int:
        """Float32 elements of a PSUM bank in each partition."""
        return self.psum_bank_fmax_bytes // _FLOAT32_BYTES

    @property
    def psum_fmax(self) -> int:
        """Older name of :attr:`psum_bank_fmax`."""
        return self.psum_bank_fmax

    @property
    def psum_num_banks(self) -> int:
        """PSUM banks in each partition."""
        return self._chip.psum.banks

    @property
    def gemm_stationary_fmax(self) -> int:
        """Columns of a stationary operand, at most."""
        return self._chip.tensor.columns

    @property
    def gemm_moving_fmax(self) -> int:
        """Columns of a moving operand, at most: what a PSUM bank holds in float32."""
        return self.psum_bank_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Elements per partition that ``nisa.bn_stats`` takes, at most."""
        return FMAX

    @property
    def psum_min_align(self) -> int:
        """Bytes that addresses in PSUM are a multiple of (documented without a value; this one: leanprover/KLR)."""
        return 4

    @property
    def sbuf_min_align(self) -> int:
        """Bytes that addresses in SBUF are a multiple of (documented without a value; this one: leanprover/KLR)."""
        return 1

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Bytes of an SBUF partition that kernels have; compilers keep the rest for themselves."""
        return self._chip.sbuf.usable_bytes

    @property
    def sbuf_fmax(self) -> int:
        """Float32 elements of what kernels have of an SBUF partition."""
        return self.sbuf_fmax_bytes // _FLOAT32_BYTES

    @property
    def total_available_sbuf_size(self) -> int:
        """Older name of :attr:`sbuf_fmax_bytes`: per partition, despite the name."""
        return self.sbuf_fmax_bytes

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, all partitions, with what compilers keep for themselves."""
        return self._chip.sbuf.partition_bytes * self.pmax
