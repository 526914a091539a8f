"""The shells around the cores: read, decide, append, so that any crash changes nothing.

    shell      the loop of one core            feeder     raw messages into a core, its decisions out
    committer  exactly-once commits            recovery   last snapshot, then what the log has recorded since
    rules      a digest that names the rules   snapshots  states in a SQL database, a cache of the log
    timers     wake-ups as events              process    settings, signals, exit codes
    patience   waiting for a log that is away  starting   imported first: few garbage collections

`python -m libs.runtime SERVICE` runs one core of the roster.
"""
