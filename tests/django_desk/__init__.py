"""A Django app beside the example's: what tests need that a shop does not."""
