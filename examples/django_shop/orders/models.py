"""Orders and their parcels."""

from typing import ClassVar

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    customer = models.CharField(max_length=100)
    total = models.IntegerField()
    placed_at = models.DateTimeField(auto_now_add=True)
    shipped_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"order {self.pk} of {self.customer}"


class Parcel(models.Model):
    """A parcel: one for each order, whatever happens."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT)
    number_of_customer = models.IntegerField()

    class Meta:
        """One for each order."""

        constraints: ClassVar = [models.UniqueConstraint(fields=["order"], name="one_parcel_for_each_order")]

    def __str__(self) -> str:
        return f"parcel {self.number_of_customer} of {self.order.customer}"
