package io.snowmint.leaf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sankuai.inf.leaf.IDGen;
import com.sankuai.inf.leaf.common.Status;

import io.snowmint.client.SnowmintClient;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.time.Duration;

class SnowmintIDGenTest {
    @Test
    void errorsAreLeafsCodes() throws IOException {
        try (FakeServer server = new FakeServer();
                SnowmintClient client =
                        SnowmintClient.builder()
                                .server(server.url())
                                .timeout(Duration.ofMillis(100))
                                .build()) {
            IDGen ids = new SnowmintIDGen(client);
            assertTrue(ids.init());
            assertEquals("Result{id=1, status=SUCCESS}", ids.get("orders").toString());
            assertEquals(2, ids.get("orders").getId());
            assertEquals("Result{id=-2, status=EXCEPTION}", ids.get("404").toString());
            assertEquals("Result{id=-2, status=EXCEPTION}", ids.get("a/b").toString());
            assertEquals("Result{id=-3, status=EXCEPTION}", ids.get("503").toString());
            assertEquals("Result{id=-1, status=EXCEPTION}", ids.get("403").toString());
            assertEquals(Status.SUCCESS, ids.get("orders").getStatus());
        }
    }
}
