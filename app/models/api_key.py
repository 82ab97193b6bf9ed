"""An API key with its project and role. Only a hash of the bearer secret is stored."""

from datetime import datetime

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class ApiKey(Base):
    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    project: Mapped[str | None] = mapped_column(ForeignKey("project.name"), index=True)  # None: a super admin key
    role: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(128), default="")
    prefix: Mapped[str] = mapped_column(String(32), unique=True)
    secret_hash: Mapped[str] = mapped_column(String(64))
    access_key: Mapped[str] = mapped_column(String(64), unique=True)
    sealed_secret_key: Mapped[str] = mapped_column(Text)  # encrypted, not hashed: verifying a signature needs it
    user_id: Mapped[str | None] = mapped_column(ID, index=True)  # whose it is, if an identity provider vouches for them
    replaced_by: Mapped[str | None] = mapped_column(ID)  # the key that replaced it on rotation
    # Of requests to models; None: what the gateways' settings say, 0: no limit.
    requests_per_minute: Mapped[int | None]
    tokens_per_minute: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
