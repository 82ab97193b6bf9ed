"""An S3 server that checks signatures and policies: each bucket is open to one user alone, as moto's IAM knows it."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
from moto import settings as moto_settings
from moto.core.authorization import ActionAuthenticatorMixin
from moto.server import ThreadedMotoServer


@dataclass
class GuardedBuckets:
    """Buckets are made, with their users, before the block in which each request is ``checked``."""

    url: str
    clients: list[Any] = field(default_factory=list)

    def client(self, service: str, credentials: dict[str, str]) -> Any:
        made = boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=credentials["access_key_id"],
            aws_secret_access_key=credentials["secret_access_key"],
        )
        self.clients.append(made)
        return made

    def make(self, bucket: str, **objects: bytes) -> dict[str, str]:
        """A bucket with these objects, ``_`` in their names standing for a dot; the credentials that open it."""
        operator = {"access_key_id": "operator", "secret_access_key": "unchecked"}
        iam, s3 = self.client("iam", operator), self.client("s3", operator)
        s3.create_bucket(Bucket=bucket)
        for name, body in objects.items():
            s3.put_object(Bucket=bucket, Key=name.replace("_", "."), Body=body)
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        statement = {"Effect": "Allow", "Action": "s3:*", "Resource": resources}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        # All servers of a process share their users, and a module's fixtures may be made again in it.
        user = f"{bucket}-{uuid.uuid4().hex}"
        iam.create_user(UserName=user)
        iam.put_user_policy(UserName=user, PolicyName="own", PolicyDocument=policy)
        made = iam.create_access_key(UserName=user)["AccessKey"]
        return {"access_key_id": made["AccessKeyId"], "secret_access_key": made["SecretAccessKey"]}

    @contextmanager
    def checked(self) -> Iterator[None]:
        """From here on every request must be signed by a user who may make it; for all servers of this process."""
        before = moto_settings.INITIAL_NO_AUTH_ACTION_COUNT, ActionAuthenticatorMixin.request_count
        moto_settings.INITIAL_NO_AUTH_ACTION_COUNT, ActionAuthenticatorMixin.request_count = 0.0, 0
        try:
            yield
        finally:
            moto_settings.INITIAL_NO_AUTH_ACTION_COUNT, ActionAuthenticatorMixin.request_count = before


@contextmanager
def running_guarded_buckets() -> Iterator[GuardedBuckets]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    buckets = GuardedBuckets(f"http://{host}:{port}")
    try:
        yield buckets
    finally:
        for client in buckets.clients:
            client.close()
        server.stop()
