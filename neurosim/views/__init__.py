"""Tensors as access patterns: what brackets, slices, reshapes, access patterns and indices make of a tile."""
