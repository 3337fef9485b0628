package io.snowmint.jackson;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.BeanProperty;
import com.fasterxml.jackson.databind.DeserializationContext;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonDeserializer;
import com.fasterxml.jackson.databind.JsonMappingException;
import com.fasterxml.jackson.databind.deser.ContextualDeserializer;
import com.fasterxml.jackson.databind.deser.std.StdScalarDeserializer;

import java.io.IOException;

/** Reads an id from a string of digits or from a number. It rounds nothing. */
final class IdDeserializer extends StdScalarDeserializer<Long> implements ContextualDeserializer {
    private static final long serialVersionUID = 1;
    private static final String EXPECTED = "expected digits, from 0 to 2^63 - 1";

    IdDeserializer() {
        this(Long.class);
    }

    private IdDeserializer(Class<?> type) {
        super(type);
    }

    @Override
    public JsonDeserializer<?> createContextual(
            DeserializationContext context, BeanProperty property) {
        boolean isPrimitive = property != null && property.getType().hasRawClass(long.class);
        return isPrimitive ? new IdDeserializer(long.class) : this;
    }

    /** Returns what Jackson sets for null, or an absent member: 0 if the type is primitive. */
    @Override
    public Long getNullValue(DeserializationContext context) throws JsonMappingException {
        if (handledType() != long.class) {
            return null;
        }
        if (context.isEnabled(DeserializationFeature.FAIL_ON_NULL_FOR_PRIMITIVES)) {
            return (Long) context.reportInputMismatch(this, "null for a long: expected an id");
        }
        return 0L;
    }

    @Override
    public Object getAbsentValue(DeserializationContext context) {
        return handledType() == long.class ? 0L : null;
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
