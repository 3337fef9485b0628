package io.snowmint.client;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;

/** Reads answers with ids. One invalid part makes all of an answer invalid. */
final class Answer {
    /** Maximum number of ids in a range. */
    private static final long LONGEST_RANGE = 1 << 24;

    private Answer() {}

    /** Reads an answer that must have exactly {@code count} ids. */
    static List<Span> read(byte[] body, boolean isText, long count) throws InvalidAnswerException {
        JsonReader json = new JsonReader(decoded(body));
        String member = isText ? "ids" : "ranges";
        List<Span> spans = null;
        json.enter('{');
        while (json.hasNext('}')) {
            if (!json.name().equals(member)) {
                json.skip();
            } else if (spans != null) {
                throw new InvalidAnswerException("`" + member + "` comes twice");
            } else {
                spans = isText ? texts(json, count) : ranges(json, count);
            }
        }
        json.end();
        if (spans == null) {
            throw new InvalidAnswerException("no `" + member + "`");
        }
        return spans;
    }

    /** Decodes UTF-8. Replaced characters could make two texts equal, so there are none. */
    static String decoded(byte[] body) throws InvalidAnswerException {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(body)).toString();
        } catch (CharacterCodingException e) {
            throw new InvalidAnswerException("no UTF-8");
        }
    }

    private static List<Span> ranges(JsonReader json, long count) throws InvalidAnswerException {
        List<Span> spans = new ArrayList<>();
        long sum = 0;
        json.enter('[');
        while (json.hasNext(']')) {
            Span span = range(json);
            spans.add(span);
            sum += span.count();
        }
        if (sum != count) {
            throw new InvalidAnswerException(sum + " ids: expected " + count);
        }
        return spans;
    }

    /** Reads {@code {"first":"5","count":3,"step":"1"}}. */
    private static Span range(JsonReader json) throws InvalidAnswerException {
        String first = null;
        String count = null;
        String step = null;
        json.enter('{');
        while (json.hasNext('}')) {
            switch (json.name()) {
                case "first" -> first = once("first", first, json.string());
                case "count" -> count = once("count", count, json.number());
                case "step" -> step = once("step", step, json.string());
                default -> json.skip();
            }
        }
        if (first == null || count == null || step == null) {
            throw new InvalidAnswerException("a range without `first`, `count` or `step`");
        }
        Span span = span(digits(first), digits(count), digits(step));
        if (span == null) {
            throw new InvalidAnswerException(
                    "range of "
                            + Texts.shown(count, Texts.LONGEST_NAME)
                            + " ids from "
                            + Texts.shown(first, Texts.LONGEST_NAME)
                            + " by "
                            + Texts.shown(step, Texts.LONGEST_NAME)
                            + ": expected 1 to "
                            + LONGEST_RANGE
                            + " ids from 0 to 2^63 - 1");
        }
        return span;
    }

    private static String once(String member, String before, String value)
            throws InvalidAnswerException {
        if (before != null) {
            throw new InvalidAnswerException("`" + member + "` comes twice");
        }
        return value;
    }

    /** Returns a range; null if it is invalid. Invalid numbers are null. */
    private static Span span(Long first, Long count, Long step) {
        // Numbers from 2^63 on are negative.
        if (first == null || count == null || step == null || first < 0) {
            return null;
        }
        if (count < 1 || count > LONGEST_RANGE) {
            return null;
        }
        if (count == 1) {
            return Span.numbers(first, 0, 1);
        }
        if (step < 1 || step > (Long.MAX_VALUE - first) / (count - 1)) {
            return null;
        }
        return Span.numbers(first, step, count);
    }

    /** Reads ASCII digits of an unsigned number of 64 bits; null if they are none. */
    private static Long digits(String text) {
        if (text.isEmpty() || !text.chars().allMatch(sign -> sign >= '0' && sign <= '9')) {
            return null;
        }
        try {
            return Long.parseUnsignedLong(text);
        } catch (NumberFormatException e) {
            return null;
        }
    }

    private static boolean isUnpaired(int sign) {
        return sign >= Character.MIN_SURROGATE && sign <= Character.MAX_SURROGATE;
    }

    private static List<Span> texts(JsonReader json, long count) throws InvalidAnswerException {
        List<String> ids = new ArrayList<>();
        json.enter('[');
        while (json.hasNext(']')) {
            String id = json.string();
            if (id.isEmpty()) {
                throw new InvalidAnswerException("an id is empty");
            }
            if (id.codePoints().anyMatch(Answer::isUnpaired)) {
                throw new InvalidAnswerException("an id has an unpaired surrogate");
            }
            ids.add(id);
        }
        if (ids.size() != count) {
            throw new InvalidAnswerException(ids.size() + " ids: expected " + count);
        }
        if (new HashSet<>(ids).size() != ids.size()) {
            throw new InvalidAnswerException("an id comes twice");
        }
        return List.of(Span.texts(ids.toArray(String[]::new)));
    }
}
