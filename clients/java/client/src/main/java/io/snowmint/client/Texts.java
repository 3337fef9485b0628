package io.snowmint.client;

import java.math.BigDecimal;
import java.time.Duration;

/** Makes texts of errors: of names, a server's detail, and times. */
final class Texts {
    /** Limits in characters. */
    static final int LONGEST_NAME = 200;

    static final int LONGEST_MESSAGE = 4000;

    private static final Duration LONGEST = Duration.ofNanos(Long.MAX_VALUE);

    private Texts() {}

    /** Returns a text short, and without characters that control a terminal. */
    static String shown(String text, int most) {
        StringBuilder shown = new StringBuilder();
        for (int i = 0; i < text.length(); ) {
            if (i >= most) {
                shown.append("… (").append(text.length()).append(" characters)");
                break;
            }
            int sign = text.codePointAt(i);
            i += Character.charCount(sign);
            if (isPrintable(sign)) {
                shown.appendCodePoint(sign);
            } else {
                shown.append("\\u{").append(Integer.toHexString(sign)).append('}');
            }
        }
        return shown.toString();
    }

    /** Returns why something failed, also if the exception has no message. */
    static String reason(Throwable error) {
        return error.getMessage() == null
                ? error.getClass().getSimpleName()
                : shown(error.getMessage(), LONGEST_MESSAGE);
    }

    /** Returns a time in the unit that people would choose, such as 1.5 s. */
    static String duration(Duration time) {
        if (time.compareTo(SnowmintClient.UNLIMITED) == 0) {
            return "unlimited";
        }
        BigDecimal seconds =
                BigDecimal.valueOf(time.getSeconds()).add(BigDecimal.valueOf(time.getNano(), 9));
        if (time.abs().compareTo(Duration.ofSeconds(1)) >= 0) {
            return plain(seconds) + " s";
        }
        return plain(seconds.movePointRight(3)) + " ms";
    }

    /** Returns a time in ns, or the longest one. */
    static long nanos(Duration time) {
        return time.compareTo(LONGEST) >= 0 ? Long.MAX_VALUE : time.toNanos();
    }

    private static String plain(BigDecimal number) {
        return number.signum() == 0 ? "0" : number.stripTrailingZeros().toPlainString();
    }

    private static boolean isPrintable(int sign) {
        return switch (Character.getType(sign)) {
            case Character.CONTROL,
                            Character.FORMAT,
                            Character.SURROGATE,
                            Character.PRIVATE_USE,
                            Character.UNASSIGNED,
                            Character.LINE_SEPARATOR,
                            Character.PARAGRAPH_SEPARATOR ->
                    false;
            default -> true;
        };
    }
}
