"""The same maths for each peer, in its own language: a matmul, and attention of one head."""
