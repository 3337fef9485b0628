package io.snowmint.jackson;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.DeserializationContext;
import com.fasterxml.jackson.databind.deser.std.StdScalarDeserializer;

import java.io.IOException;

/** Reads an id from a string of digits or from a number. It rounds nothing. */
final class IdDeserializer extends StdScalarDeserializer<Long> {
    private static final long serialVersionUID = 1;
    private static final String EXPECTED = "expected digits, from 0 to 2^63 - 1";

    IdDeserializer() {
        super(Long.class);
    }

    @Override
    public Long deserialize(JsonParser parser, DeserializationContext context) throws IOException {
        if (parser.hasToken(JsonToken.VALUE_NUMBER_INT)) {
            return isId(parser.getText())
                    ? Long.valueOf(parser.getText())
                    : (Long)
                            context.handleWeirdNumberValue(
                                    handledType(), parser.getNumberValue(), EXPECTED);
        }
        if (parser.hasToken(JsonToken.VALUE_STRING)) {
            String text = parser.getText();
            return isId(text)
                    ? Long.valueOf(text)
                    : (Long) context.handleWeirdStringValue(handledType(), text, EXPECTED);
        }
        return (Long) context.handleUnexpectedToken(handledType(), parser);
    }

    private static boolean isId(String text) {
        if (text.isEmpty() || !text.chars().allMatch(sign -> sign >= '0' && sign <= '9')) {
            return false;
        }
        try {
            Long.parseLong(text);
            return true;
        } catch (NumberFormatException e) {
            return false;
        }
    }
}
