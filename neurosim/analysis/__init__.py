"""What can be said of a program before it has a time."""
