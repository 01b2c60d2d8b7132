"""``nki.dtype``: the formats of ``nki.language`` under the name of their older home."""

from __future__ import annotations

from neurosim.dtypes import bfloat16 as bfloat16
from neurosim.dtypes import bool_ as bool_
from neurosim.dtypes import float4_e2m1fn_x4 as float4_e2m1fn_x4
from neurosim.dtypes import float8_e4m3 as float8_e4m3
from neurosim.dtypes import float8_e4m3fn as float8_e4m3fn
from neurosim.dtypes import float8_e4m3fn_x4 as float8_e4m3fn_x4
from neurosim.dtypes import float8_e5m2 as float8_e5m2
from neurosim.dtypes import float8_e5m2_x4 as float8_e5m2_x4
from neurosim.dtypes import float8_e8m0fnu as float8_e8m0fnu
from neurosim.dtypes import float16 as float16
from neurosim.dtypes import float32 as float32
from neurosim.dtypes import int8 as int8
from neurosim.dtypes import int16 as int16
from neurosim.dtypes import int32 as int32
from neurosim.dtypes import tfloat32 as tfloat32
from neurosim.dtypes import uint8 as uint8
from neurosim.dtypes import uint16 as uint16
from neurosim.dtypes import uint32 as uint32
