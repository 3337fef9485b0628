package io.snowmint.examples.mybatisplus;

import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

import java.util.List;
import java.util.stream.IntStream;

/** Stores orders. */
@Service
class Store {
    private final PurchaseOrderMapper orders;
    private final LineMapper lines;

    Store(PurchaseOrderMapper orders, LineMapper lines) {
        this.orders = orders;
        this.lines = lines;
    }

    /** Stores several orders with a line each, by two batches in a transaction. */
    @Transactional
    public void create(int count) {
        List<PurchaseOrder> batch =
                IntStream.range(0, count).mapToObj(n -> new PurchaseOrder("book")).toList();
        orders.insert(batch);
        lines.insert(batch.stream().map(order -> new Line(order.getId(), 1)).toList());
    }
}
