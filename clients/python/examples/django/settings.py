"""The settings of a small project."""

import os
from urllib.parse import urlsplit

_database = urlsplit(os.environ["DATABASE_URL"])

SECRET_KEY = "of an example"
INSTALLED_APPS = ["shop"]
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": _database.hostname,
        "PORT": _database.port,
        "USER": _database.username,
        "PASSWORD": _database.password or "",
        "NAME": _database.path.lstrip("/"),
    }
}
SNOWMINT = {
    "servers": os.environ["SNOWMINT_SERVERS"].split(","),
    "namespace": "default",
    # Numbers of a segment do not age.
    "namespace_max_age": {"orders": None},
}
