package io.snowmint.examples.hibernate;

import io.snowmint.hibernate.SnowmintId;

import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.Id;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.Table;

/** A line of an order, with an id of the namespace {@code default} as text. */
@Entity
@Table(name = "lines")
class Line {
    @Id
    @SnowmintId("default")
    private String id;

    @ManyToOne(fetch = FetchType.LAZY, optional = false)
    private PurchaseOrder order;

    private int amount;

    protected Line() {}

    Line(PurchaseOrder order, int amount) {
        this.order = order;
        this.amount = amount;
    }
}
