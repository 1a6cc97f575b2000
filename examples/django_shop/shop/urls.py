"""The shop, Django's admin, and Laneway's dashboard for the staff."""

from django.contrib import admin
from django.urls import include, path

from orders import views

urlpatterns = [
    path("orders/", views.orders),
    path("orders/<int:number>/", views.order),
    path("admin/", admin.site.urls),
    path("jobs/", include("laneway.contrib.django.urls")),
]
