"""What SQL stores share: rules over rows, written once.

A database brings its tables, a `Reading` and a `Turn` (`port`), and the parts of statements that its dialect writes in another
way (`dialect`). The rules call statements by name, with named values; a database may have another text for a name.

Enters: the verbs of a store.
"""
