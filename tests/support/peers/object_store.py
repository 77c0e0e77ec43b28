"""An object store on loopback that speaks S3: moto's, in a thread."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.suite.skips import importable, skip_unless

BUCKET = "backup"


@contextmanager
def object_store() -> Iterator[str]:
    """The settings that a path needs behind its question mark. Credentials are in the environment,
    which workers inherit."""
    skip_unless(importable("moto", "flask_cors", "pyarrow"), "needs moto, flask-cors and pyarrow")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", "anyone")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            host, port = server.get_host_and_port()
            yield f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    finally:
        server.stop()


def upload(directory: Path, name: str, settings: str) -> str:
    """Copy a directory into the bucket; the path by which it is read there."""
    from pyarrow import fs

    with_rights = f"s3://{BUCKET}?{settings}&allow_bucket_creation=true"
    target, bucket = fs.FileSystem.from_uri(with_rights)
    target.create_dir(bucket)
    for file in sorted(directory.rglob("*")):
        if file.is_file():
            place = f"{bucket}/{name}/{file.relative_to(directory)}"
            with target.open_output_stream(place) as stream:
                stream.write(file.read_bytes())
    return f"s3a://{BUCKET}/{name}?{settings}"
