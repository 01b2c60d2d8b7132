"""How loops become machine code: made by numba, loaded by LLVM alone."""
