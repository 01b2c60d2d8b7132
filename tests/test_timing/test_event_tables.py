"""The tables of the loop over events."""

from __future__ import annotations

import numpy as np

from neurosim.timing.events import tables


def test_no_column_has_a_name_that_rows_have_already():
    """Without a compiler a row is a NumPy scalar, whose own attributes (item, size) come before its columns."""
    forms = {name: form for name, form in vars(tables).items() if isinstance(form, np.dtype) and form.names}
    assert len(forms) > 10
    own = {name: [column for column in form.names if hasattr(np.record, column)] for name, form in forms.items()}
    assert own == {name: [] for name in forms}
