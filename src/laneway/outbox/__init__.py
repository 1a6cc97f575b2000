"""The outbox: rows in the user's database that become jobs of a store elsewhere, and the relay that carries them over.

A program inserts a row in its own transaction (`insert`). After the commit a relay (`relay`) finds it, gives it a number, hands
it to the store, which takes each number once, and deletes it. Every worker can relay, and one at a time does.

::

    tables      what is in the user's database, as SQL
    database    connections of ours to it: SQLite, PostgreSQL
    insert      rows, written on the user's connection
    relay       rows become jobs
    status      what waits, for how long, and what was set aside

Enters: jobs, on the user's connection.  Leaves: jobs, in the store.
"""
