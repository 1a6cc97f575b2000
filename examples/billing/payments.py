"""How our programs ask the payment provider for money: BILLING_PROVIDER says where it is, as host:port."""

from __future__ import annotations

import http.client
import json
import os
import threading

#: Seconds to wait for an answer. The provider may have charged all the same: nobody here can know.
PATIENCE = 1.0

_of_thread = threading.local()


class PaymentFailed(Exception):
    """The provider did not confirm: it may have charged, or not."""


def charge(customer: int, cents: int, *, key: str | None = None) -> str:
    """Take money, and return the receipt. The same key is charged once, however often it is sent."""
    answer = _post("/charges", {"customer": customer, "cents": cents}, {"Idempotency-Key": key} if key is not None else {})
    return str(answer["receipt"])


def forget_keys() -> None:
    """Let the provider forget all keys, as if days had gone by."""
    _post("/forget", {}, {})


def _post(path: str, told: dict[str, int], headers: dict[str, str]) -> dict[str, str]:
    line: http.client.HTTPConnection | None = getattr(_of_thread, "line", None)
    if line is None:
        line = _of_thread.line = http.client.HTTPConnection(os.environ["BILLING_PROVIDER"], timeout=PATIENCE)
    try:
        line.request("POST", path, json.dumps(told), headers)
        answer = line.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        line.close()  # the next request opens it anew
        raise PaymentFailed(f"no answer: {error!r}") from error
    if answer.status != 200:
        raise PaymentFailed(f"{answer.status}: {body.decode()}")
    found: dict[str, str] = json.loads(body)
    return found
