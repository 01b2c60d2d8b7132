"""What happens when, in order of time: the compiled loop over a program, and the flat arrays that it works on."""
