package com.sankuai.inf.leaf.common;

/** An id, or the code of an error. */
public class Result {
    private long id;
    private Status status;

    /** Creates a result without a status. */
    public Result() {}

    /**
     * Creates a result.
     *
     * @param id the id, or the code of an error
     * @param status which of both it is
     */
    public Result(long id, Status status) {
        this.id = id;
        this.status = status;
    }

    /**
     * Returns the id.
     *
     * @return the id, or the code of an error
     */
    public long getId() {
        return id;
    }

    /**
     * Sets the id.
     *
     * @param id the id, or the code of an error
     */
    public void setId(long id) {
        this.id = id;
    }

    /**
     * Returns the status.
     *
     * @return the status
     */
    public Status getStatus() {
        return status;
    }

    /**
     * Sets the status.
     *
     * @param status the status
     */
    public void setStatus(Status status) {
        this.status = status;
    }

    /**
     * Returns the id and the status.
     *
     * @return such as {@code Result{id=5, status=SUCCESS}}
     */
    @Override
    public String toString() {
        return "Result{id=" + id + ", status=" + status + "}";
    }
}
