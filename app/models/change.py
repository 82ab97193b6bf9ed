"""The change counter: raised by triggers with every write that a coordinator or node worker has to act on."""

from sqlalchemy import BigInteger, Integer
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base


class Change(Base):
    """SQLite counts in the only row of this table; PostgreSQL in the sequence of its column, which no writer waits for.

    ``app.database.change_counter`` reads either.
    """

    __tablename__ = "change"

    number: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)
