"""Which chip a run is on: an argument, the environment, or trn2; and where the device files are."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from neurosim.chip import Chip
from neurosim.chip import load as load_device
from neurosim.errors import ConfigurationError
from neurosim.spelling import spelt

VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
DEFAULT = "trn2"
_ALIASES = {"gen2": "trn1", "gen3": "trn2", "gen4": "trn3"}


def folder() -> Path:
    """Return the folder of device files; ConfigurationError when another package named ``isa`` came first."""
    import isa

    if not hasattr(isa, "NEUROSIM_ISA"):
        raise ConfigurationError(
            f"the package 'isa' at {getattr(isa, '__file__', '?')} is not neurosim's",
            advice="remove it from sys.path, or rename it",
        )
    return Path(str(isa.__file__)).parent / "devices"


def available() -> list[str]:
    """Return the names of the chips that come with neurosim."""
    return sorted(path.stem for path in folder().glob("*.toml"))


@lru_cache
def _packaged(name: str) -> Chip:
    return load_device(folder() / f"{name}.toml")


@spelt
def load_chip(chip: str | Path | Chip | None = None) -> Chip:
    """Return a chip: given as such, by name, as a device file's path; by default as the environment says, or trn2.

    A device file of one's own may begin with ``base = "trn2"`` and hold a name and what differs.

    Raises:
        ConfigurationError: an unknown name, or a broken file.
    """
    if isinstance(chip, Chip):
        return chip
    place = ""
    if chip is None:
        chip, place = os.environ.get(VARIABLE) or DEFAULT, f" in {VARIABLE}"
    name = _ALIASES.get(str(chip), str(chip))
    if name in available():
        return _packaged(name)
    path = Path(str(chip))
    if path.suffix == ".toml" and os.path.isfile(path):
        return load_device(path, folder())
    if path.suffix == ".toml":
        raise ConfigurationError(
            f"there is no device file {path}{place}",
            advice="check the path; it is taken from the folder that you are in",
        )
    raise ConfigurationError(
        f"unknown chip {str(chip)!r}{place}",
        numbers=("known: " + ", ".join(available()),),
        advice="give one of these names, or the path of a device file (.toml)",
    )
