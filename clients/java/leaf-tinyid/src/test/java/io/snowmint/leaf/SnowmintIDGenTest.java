package io.snowmint.leaf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sankuai.inf.leaf.IDGen;
import com.sankuai.inf.leaf.common.Result;
import com.sankuai.inf.leaf.common.Status;

import io.snowmint.client.SnowmintClient;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.time.Duration;

class SnowmintIDGenTest {
    private static SnowmintClient client(FakeServer server, Duration timeout) {
        return SnowmintClient.builder()
                .server(server.url())
                .timeout(timeout)
                .maxAge(SnowmintClient.UNLIMITED)
                .build();
    }

    @Test
    void errorsAreLeafsCodes() throws IOException {
        try (FakeServer server = new FakeServer();
                SnowmintClient client = client(server, Duration.ofMinutes(1))) {
            IDGen ids = new SnowmintIDGen(client);
            assertTrue(ids.init());
            long first = ids.get("orders").getId();
            String second = "Result{id=" + (first + 1) + ", status=SUCCESS}";
            assertEquals(second, ids.get("orders").toString());
            assertEquals("Result{id=-2, status=EXCEPTION}", ids.get("404").toString());
            assertEquals("Result{id=-2, status=EXCEPTION}", ids.get("a/b").toString());
            assertEquals("Result{id=-1, status=EXCEPTION}", ids.get("403").toString());
            assertEquals(Status.SUCCESS, ids.get("orders").getStatus());
            assertTrue(first >= 1);
        }
    }

    @Test
    void aServerWithoutIdsIsNotReady() throws IOException {
        try (FakeServer server = new FakeServer();
                SnowmintClient client = client(server, Duration.ofMillis(100))) {
            Result result = new SnowmintIDGen(client).get("503");
            assertEquals("Result{id=-3, status=EXCEPTION}", result.toString());
        }
    }
}
