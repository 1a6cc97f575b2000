"""Users' connections: what takes part in a transaction of the user's runs on them, whatever their driver is.

`drivers.recognise(connection)` returns a `UserConnection`. It says which kind of database it leads to, refuses autocommit, and
runs steps (`steps.py`): statements with values, answered by rows. A piece of work is a generator of steps, written once; `run`
drives it on a connection of threads, `arun` on one of an event loop. Nothing here begins, commits or rolls back.

Enters: connections of users.  Leaves: rows.
"""
