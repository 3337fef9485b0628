"""Orders and their lines."""

from django.db import models

from snowmint.django import SnowmintField


class Order(models.Model):
    id = SnowmintField(primary_key=True)
    number = SnowmintField(namespace="orders", unique=True)
    item = models.TextField()


class Line(models.Model):
    id = SnowmintField(primary_key=True)
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    amount = models.IntegerField()
