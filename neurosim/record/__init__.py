"""What stands in a program: storages, names, places in the source; a program as text and as a file."""
