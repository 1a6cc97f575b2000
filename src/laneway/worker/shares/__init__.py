"""Which queues a worker claims from: shares of its slots, and what is learned about tasks."""
