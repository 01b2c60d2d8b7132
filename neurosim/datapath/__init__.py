"""What instructions of one kind share: rules, streams, operators, modes, sums in PSUM, blocks of MX."""
