"""Export a DynamoDB table to S3 as JSON Lines, one object for each page.

A line is an item in DynamoDB JSON, as AWS's own export to S3 writes it, so nothing is lost. The
key of an object comes from the slot and the cursor that its page started from: a page that is
repeated after a kill overwrites itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from functools import cache
from typing import Any

import boto3

from anarchon_ddb import Run, codec, job


@cache
def aws(service: str) -> Any:
    """Return the client of a service, made on first use and kept while the sandbox is warm."""
    return boto3.client(service)  # type: ignore[call-overload]  # any service


@job("export", overlap="skip", timeout="50m")
def handler(run: Run) -> None:
    """Export the table as it is found during the run."""
    pages = run.paginate(
        aws("dynamodb"),
        "scan",
        TableName=os.environ["SOURCE_TABLE"],
        Limit=int(os.environ.get("PAGE_SIZE", "500")),
    )
    for page in pages:
        lines = [json.dumps({"Item": item}, default=_base64) + "\n" for item in page["Items"]]
        aws("s3").put_object(
            Bucket=os.environ["EXPORT_BUCKET"],
            Key=f"export/{run.slot:%Y-%m-%dT%H%M%SZ}/{_name(run.checkpoint)}.jsonl",
            Body="".join(lines).encode(),
        )


def _name(cursor: object) -> str:
    return hashlib.sha256(codec.dumps(cursor).encode()).hexdigest()[:16]


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
