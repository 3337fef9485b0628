package io.snowmint.examples.hibernate;

import org.springframework.data.jpa.repository.JpaRepository;
import org.springframework.data.jpa.repository.Query;

/** The orders in the database. */
interface PurchaseOrders extends JpaRepository<PurchaseOrder, Long> {
    @Query(
            nativeQuery = true,
            value =
                    "SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM lines) AS total,"
                        + " (SELECT count(DISTINCT id) FROM orders WHERE id > 0) + (SELECT"
                        + " count(DISTINCT id) FROM lines WHERE id <> '') AS distinctIds, (SELECT"
                        + " count(DISTINCT order_id) FROM lines) AS withLine")
    Totals totals();

    /** The numbers of rows in both tables, of their distinct ids, and of orders with a line. */
    interface Totals {
        long getTotal();

        long getDistinctIds();

        long getWithLine();
    }
}
