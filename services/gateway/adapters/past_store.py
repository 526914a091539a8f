"""What forecasts know of the past, kept next to the read models: a cache, with which the next gateway goes on."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from libs.forecast.past import Kept
from libs.kernel.replica import schema_of
from services.gateway.adapters.keys import engine_of

_forecasts = sa.Table(
    "gateway_forecasts",
    sa.MetaData(),
    sa.Column("log_id", sa.Text(), primary_key=True),
    sa.Column("form", sa.Text(), nullable=False),
    sa.Column("body", sa.LargeBinary(), nullable=False),
)
_FORM = schema_of(Kept)
"""Of the body. One of another form is dropped: errors are counted anew."""


class PastStore:
    """One row, of the log that is followed. Blocking: call it in a thread.

    Every method raises SQLAlchemyError when the database cannot do it.

    Args:
        url: SQLAlchemy URL of the read models' database.
    """

    def __init__(self, url: str) -> None:
        self._engine = engine_of(url)

    def load(self, log_id: str) -> Kept | None:
        """What was kept; None: nothing of this log in this form."""
        _forecasts.create(self._engine, checkfirst=True)
        with self._engine.connect() as connection:
            of_log = sa.select(_forecasts).where(_forecasts.c.log_id == log_id, _forecasts.c.form == _FORM)
            found = connection.execute(of_log).first()
        return msgspec.msgpack.decode(found.body, type=Kept) if found is not None else None

    def save(self, log_id: str, kept: Kept) -> None:
        """Keep this, and nothing else."""
        row = {"log_id": log_id, "form": _FORM, "body": msgspec.msgpack.encode(kept)}
        with self._engine.begin() as connection:
            _forecasts.create(connection, checkfirst=True)  # also where the database was away when it was read
            connection.execute(sa.delete(_forecasts))
            connection.execute(sa.insert(_forecasts).values(row))

    def close(self) -> None:
        """Give back the connections."""
        self._engine.dispose()
