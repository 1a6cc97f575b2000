"""The fleet: what one `laneway worker` command starts.

A supervisor without user code, a zygote that has loaded the app and forks, and workers that run jobs. See `docs/design.md`.
"""
