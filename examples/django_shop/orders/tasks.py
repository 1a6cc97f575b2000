"""What workers do for orders. Each task takes the primary key of what it is about."""

from django.db import transaction
from django.utils import timezone

from laneway.contrib.django import app
from orders.models import Order, Parcel


@app.task(lane="customer", keep_result=3600)
def ship(customer: str, order_id: int) -> str:
    """Pack a parcel. One customer's orders are packed in the order in which they came."""
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=order_id)
        if order.shipped_at is None:  # a run may be repeated: the row says what is done
            number = Parcel.objects.filter(order__customer=customer).count() + 1
            Parcel.objects.create(order=order, number_of_customer=number)
            order.shipped_at = timezone.now()
            order.save(update_fields=["shipped_at"])
    return f"order {order_id} is on its way"
