"""The declarative base, and column types that behave the same on both databases."""

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, DateTime, Dialect, MetaData, String, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.types import TypeDecorator

from app.host.clock import utc_now as utc_now  # noqa: PLC0414 – part of what this offers

ID = String(64)
JsonColumn = JSON().with_variant(JSONB(), "postgresql")
# Python None becomes SQL NULL, not JSON null.
JsonOrNull = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
_JSON_OBJECTS = (dict[str, Any], dict[str, str], dict[str, int])
_JSON_LISTS = (list[Any], list[str], list[int], list[float], list[list[int]])
_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """Timezone-aware UTC times, truncated to milliseconds so that both databases and the wire agree on equality."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        value = value.astimezone(UTC)
        value = value.replace(microsecond=value.microsecond // 1000 * 1000)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002  (SQLAlchemy's)
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcDateTime,
        **dict.fromkeys(_JSON_OBJECTS, JsonColumn),
        **dict.fromkeys(_JSON_LISTS, JsonColumn),
    }


def database_now(session: Session) -> datetime:
    """The database server's time, for times that different machines compare. With SQLite, this machine's time."""
    if session.get_bind().dialect.name == "sqlite":
        return utc_now()
    return session.scalars(select(func.clock_timestamp(type_=UtcDateTime()))).one()
