// The interface of `snowmint serve --thrift`, for clients in any language: thrift --gen LANGUAGE snowflake.thrift.
// It is that of Twitter's Snowflake server (https://github.com/twitter-archive/snowflake), whose clients work unchanged.
// The service `Snowflake` is the original one: errors arrive as TApplicationException, with the reason as its message.
// `SnowflakeThrows` is for servers started with --thrift-exceptions declared.

exception InvalidSystemClock {
  1: string message,
}

exception InvalidUserAgentError {
  1: string message,
}

service Snowflake {
  // The worker that this node holds; of several, the first.
  i64 get_worker_id()
  // The time of the node in unix milliseconds.
  i64 get_timestamp()
  // The next id. The user agent begins with a letter, followed by letters, digits and '-'.
  i64 get_id(1: string useragent)
  i64 get_datacenter_id()
}

service SnowflakeThrows {
  i64 get_worker_id()
  i64 get_timestamp()
  i64 get_id(1: string useragent) throws (1: InvalidUserAgentError agent, 2: InvalidSystemClock clock)
  i64 get_datacenter_id()
}
