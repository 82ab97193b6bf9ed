"""The account of a job's processes in their sandbox: of its document, else of its image, else the default one."""

from app.domain.spec.model import ProcessUser
from workers.attempt_failed import AttemptFailed
from workers.prepare.job_image import JobImage
from workers.sandbox.accounts import MOST_ID, PASSWD, image_lines, numbered
from workers.sandbox.sandbox import PROCESS, Sandbox
from workers.sandbox.spec import Account


def account_of(user: ProcessUser, image: JobImage, sandbox: Sandbox) -> Account:
    """Raises AttemptFailed where the job requires a user that this node can't give it."""
    if user.required and sandbox.kind == PROCESS and user != ProcessUser():
        raise AttemptFailed(
            "INTERNAL",
            "this node can't run jobs as another user (resource_config.user): its jobs run without a sandbox; remove "
            "TRAINYARD_NODE_SANDBOX there",
        )
    given = image.account
    if user.uid is None:
        return Account(name=given.name, uid=given.uid, gid=given.gid if user.gid is None else user.gid)
    entry = numbered(image_lines(image.root.directory, PASSWD), user.uid) if image.root is not None else []
    name = entry[0] if entry else Account.name
    own_gid = int(entry[3]) if len(entry) > 3 and entry[3].isdecimal() and int(entry[3]) <= MOST_ID else user.uid
    return Account(name=name, uid=user.uid, gid=own_gid if user.gid is None else user.gid)
