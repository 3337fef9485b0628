package io.snowmint.examples.mybatisplus;

import com.baomidou.mybatisplus.annotation.TableName;

/** An order. MyBatis-Plus fills its id on insert. */
@TableName("orders")
class PurchaseOrder {
    private Long id;
    private String item;

    PurchaseOrder(String item) {
        this.item = item;
    }

    public Long getId() {
        return id;
    }

    public void setId(Long id) {
        this.id = id;
    }

    public String getItem() {
        return item;
    }

    public void setItem(String item) {
        this.item = item;
    }
}
