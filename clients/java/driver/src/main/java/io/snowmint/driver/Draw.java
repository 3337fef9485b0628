package io.snowmint.driver;

import io.snowmint.client.IdSource;
import io.snowmint.client.SnowmintException;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Draws ids in threads, one a call, into a file. */
final class Draw extends Thread {
    private final IdSource source;
    private final long[] ids;
    private int drawn;
    private int errors;
    private SnowmintException first;

    private Draw(IdSource source, int each) {
        this.source = source;
        this.ids = new long[each];
    }

    @Override
    public void run() {
        for (int i = 0; i < ids.length; i++) {
            try {
                ids[drawn] = source.next();
                drawn++;
            } catch (SnowmintException e) {
                errors++;
                first = first == null ? e : first;
            }
        }
    }

    static Map<String, Object> run(IdSource source, Command command)
            throws IOException, InterruptedException {
        List<Draw> draws = new ArrayList<>();
        for (int i = 0; i < command.number("threads", 1); i++) {
            Draw draw = new Draw(source, command.number("each", 1));
            draws.add(draw);
            draw.start();
        }
        int sum = 0;
        int errors = 0;
        SnowmintException first = null;
        try (OutputStream output =
                new BufferedOutputStream(Files.newOutputStream(Path.of(command.text("to"))))) {
            for (Draw draw : draws) {
                draw.join();
                output.write(draw.bytes());
                sum += draw.drawn;
                errors += draw.errors;
                first = first == null ? draw.first : first;
            }
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("drawn", sum);
        answer.put("errors", errors);
        answer.put("first_error", first == null ? null : Answers.error(first));
        return answer;
    }

    private byte[] bytes() {
        ByteBuffer bytes = ByteBuffer.allocate(drawn * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asLongBuffer().put(ids, 0, drawn);
        return bytes.array();
    }
}
