package io.snowmint.examples.hibernate;

import io.snowmint.hibernate.SnowmintId;

import jakarta.persistence.CascadeType;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.OneToMany;
import jakarta.persistence.Table;

import java.util.ArrayList;
import java.util.List;

/** An order, with a number of the segment {@code orders} as its id. */
@Entity
@Table(name = "orders")
class PurchaseOrder {
    @Id
    @SnowmintId("orders")
    private Long id;

    private String item;

    @OneToMany(mappedBy = "order", cascade = CascadeType.PERSIST)
    private List<Line> lines = new ArrayList<>();

    protected PurchaseOrder() {}

    PurchaseOrder(String item, int amount) {
        this.item = item;
        lines.add(new Line(this, amount));
    }
}
