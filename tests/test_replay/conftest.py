"""Each test of replays begins without recordings."""

from __future__ import annotations

import pytest

from neurosim.replay import LIBRARY


@pytest.fixture(autouse=True)
def _empty_library():
    LIBRARY.clear()
    yield
    LIBRARY.clear()
