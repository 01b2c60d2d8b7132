"""Makes ``nki`` importable in any test suite: pytest finds this plugin by its entry point, and loads nothing else.

A suite whose kernels ``import nki`` runs as it is. Where a real ``nki`` is installed it stays in place;
``pytest --neurosim`` runs on neurosim all the same.
"""

from __future__ import annotations

import pytest

from neurosim import finder

finder.install()  # before conftest files and test modules are imported


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--neurosim``."""
    group = parser.getgroup("neurosim")
    group.addoption(
        "--neurosim",
        action="store_true",
        help="let neurosim provide nki, also where a real nki is installed",
    )


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Take the place of an installed ``nki``, before the first conftest file can import it."""
    if early_config.known_args_namespace.neurosim:
        finder.install(force=True)


def pytest_report_header() -> str:
    """Say where ``nki`` comes from."""
    return f"nki: {'neurosim' if finder.provides_nki() else 'the installed package'}"
