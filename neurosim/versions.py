"""Versions of NKI whose semantics a run can ask for, in order.

Source: AWS Neuron SDK, ``nki/migration/index.rst`` (versions and their SDK releases). What differs between them, and
where it is honoured: ``docs/nki_versions.md``.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final, NamedTuple

from neurosim.errors import ConfigurationError


class NkiVersion(NamedTuple):
    """A version of NKI; a later one is greater."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


NKI_0_1: Final = NkiVersion(0, 1)
"""The legacy dialect, ``neuronxcc.nki``."""
NKI_0_3: Final = NkiVersion(0, 3)
NKI_0_4: Final = NkiVersion(0, 4)
NKI_0_5: Final = NkiVersion(0, 5)
NKI_0_6: Final = NkiVersion(0, 6)
VERSIONS: Final = (NKI_0_1, NKI_0_3, NKI_0_4, NKI_0_5, NKI_0_6)
NEWEST: Final = NKI_0_6
ENVIRONMENT: Final = "NEUROSIM_NKI_VERSION"


def nki_version_of(version: Any = None) -> NkiVersion:
    """Return a version: given as such, as text (``"0.5"``, ``"0.5.0"``); by default as the environment says, or 0.6.

    The environment variable is ``NEUROSIM_NKI_VERSION``.

    Raises:
        ConfigurationError: no version of NKI that neurosim knows.
    """
    if isinstance(version, NkiVersion) and version in VERSIONS:
        return version
    named = ""
    if version is None:
        version = os.environ.get(ENVIRONMENT) or str(NEWEST)
        named = f" in {ENVIRONMENT}"
    match = re.fullmatch(r"(\d{1,4})\.(\d{1,4})(\.0)?", str(version))
    found = NkiVersion(int(match[1]), int(match[2])) if match else None
    if found in VERSIONS:
        return found
    advice = "NKI 0.2 was a beta: run its kernels as 0.3" if str(version).startswith("0.2") else "give one of these"
    raise ConfigurationError(
        f"nki_version {str(version)!r}{named} is not a version of NKI that neurosim knows",
        numbers=("known: " + ", ".join(map(str, VERSIONS)),),
        advice=advice,
    )
