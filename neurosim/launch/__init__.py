"""What goes into a kernel: arguments, grids and cores, settings."""
