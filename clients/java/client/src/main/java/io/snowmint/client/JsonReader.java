package io.snowmint.client;

/** Reads JSON (RFC 8259) from front to back. It accepts nothing else, not even in skipped parts. */
final class JsonReader {
    /** Deeper JSON is invalid, so that no answer overflows the stack. */
    private static final int DEEPEST = 100;

    private final String text;
    private int at;
    private int depth;

    /** Whether nothing has been read of the innermost list or object. */
    private boolean isFirst;

    JsonReader(String text) {
        this.text = text;
    }

    /** Enters an object, by its <code>{</code>, or a list, by its {@code [}. */
    void enter(char sign) throws InvalidAnswerException {
        expect(sign);
        if (++depth > DEEPEST) {
            throw invalid("JSON that is not this deep");
        }
        isFirst = true;
    }

    /** Returns whether another member or item follows. If not, it leaves the object or list. */
    boolean hasNext(char end) throws InvalidAnswerException {
        if (peek() == end) {
            at++;
            depth--;
            isFirst = false;
            return false;
        }
        if (!isFirst) {
            expect(',');
        }
        isFirst = false;
        return true;
    }

    /** Reads the name of a member. */
    String name() throws InvalidAnswerException {
        String name = string();
        expect(':');
        return name;
    }

    /** Returns whether a string follows. */
    boolean isString() {
        return peek() == '"';
    }

    String string() throws InvalidAnswerException {
        expect('"');
        int begin = at;
        while (at < text.length() && text.charAt(at) != '"' && text.charAt(at) != '\\') {
            plain();
        }
        if (at < text.length() && text.charAt(at) == '"') {
            return text.substring(begin, at++);
        }
        StringBuilder read = new StringBuilder(text.substring(begin, at));
        while (at < text.length() && text.charAt(at) != '"') {
            read.append(text.charAt(at) == '\\' ? escaped() : plain());
        }
        expect('"');
        return read.toString();
    }

    private char plain() throws InvalidAnswerException {
        if (text.charAt(at) < ' ') {
            throw invalid("no control character in a string");
        }
        return text.charAt(at++);
    }

    private char escaped() throws InvalidAnswerException {
        at++;
        char sign = at < text.length() ? text.charAt(at++) : 0;
        return switch (sign) {
            case '"', '\\', '/' -> sign;
            case 'b' -> '\b';
            case 'f' -> '\f';
            case 'n' -> '\n';
            case 'r' -> '\r';
            case 't' -> '\t';
            case 'u' -> (char) hex();
            default -> throw invalid("an escape");
        };
    }

    private int hex() throws InvalidAnswerException {
        int code = 0;
        for (int end = at + 4; at < end; at++) {
            int digit = at < text.length() ? hexDigit(text.charAt(at)) : -1;
            if (digit < 0) {
                throw invalid("4 hexadecimal digits");
            }
            code = code * 16 + digit;
        }
        return code;
    }

    /** Unlike {@link Character#digit}, it knows only ASCII. */
    private static int hexDigit(char sign) {
        return sign < 128 ? Character.digit(sign, 16) : -1;
    }

    /** Reads a number, and returns it as it is written. */
    String number() throws InvalidAnswerException {
        peek();
        int begin = at;
        skipSign('-');
        if (!skipSign('0')) {
            digits();
        }
        if (skipSign('.')) {
            digits();
        }
        if (skipSign('e') || skipSign('E')) {
            if (!skipSign('+')) {
                skipSign('-');
            }
            digits();
        }
        return text.substring(begin, at);
    }

    private boolean skipSign(char sign) {
        boolean isThere = at < text.length() && text.charAt(at) == sign;
        at += isThere ? 1 : 0;
        return isThere;
    }

    private void digits() throws InvalidAnswerException {
        int begin = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        if (at == begin) {
            throw invalid("a digit");
        }
    }

    /** Reads a value that nobody needs. */
    void skip() throws InvalidAnswerException {
        switch (peek()) {
            case '{' -> {
                enter('{');
                while (hasNext('}')) {
                    name();
                    skip();
                }
            }
            case '[' -> {
                enter('[');
                while (hasNext(']')) {
                    skip();
                }
            }
            case '"' -> string();
            case 't' -> word("true");
            case 'f' -> word("false");
            case 'n' -> word("null");
            default -> number();
        }
    }

    private void word(String word) throws InvalidAnswerException {
        if (!text.startsWith(word, at)) {
            throw invalid(word);
        }
        at += word.length();
    }

    /** Checks that nothing follows. */
    void end() throws InvalidAnswerException {
        if (peek() != 0 || at < text.length()) {
            throw invalid("the end");
        }
    }

    private void expect(char sign) throws InvalidAnswerException {
        if (peek() != sign) {
            throw invalid("`" + sign + "`");
        }
        at++;
    }

    /** Skips space, and returns the sign behind it; 0 at the end. */
    private char peek() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private InvalidAnswerException invalid(String expected) {
        return new InvalidAnswerException("no JSON: expected " + expected + " at character " + at);
    }
}
