"""The shop's tests: `manage.py test`.

They hold wherever the jobs are: in Django's database, or elsewhere (SHOP_JOBS). A job of a transaction that is rolled back never
was. `TestCase` rolls each test back: `captureOnCommitCallbacks(execute=True)` does what a commit would do.
"""

from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from laneway import Worker
from laneway.contrib.django import app
from orders.models import Order, Parcel
from orders.tasks import ship


def waiting() -> list[object]:
    """Return the orders that have a job."""
    return sorted(job.args[1] for job in app.inspect.jobs(task=ship.name) if job.args)


class InTestCase(TestCase):
    """Tests that are rolled back."""

    def test_a_view_places_an_order(self) -> None:
        """An order over HTTP, in Django's own client."""
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            answer = self.client.post("/orders/", {"customer": "ada", "total": 5}, content_type="application/json")
        self.assertEqual(answer.status_code, 201)
        self.assertTrue(callbacks)
        self.assertEqual(Order.objects.get().customer, "ada")

    def test_a_failed_order_leaves_nothing(self) -> None:
        """Neither a row, nor a job, nor anything to do after the commit."""
        with self.captureOnCommitCallbacks(execute=True) as callbacks, self.assertRaises(ValueError):
            self.client.post("/orders/", {"customer": "ada", "total": 5, "fails": True}, content_type="application/json")
        self.assertEqual((Order.objects.count(), len(callbacks)), (0, 0))

    def test_a_savepoint_takes_its_jobs_along(self) -> None:
        """Of two enqueues the one in the savepoint that is rolled back never was."""
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            ship.enqueue("ada", 1)
            with self.assertRaises(ValueError), transaction.atomic():
                ship.enqueue("ada", 2)
                raise ValueError
        self.assertEqual(len(callbacks), 1)

    def test_tasks_are_functions(self) -> None:
        """A task is called without a worker."""
        order = Order.objects.create(customer="ada", total=5)
        ship("ada", order.pk)
        self.assertEqual(Parcel.objects.get().order, order)

    def test_jobs_run_in_a_test(self) -> None:
        """With `testing("inline")` the jobs run when they are enqueued, in this transaction."""
        with app.testing("inline"):
            self.client.post("/orders/", {"customer": "ada", "total": 5}, content_type="application/json")
        self.assertIsNotNone(Order.objects.get().shipped_at)


class InTransactionTestCase(TransactionTestCase):
    """Tests that commit. Jobs in Django's database are deleted after each of them, as all rows are."""

    def setUp(self) -> None:
        """Begin without jobs: nobody rolls those back that are not in the test's database."""
        app.inspect.delete_all()

    def test_what_is_committed_is_there(self) -> None:
        """Of all the blocks only those that end well leave their jobs."""
        with transaction.atomic():
            ship.enqueue("ada", 1)
            with transaction.atomic():
                ship.enqueue("ada", 2)
            with self.assertRaises(ValueError), transaction.atomic():
                ship.enqueue("ada", 3)
                raise ValueError
        with self.assertRaises(ValueError), transaction.atomic():
            ship.enqueue("ada", 4)
            raise ValueError
        ship.enqueue("ada", 5)
        self.assertEqual(waiting(), [1, 2, 5])

    def test_async_code_takes_part_in_the_transaction_that_waits_for_it(self) -> None:
        """The event loop's enqueue is rolled back with the plain code around it."""

        async def later(order: int) -> None:
            await ship.aenqueue("ada", order)

        with self.assertRaises(ValueError), transaction.atomic():
            async_to_sync(later)(1)
            raise ValueError
        with transaction.atomic():
            async_to_sync(later)(2)
        async_to_sync(later)(3)
        self.assertEqual(waiting(), [2, 3])

    def test_a_worker_ships(self) -> None:
        """A worker in this process, on the test's database."""
        self.client.post("/orders/", {"customer": "ada", "total": 5}, content_type="application/json")
        self.assertEqual(len(waiting()), 1)
        if not app.is_in_memory:  # another thread cannot reach a database in memory
            Worker(app, slots=1).run(burst=True)
            self.assertEqual(Parcel.objects.count(), 1)
