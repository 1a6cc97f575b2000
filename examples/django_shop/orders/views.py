"""Orders over HTTP."""

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from orders.models import Order
from orders.tasks import ship


@csrf_exempt
@require_POST
def orders(request: HttpRequest) -> JsonResponse:
    """Place an order: the row and its job are one transaction."""
    wanted = json.loads(request.body)
    with transaction.atomic():
        order = Order.objects.create(customer=wanted["customer"], total=wanted["total"])
        ship.enqueue(order.customer, order.pk)
        if wanted.get("fails"):
            raise ValueError("this order cannot be placed: neither it nor its job will be there")
    return JsonResponse({"order": order.pk}, status=201)


def order(request: HttpRequest, number: int) -> JsonResponse:  # noqa: ARG001 - Django gives it
    """Say how an order stands."""
    found = get_object_or_404(Order, pk=number)
    return JsonResponse({"customer": found.customer, "shipped": found.shipped_at is not None})
