"""Orders: placed over HTTP, shipped by workers."""
