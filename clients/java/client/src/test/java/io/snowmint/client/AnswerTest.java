package io.snowmint.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

class AnswerTest {
    private static final String MAX_ID = "9223372036854775807";

    private static List<Span> ranges(String body, long count) throws InvalidAnswerException {
        return Answer.read(body.getBytes(StandardCharsets.UTF_8), false, count);
    }

    private static List<Span> texts(String body, long count) throws InvalidAnswerException {
        return Answer.read(body.getBytes(StandardCharsets.UTF_8), true, count);
    }

    @Test
    void ranges() throws InvalidAnswerException {
        assertEquals(
                List.of(Span.numbers(9007199254740993L, 1, 3), Span.numbers(Long.MAX_VALUE, 0, 1)),
                ranges(
                        """
                        {"ranges":[{"first":"9007199254740993","count":3,"step":"1"},
                        {"first":"9223372036854775807","count":1,"step":"18446744073709551615"}]}
                        """,
                        4));
        assertEquals(
                List.of(Span.numbers(0, 4, 2)),
                ranges(
                        """
                         { "until" : [7, {"ranges": "}\\"]"}, -1.5e+3, null] , "ranges" :
                         [ { "count" : 2 , "x":"\\\\", "step":"4", "first":"0" } ] , "y": true}
                        """,
                        2));
        assertEquals(
                List.of(Span.numbers(5, 0, 1)),
                ranges("{\"ranges\":[{\"first\":\"5\",\"count\":1,\"step\":\"0\"}]}", 1));
        assertEquals(
                List.of(Span.numbers(0, Long.MAX_VALUE, 2)),
                ranges(
                        "{\"ranges\":[{\"first\":\"0\",\"count\":2,\"step\":\"" + MAX_ID + "\"}]}",
                        2));
    }

    /** Goal: none of these has exactly one valid id. */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "{'ranges':[{'first':'5','count':2,'step':'1'}]}",
                "{'ranges':[{'first':'9223372036854775808','count':1,'step':'1'}]}",
                "{'ranges':[{'first':'18446744073709551616','count':1,'step':'1'}]}",
                "{'ranges':[{'first':'5','count':1,'step':'18446744073709551616'}]}",
                "{'ranges':[{'first':'5','count':1,'step':'-1'}]}",
                "{'ranges':[{'first':'5','count':1,'step':''}]}",
                "{'ranges':[{'first':'+5','count':1,'step':'1'}]}",
                "{'ranges':[{'first':'5','count':1e0,'step':'1'}]}",
                "{'ranges':[{'first':'5','count':1.0,'step':'1'}]}",
                "{'ranges':[{'first':'5','count':'1','step':'1'}]}",
                "{'ranges':[{'first':5,'count':1,'step':'1'}]}",
                "{'ranges':[{'first':'\\u0665','count':1,'step':'1'}]}",
                "{'RANGES':[{'first':'5','count':1,'step':'1'}]}",
                "{'ranges':[{'first':'5','count':1,'step':'1'},{'first':'6','count':0,'step':'1'}]}",
                "{'ranges':[{'first':'5','count':1,'step':'1'}],'ranges':[]}",
                "{'ranges':[],'ranges':[{'first':'5','count':1,'step':'1'}]}",
                "{'ranges':[{'first':'5','first':'6','count':1,'step':'1'}]}",
                "{'ranges':[{'first':'5','count':1,'step':'1'},]}",
                "{'ranges':[{'first':'5','count':1}]}",
                "{'ranges':[5]}",
                "{'ranges':[]}",
                "{'ranges':null}",
                "{}",
                "[]",
                "5",
                "",
                "{'ranges':[{'first':'5','count':1,'step':'1'}]}{}",
                "{'ranges':[{'first':'5','count':1,'step':'1'}]",
            })
    void invalidRanges(String body) {
        assertThrows(InvalidAnswerException.class, () -> ranges(body.replace('\'', '"'), 1), body);
    }

    @Test
    void idsThatWrapAreInvalid() {
        for (String range :
                List.of(
                        "{'first':'9223372036854775806','count':3,'step':'1'}",
                        "{'first':'1','count':3,'step':'9223372036854775807'}",
                        "{'first':'1','count':3,'step':'18446744073709551615'}",
                        "{'first':'5','count':3,'step':'0'}")) {
            String body = "{'ranges':[" + range + "]}";
            assertThrows(
                    InvalidAnswerException.class, () -> ranges(body.replace('\'', '"'), 3), body);
        }
        String longest = "{\"ranges\":[{\"first\":\"5\",\"count\":16777217,\"step\":\"1\"}]}";
        assertThrows(InvalidAnswerException.class, () -> ranges(longest, 16_777_217));
    }

    /** Goal: what is accepted is what arithmetic without overflow accepts. */
    @Test
    void randomRanges() {
        Random random = new Random(20_251_129);
        int accepted = 0;
        for (int i = 0; i < 20_000; i++) {
            BigInteger first = number(random);
            BigInteger step = number(random);
            long count = random.nextInt(4) == 0 ? 1L << random.nextInt(26) : random.nextInt(5);
            String body =
                    "{\"ranges\":[{\"first\":\"%s\",\"count\":%s,\"step\":\"%s\"}]}"
                            .formatted(first, count, step);
            boolean isValid = isValid(first, count, step);
            accepted += isValid ? 1 : 0;
            List<Span> read = null;
            try {
                read = ranges(body, count);
            } catch (InvalidAnswerException e) {
                // Compared below.
            }
            assertEquals(isValid, read != null, body);
            if (isValid) {
                Span span = read.get(0);
                assertEquals(first.longValueExact(), span.first(), body);
                Span last = span.part(count - 1, 1);
                BigInteger expected = first.add(step.multiply(BigInteger.valueOf(count - 1)));
                assertEquals(expected.longValueExact(), last.first(), body);
            }
        }
        assertEquals(true, accepted > 2000 && accepted < 18_000, accepted + " accepted");
    }

    /** Returns a number near a power of two, where overflows are. */
    private static BigInteger number(Random random) {
        BigInteger power = BigInteger.ONE.shiftLeft(random.nextInt(66));
        return power.add(BigInteger.valueOf(random.nextInt(5) - 2)).max(BigInteger.ZERO);
    }

    private static boolean isValid(BigInteger first, long count, BigInteger step) {
        BigInteger last = first.add(step.multiply(BigInteger.valueOf(Math.max(0, count - 1))));
        return count >= 1
                && count <= 1 << 24
                && last.bitLength() <= 63
                && step.bitLength() <= 64
                && (count == 1 || step.signum() > 0);
    }

    @Test
    void texts() throws InvalidAnswerException {
        Span span = texts("{\"ids\":[\"A-1\",\"\\u00c4-2\"]}", 2).get(0);
        assertEquals(2, span.count());
        assertArrayEquals(new String[] {"A-1", "Ä-2"}, span.texts());
        Span pair = texts("{\"ids\":[\"\\ud83d\\ude00\"]}", 1).get(0);
        assertEquals("\ud83d\ude00", pair.texts()[0]);
        for (String body :
                List.of(
                        "{'ids':['A']}",
                        "{'ids':['A','B','C']}",
                        "{'ids':['A','']}",
                        "{'ids':['A','\\u0041']}",
                        "{'ids':['A',5]}",
                        "{'ids':['A','\\ud800']}",
                        "{'ids':['A','\\udc00\\ud800']}",
                        "{'ids':['A','B'],'ids':['C','D']}",
                        "{'ranges':[]}",
                        "{}",
                        "")) {
            assertThrows(
                    InvalidAnswerException.class, () -> texts(body.replace('\'', '"'), 2), body);
        }
    }

    /** Goal: bytes that are no UTF-8 are not replaced: two texts could become equal. */
    @Test
    void invalidUtf8() {
        byte[] body = "{\"ids\":[\"A-?\"]}".getBytes(StandardCharsets.ISO_8859_1);
        body[new String(body, StandardCharsets.ISO_8859_1).indexOf('?')] = (byte) 0xFF;
        assertThrows(InvalidAnswerException.class, () -> Answer.read(body, true, 1));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{'a':01}",
                "{'a':.5}",
                "{'a':1.}",
                "{'a':+1}",
                "{'a':1e}",
                "{'a':-}",
                "{'a':NaN}",
                "{'a':tru}",
                "{'a':'\\x'}",
                "{'a':'\\u12g4'}",
                "{'a':'\t'}",
                "{'a':'}",
                "{'a'}",
                "{'a' 1}",
                "{a:1}",
                "{,}",
                "{'a':1,}",
                "{'a':[1 2]}",
                "{'a':[,]}",
                "{'a':[1}",
            })
    void invalidJsonInSkippedMembers(String object) {
        String rest = ",'ranges':[{'first':'5','count':1,'step':'1'}]}";
        String body = object.substring(0, object.length() - 1) + rest;
        assertThrows(InvalidAnswerException.class, () -> ranges(body.replace('\'', '"'), 1), body);
    }

    @Test
    void deepJsonDoesNotOverflowTheStack() {
        List<String> bodies = new ArrayList<>();
        bodies.add("[".repeat(1_000_000));
        bodies.add("{\"a\":".repeat(1_000_000));
        for (String body : bodies) {
            String whole = "{\"x\":" + body;
            assertThrows(InvalidAnswerException.class, () -> ranges(whole, 1));
        }
    }
}
