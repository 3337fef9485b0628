package io.snowmint.jackson;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonMappingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.List;
import java.util.Map;

class JsonIdTest {
    private static final long ID = Long.MAX_VALUE;
    private final ObjectMapper mapper = new ObjectMapper();

    record Order(@JsonId long id, @JsonId Long parent, long count) {}

    record Lists(@JsonIds List<Long> ids, @JsonIds Map<String, Long> byName) {}

    /** A class as frameworks know it, with a setter. */
    static final class Bean {
        private long id;

        @JsonId
        public long getId() {
            return id;
        }

        public void setId(long id) {
            this.id = id;
        }
    }

    @Test
    void anIdIsAString() throws JsonProcessingException {
        String json = "{\"id\":\"9223372036854775807\",\"parent\":\"7\",\"count\":3}";
        assertEquals(json, mapper.writeValueAsString(new Order(ID, 7L, 3)));
        assertEquals(new Order(ID, 7L, 3), mapper.readValue(json, Order.class));
        String numbers = "{\"id\":9223372036854775807,\"parent\":7,\"count\":3}";
        assertEquals(new Order(ID, 7L, 3), mapper.readValue(numbers, Order.class));
        String none = "{\"id\":\"0\",\"parent\":null,\"count\":3}";
        assertEquals(none, mapper.writeValueAsString(new Order(0, null, 3)));
        assertEquals(new Order(0, null, 3), mapper.readValue(none, Order.class));
    }

    /** Goal: a client may leave out the id of what it creates, as with any other long. */
    @Test
    void noIdOfAPrimitiveType() throws JsonProcessingException {
        Order none = new Order(0, null, 3);
        assertEquals(none, mapper.readValue("{\"count\":3}", Order.class));
        assertEquals(none, mapper.readValue("{\"id\":null,\"count\":3}", Order.class));
        ObjectMapper strict =
                JsonMapper.builder()
                        .enable(DeserializationFeature.FAIL_ON_NULL_FOR_PRIMITIVES)
                        .build();
        assertThrows(
                JsonMappingException.class,
                () -> strict.readValue("{\"id\":null,\"count\":3}", Order.class));
    }

    @Test
    void listsAndMaps() throws JsonProcessingException {
        Lists lists = new Lists(List.of(1L, ID), Map.of("a", 2L));
        String json = "{\"ids\":[\"1\",\"9223372036854775807\"],\"byName\":{\"a\":\"2\"}}";
        assertEquals(json, mapper.writeValueAsString(lists));
        assertEquals(lists, mapper.readValue(json, Lists.class));
    }

    @Test
    void getters() throws JsonProcessingException {
        Bean bean = mapper.readValue("{\"id\":\"9007199254740993\"}", Bean.class);
        assertEquals("{\"id\":\"9007199254740993\"}", mapper.writeValueAsString(bean));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "\"\"",
                "\" 5\"",
                "\"-5\"",
                "-5",
                "\"5.0\"",
                "5.0",
                "\"9223372036854775808\"",
                "9223372036854775808",
                "\"\u0665\"",
                "true",
                "[5]"
            })
    void whatIsNoId(String value) {
        JsonMappingException e =
                assertThrows(
                        JsonMappingException.class,
                        () -> mapper.readValue("{\"id\":" + value + "}", Order.class));
        assertTrue(e.getMessage().contains("long") || e.getMessage().contains("Long"));
    }

    @Test
    void theModuleWritesAllLongsAsStrings() throws JsonProcessingException {
        ObjectMapper all = JsonMapper.builder().addModule(new LongsAsStringsModule()).build();
        assertEquals("[\"1\",\"2\"]", all.writeValueAsString(new long[] {1, 2}));
        assertEquals("{\"a\":[\"5\"]}", all.writeValueAsString(Map.of("a", List.of(5L))));
        Order order = new Order(ID, null, 3);
        String json = "{\"id\":\"9223372036854775807\",\"parent\":null,\"count\":\"3\"}";
        assertEquals(json, all.writeValueAsString(order));
        assertEquals(order, all.readValue(json, Order.class));
    }
}
