"""The manual: what can be said of an instruction by reading its declaration and by trying it.

``python -m neurosim.manual`` writes ``isa/manual``; tests try the same calls. Nothing here names an instruction.
"""
