package io.snowmint.driver;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON as maps, lists, strings, longs, doubles, booleans and null. It trusts the kit to write valid
 * JSON.
 */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Object read(String text) {
        return new Json(text).value();
    }

    private char sign() {
        while (Character.isWhitespace(text.charAt(at))) {
            at++;
        }
        return text.charAt(at);
    }

    private Object value() {
        return switch (sign()) {
            case '{' -> object();
            case '[' -> list();
            case '"' -> string();
            case 't' -> word("true", true);
            case 'f' -> word("false", false);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Object word(String word, Object value) {
        at += word.length();
        return value;
    }

    private Map<String, Object> object() {
        Map<String, Object> object = new LinkedHashMap<>();
        at++;
        while (sign() != '}') {
            at += sign() == ',' ? 1 : 0;
            sign();
            String name = string();
            sign();
            at++;
            object.put(name, value());
        }
        at++;
        return object;
    }

    private List<Object> list() {
        List<Object> list = new ArrayList<>();
        at++;
        while (sign() != ']') {
            at += sign() == ',' ? 1 : 0;
            list.add(value());
        }
        at++;
        return list;
    }

    private String string() {
        StringBuilder read = new StringBuilder();
        for (at++; text.charAt(at) != '"'; at++) {
            if (text.charAt(at) != '\\') {
                read.append(text.charAt(at));
                continue;
            }
            at++;
            switch (text.charAt(at)) {
                case 'u' -> {
                    read.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
                    at += 4;
                }
                case 'b' -> read.append('\b');
                case 'f' -> read.append('\f');
                case 'n' -> read.append('\n');
                case 'r' -> read.append('\r');
                case 't' -> read.append('\t');
                default -> read.append(text.charAt(at));
            }
        }
        at++;
        return read.toString();
    }

    private Object number() {
        int begin = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String number = text.substring(begin, at);
        if (number.chars().allMatch(sign -> sign == '-' || Character.isDigit(sign))) {
            return Long.parseLong(number);
        }
        return Double.parseDouble(number);
    }

    static String write(Object value) {
        StringBuilder written = new StringBuilder();
        write(value, written);
        return written.toString();
    }

    private static void write(Object value, StringBuilder to) {
        if (value instanceof Map<?, ?> map) {
            String before = "{";
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                to.append(before);
                quote(String.valueOf(entry.getKey()), to);
                to.append(':');
                write(entry.getValue(), to);
                before = ",";
            }
            to.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof List<?> list) {
            String before = "[";
            for (Object item : list) {
                to.append(before);
                write(item, to);
                before = ",";
            }
            to.append(list.isEmpty() ? "[]" : "]");
        } else if (value instanceof String text) {
            quote(text, to);
        } else {
            to.append(value);
        }
    }

    private static void quote(String text, StringBuilder to) {
        to.append('"');
        for (char sign : text.toCharArray()) {
            if (sign == '"' || sign == '\\') {
                to.append('\\').append(sign);
            } else if (sign < ' ' || sign > '~') {
                to.append("\\u").append(Integer.toHexString(0x10000 + sign).substring(1));
            } else {
                to.append(sign);
            }
        }
        to.append('"');
    }
}
