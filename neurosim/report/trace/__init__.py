"""Parts of a trace: text that is filled in by compiled code, what happened over time, arrows between instructions."""
