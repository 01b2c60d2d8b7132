"""A kernel with one of each thing that a listing shows."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def everything(a_t, b):
    out = nl.ndarray((64, 256), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    weights = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.sbuf)
    load = nisa.dma_copy(dst=weights, src=a_t, name="load weights")
    total = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
    for half in range(2):
        columns = nl.ds(128 * half, 128)
        tile = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=b[:, columns])
        scores = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=scores, stationary=weights, moving=tile)
        probabilities = nl.ndarray((64, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=probabilities, op=nl.exp, data=scores, reduce_op=nl.add, reduce_res=total, scale=0.5
        ).depends_on(load)
        nisa.tensor_scalar(
            dst=probabilities[32:64, 0:64], data=probabilities[32:64, 64:128], op0=nl.multiply, operand0=2.0
        )
        nisa.dma_copy(dst=out[:, columns], src=probabilities)
    return out
