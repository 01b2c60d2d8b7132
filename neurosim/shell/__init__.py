"""The command line's parts."""
