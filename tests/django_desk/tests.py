"""Tests as a project with an outbox writes them. A database in memory can have none: there jobs are enqueued at the commit."""

from contextlib import suppress

from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from django_desk.tasks import note, orders
from laneway import Worker
from laneway.contrib.django import app


def rows() -> int:
    """Return how many rows wait in the outbox."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM laneway_outbox")
        return int(cursor.fetchone()[0])


class InTestCase(TestCase):
    """Tests that are rolled back, with their rows."""

    def check(self) -> None:
        """Enqueue: in a block that is left well, and in one that is not."""
        with self.captureOnCommitCallbacks() as callbacks:
            note.enqueue("ada")
            with suppress(ValueError), transaction.atomic():
                note.enqueue("ben")
                raise ValueError
        assert (len(callbacks) if app.outbox is None else rows()) == 1

    test_one = test_another_one_that_finds_nothing = check


class InTransactionTestCase(TransactionTestCase):
    """Tests that commit."""

    def check(self) -> None:
        """Enqueue in a transaction, and run what is there."""
        with transaction.atomic():
            note.enqueue("ada")
        if app.outbox is not None:
            assert rows() == 1
            Worker(app, slots=1).run(burst=True)
            assert orders().get().customer == "ada"
        assert (app.outbox is None) == (connection.vendor == "sqlite")

    test_one = test_another_one_that_finds_nothing = check
