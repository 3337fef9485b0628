package io.snowmint.client;

/** Says why an answer is not used. */
final class InvalidAnswerException extends Exception {
    private static final long serialVersionUID = 1;

    InvalidAnswerException(String message) {
        super(message);
    }
}
