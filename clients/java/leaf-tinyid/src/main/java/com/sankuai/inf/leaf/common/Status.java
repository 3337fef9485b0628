package com.sankuai.inf.leaf.common;

/** Whether a {@link Result} has an id. */
public enum Status {
    /** It has an id. */
    SUCCESS,
    /** It has the code of an error. */
    EXCEPTION
}
