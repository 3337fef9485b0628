package io.snowmint.examples.mybatisplus;

import com.baomidou.mybatisplus.annotation.TableName;

/** A line of an order, whose id is text. */
@TableName("lines")
class Line {
    private String id;
    private Long orderId;
    private int amount;

    Line(Long orderId, int amount) {
        this.orderId = orderId;
        this.amount = amount;
    }

    public String getId() {
        return id;
    }

    public void setId(String id) {
        this.id = id;
    }

    public Long getOrderId() {
        return orderId;
    }

    public void setOrderId(Long orderId) {
        this.orderId = orderId;
    }

    public int getAmount() {
        return amount;
    }

    public void setAmount(int amount) {
        this.amount = amount;
    }
}
