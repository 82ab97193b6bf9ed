"""Recipients of an email whom the mail server has refused for good, so that another try leaves them out."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    answers = sa.JSON().with_variant(JSONB(), "postgresql")
    op.add_column("webhook_delivery", sa.Column("refused", answers, server_default="{}", nullable=False))


def downgrade() -> None:
    op.drop_column("webhook_delivery", "refused")
