"""Variables of the environment that a run's values or its record depend on, beside the one that names the chip."""

from __future__ import annotations

import os
from typing import Final

from neurosim.errors import ConfigurationError, Unsupported
from neurosim.execution.rounding import ENABLE, SEED
from neurosim.versions import ENVIRONMENT

PRECISE: Final = "NKI_PRECISE_FP"
TRANSPOSES: Final = "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE"
VARIABLES: Final = (ENVIRONMENT, ENABLE, SEED, PRECISE, TRANSPOSES)


def check_environment() -> None:
    """Refuse settings that would change values and are not built.

    Raises:
        Unsupported: such a setting.
    """
    if os.environ.get(TRANSPOSES, "").lower() in ("1", "true"):
        raise Unsupported(
            f"{TRANSPOSES}: transposes by DMA on the tensor engine are not built yet",
            advice="unset it, or use nisa.nc_transpose",
        )


def is_precise(asked: bool | None) -> bool:
    """Return whether narrow formats round: as asked, else as ``NKI_PRECISE_FP`` says, else yes.

    Raises:
        ConfigurationError: the variable is neither 0 nor 1.
    """
    setting = os.environ.get(PRECISE, "")
    if asked is None and setting not in ("", "0", "1"):
        raise ConfigurationError(
            f"{PRECISE}={setting!r} is neither 0 nor 1",
            advice="unset it or set 1 for the formats as they are on hardware, 0 to keep narrow floats as float32",
        )
    return setting != "0" if asked is None else asked
