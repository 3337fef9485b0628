/** A client of the Snowmint id service. */
module io.snowmint.client {
    requires java.net.http;

    exports io.snowmint.client;
}
