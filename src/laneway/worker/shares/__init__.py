"""Which queues a worker claims from: shares of its slots, and learned kinds of tasks."""
