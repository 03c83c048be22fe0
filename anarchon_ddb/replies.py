"""What an answer of DynamoDB's that is no success means: refused, unknown for now, or to be mended.

No I/O: errors of the SDK as they were raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from botocore import exceptions
from botocore.exceptions import ClientError

from anarchon_ddb.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anarchon_ddb.transaction import Reason

REFUSED = "ConditionalCheckFailedException"
CANCELLED = "TransactionCanceledException"
TRANSIENT = frozenset(
    {
        "InternalServerError",
        "InternalFailure",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "ThrottlingException",
        "LimitExceededException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)

# No answer came: as botocore's own retries tell it. A connection that could not be made is none of
# its HTTPClientError, one that broke off is.
SILENT = (exceptions.ConnectionError, exceptions.HTTPClientError)

_ADVICE = {
    "AccessDeniedException": "Grant dynamodb:{operation} on this table to the function's role",
    "ResourceNotFoundException": "No such table there: check its name and the region",
    "ValidationException": "If the keys or the index are named: the table must have the keys pk "
    "and sk, both strings, and the index open-runs. Create it from infra/table.yaml",
    "UnrecognizedClientException": "The credentials are not valid",
}


def code(error: Exception) -> str:
    """Return an error as the service names it, or as the SDK does where the service is silent."""
    return _answered(error).get("Code") or type(error).__name__


def reasons(error: Exception) -> tuple[Reason, ...]:
    """Return why each action of a transaction was refused; empty for any other error."""
    # pynamodb's own error keeps the answer in its cause only.
    answered = error.__cause__ if isinstance(error.__cause__, ClientError) else error
    response: Mapping[str, Any] = answered.response if isinstance(answered, ClientError) else {}
    if response.get("Error", {}).get("Code") != CANCELLED:
        return ()
    return tuple(
        (reason.get("Code") or "None", reason.get("Message") or "")
        for reason in response.get("CancellationReasons", ())
    )


def explained(operation: str, where: str, error: Exception) -> StoreError:
    """Return the error for an answer that is unknown, with what to do about it.

    Parameters
    ----------
    operation : str
        The call that was made.
    where : str
        The table and region that were asked, and the settings that they came from.
    """
    named = code(error)
    # IAM knows no action of that name: the checkpoint's part is an update.
    action = "UpdateItem" if operation == "TransactWriteItems" else operation
    advice = _ADVICE.get(named, "").format(operation=action)
    detail = _answered(error).get("Message") or str(error)
    return StoreError(
        f"DynamoDB {operation} on {where} failed: {named}: {detail}"
        + (f". {advice}" if advice else ""),
        retryable=named in TRANSIENT | {CANCELLED} or isinstance(error, SILENT),
        code=named,
    )


def _answered(error: Exception) -> dict[str, str]:
    """Return the error that the service answered; empty if it did not answer at all."""
    answer: Mapping[str, Any] = error.response if isinstance(error, ClientError) else {}
    return cast("dict[str, str]", answer.get("Error", {}))
