"""Values and rules: no I/O, no threads, no clock."""
