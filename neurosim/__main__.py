"""``python -m neurosim``: the command line."""

from neurosim.cli import main

main()
