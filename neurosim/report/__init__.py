"""What people read of a run: a summary as data, and as one screen of text."""
