"""What users touch: apps, tasks, collectors, enqueueing, inspection, statistics."""
