"""A shop's settings. SHOP_DATABASE=postgresql puts it into PostgreSQL, with libpq's variables (PGHOST, PGUSER, …)."""

import os
from pathlib import Path

BASE_DIR = Path(os.environ.get("SHOP_FOLDER", Path(__file__).parent.parent))
SECRET_KEY = os.environ.get("SHOP_SECRET", "for trying it out, and for nothing else")
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "laneway.contrib.django",
    "orders",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
if os.environ.get("SHOP_DATABASE") == "postgresql":
    DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ.get("PGDATABASE", "shop")}}
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": BASE_DIR / "shop.sqlite3",
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
        }
    }

# Without a URL the jobs are in the database above: an order and its job are one transaction. With SHOP_JOBS=redis://… they are
# elsewhere: then an order and a row of the outbox, which becomes its job, are one transaction.
LANEWAY: dict[str, object] = {}
if url := os.environ.get("SHOP_JOBS"):
    LANEWAY = {"URL": url, "ATOMIC": os.environ.get("SHOP_ATOMIC", "outbox")}
