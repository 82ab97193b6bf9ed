"""A person whom an identity provider vouches for. A key without a holder stands for each sign-in of theirs."""

from datetime import datetime

from sqlalchemy import String, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ID, Base, utc_now


class WebUser(Base):
    __tablename__ = "web_user"
    __table_args__ = (UniqueConstraint("issuer", "subject", name="uq_web_user_issuer_subject"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    issuer: Mapped[str] = mapped_column(String(255))
    subject: Mapped[str] = mapped_column(String(255))
    name: Mapped[str] = mapped_column(String(128), default="")
    email: Mapped[str] = mapped_column(String(255), default="")
    email_verified: Mapped[bool] = mapped_column(default=False, server_default=false())  # as the provider says
    # Values of the claim that decides roles, as of the last sign-in.
    groups: Mapped[list[str]] = mapped_column(default=list, server_default=text("'[]'"))
    key_id: Mapped[str] = mapped_column(ID, default="")  # which stands for the sign-ins; replaced with its role
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    last_seen_at: Mapped[datetime] = mapped_column(default=utc_now)
