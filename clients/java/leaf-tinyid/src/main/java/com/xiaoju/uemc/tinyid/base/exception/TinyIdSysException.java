package com.xiaoju.uemc.tinyid.base.exception;

/** Says why {@code TinyId} returned no ids. The cause is a {@code SnowmintException}. */
public class TinyIdSysException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /**
     * Creates an exception.
     *
     * @param message what happened
     * @param cause why
     */
    public TinyIdSysException(String message, Throwable cause) {
        super(message, cause);
    }
}
