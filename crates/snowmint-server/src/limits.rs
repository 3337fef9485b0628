//! All limits of the service: what a request may ask for, and what a connection may hold.
//! A client that reaches a limit gets an error that names it.

use std::time::Duration;

/// The maximum number of ids in one request.
pub const MAX_COUNT: usize = 100_000;

/// The maximum number of ids in one request for ranges, whose answer is short.
pub const MAX_RANGE_COUNT: usize = 1_000_000;

/// How long a request may wait for its ids before it fails.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// The maximum `Retry-After` while the clock is behind. Somebody may correct the clock long before it catches
/// up by itself.
pub const MAX_CLOCK_RETRY: Duration = Duration::from_secs(10);

/// The default maximum number of connections, over all protocols.
pub const MAX_CONNECTIONS: usize = 10_000;

/// The default time limit for requests in flight at shutdown.
pub const DRAIN: Duration = Duration::from_secs(5);

/// Bytes of output that are collected before they are sent. A connection holds no more for a client that
/// reads slowly, however much it requested.
pub const FLUSH_AT: usize = 64 * 1024;

/// Initial bytes of the read buffer of RESP and Thrift, also after a rest: enough for a request. If buffers
/// of a page were used, thousands of freed ones would not be returned to the system, since memory in use lies
/// between them.
pub const FIRST_ROOM: usize = 512;

/// Bytes of the read buffer after a large request.
pub const READ_ROOM: usize = 4 * 1024;

/// Bytes that the read buffer grows to while reads fill it.
pub const MAX_READ_ROOM: usize = 64 * 1024;

/// Commands that are answered together with the one they repeat. It also limits the bytes that are compared
/// for a command that is then rejected.
pub const MAX_REPEATS: usize = 255;

/// Bytes that a connection reads and writes before other connections get their turn.
pub const TURN: usize = FLUSH_AT;

/// A connection that has read and written this many bytes without a pause waits in line for its next turn,
/// unless it rested. It is more than a usual request and its answer.
pub const LONG_TURN: usize = 4 * 1024;

/// How long a client that keeps sending is still answered at shutdown.
pub const LAST_REQUESTS: Duration = Duration::from_secs(1);

/// The default time limit for idle connections. It is longer than that of load balancers, so that they close
/// first.
pub const IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// The default time limit for a request to arrive once it has begun.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The default time limit for a client that reads nothing of its answer.
pub const WRITE_TIMEOUT: Duration = Duration::from_mins(1);

pub use snowmint_admin::limits::MAX_SERVED_NAMESPACES;

/// The protocols, each with reserved connections of its own. The port for health and metrics counts as one.
pub const PROTOCOLS: usize = 5;

/// Connections of each protocol beyond the connection limit. On them HTTP answers `/healthz`, `/readyz` and
/// `/metrics`, and gRPC health checks; both reject every other request with the reason. When all are taken, a
/// new one replaces the oldest. The port for health and metrics has only these.
pub const RESERVED: usize = 64;

/// Open files reserved for the store, the log and the process itself.
pub const OTHER_FILES: usize = 32;

/// Time limit for a connection beyond the connection limit.
pub const LINGER: Duration = Duration::from_secs(1);

/// A connection that is idle for this long frees its buffers, and its next request does not wait in line.
pub const REST: Duration = Duration::from_secs(1);

/// An HTTP/1.1 client frees its buffers this soon after its first request, so that the next new client reuses
/// them. Freed a second later, they leave holes between connections that cannot be returned to the system.
pub const FIRST_REST: Duration = Duration::from_millis(20);

/// New connections that a port accepts before others run and the sockets are polled again. Each costs about
/// as much as a small request: a flood of them would come before the requests of clients that are there.
pub const NEW_AT_ONCE: u32 = 4;

/// Unsent bytes of an answer that the system holds for a client.
pub const UNSENT: u32 = 128 * 1024;

/// A silent connection is probed after this time, so that a vanished client does not keep its connection.
pub const KEEPALIVE: Duration = Duration::from_mins(5);

/// Limits of the answers that wait for their clients to read them, over HTTP and gRPC.
pub mod unread {
    use std::time::Duration;

    use super::http::CHUNK;

    /// Bytes of an answer that does not count: the state of a request has more.
    pub const SMALL: usize = 1024;
    /// Bytes that a long answer holds if it is made while it is sent: a chunk that is being sent, and another
    /// one.
    pub const LONG: usize = 2 * CHUNK;
    /// Bytes that each connection may hold, whatever others hold.
    pub const OWN: usize = LONG;
    /// Bytes of all answers of a connection: as many long ones as it may have requests in flight.
    pub const CONNECTION: usize = 4 * 1024 * 1024;
    /// Bytes of all answers beyond what each connection may always hold.
    pub const ALL: usize = 12 * 1024 * 1024;
    /// How long a client may read no byte of an answer over HTTP/2 while others need the memory that its
    /// connection holds.
    pub const READ_SOON: Duration = Duration::from_secs(5);
    /// Bytes of the renderings of the metrics that clients still read, in each format. Two may always be in
    /// memory.
    pub const RENDERINGS: usize = 6 * 1024 * 1024;
    /// How long a client has to read a rendering, if newer ones need its memory.
    pub const READ_RENDERING: Duration = Duration::from_secs(5);
    /// The longest pause between two renderings, and how long the last one is kept.
    pub const RENDER_EVERY: Duration = Duration::from_secs(1);
    /// How many times as long as a rendering the pause after it is.
    pub const RENDER_PAUSE: u32 = 20;
}

/// Limits of the Redis protocol.
pub mod resp {
    /// Arguments of a command, including its name. Redis allows a million; no command here needs many.
    pub const MAX_ARGS: usize = 1024;
    /// Bytes of one argument.
    pub const MAX_BULK: usize = 64 * 1024;
    /// Bytes of an inline command.
    pub const MAX_INLINE: usize = 64 * 1024;
    /// Bytes of a whole command: with [`MAX_READ_ROOM`](super::MAX_READ_ROOM) this limits the input that a
    /// connection buffers.
    pub const MAX_COMMAND: usize = 128 * 1024;
    /// Bytes of the commands between `MULTI` and `EXEC`.
    pub const MAX_QUEUED: usize = 256 * 1024;
    /// Bytes of the commands between `MULTI` and `EXEC`, over all connections.
    pub const MAX_QUEUED_IN_ALL: usize = 16 * 1024 * 1024;
    /// Bytes of the name or version that a client sets, held as long as it is connected.
    pub const MAX_CLIENT_NAME: usize = 256;
}

/// Limits of Thrift.
pub mod thrift {
    /// Bytes of a message. A call of the interface has fewer than 100, apart from its user agent.
    pub const MAX_MESSAGE: usize = 4 * 1024;
    /// Structs, lists and maps within each other.
    pub const MAX_DEPTH: u8 = 16;
}

/// Limits of gRPC.
pub mod grpc {
    /// Bytes of a request message. A request of the interface has fewer than 100, apart from an id and the
    /// text of a layout.
    pub const MAX_MESSAGE: usize = 4 * 1024;
    /// Bytes of a response that are made at a time. A call holds about twice as many for a client that reads
    /// slowly.
    pub const CHUNK: usize = 16 * 1024;
    /// Ids of one response as texts. A message has its length first, so that all texts are made before they
    /// are sent.
    pub const MAX_TEXTS: usize = 1000;
    /// Namespaces of one response.
    pub const MAX_PAGE: usize = 1000;
}

/// Limits of the admin API.
pub use snowmint_admin::limits as admin;

/// Limits of the view of the fleet.
pub mod fleet {
    use std::time::Duration;

    /// Viewers of a node at once. All of them together cost the store no more than one.
    pub const VIEWERS: usize = 64;
    /// Time between two states while somebody watches, and the minimum interval between the starts of two
    /// reads of the store. A slow read makes the interval of reads four times as long as the read took, up to
    /// [`AT_LEAST_EVERY`].
    pub const EVERY: Duration = Duration::from_secs(2);
    /// The longest time between two reads.
    pub const AT_LEAST_EVERY: Duration = Duration::from_secs(30);
    /// How long a state waits for a read of the store that is in progress.
    pub const PATIENCE: Duration = Duration::from_millis(500);
    /// Namespaces, counters and changes are read at every second read.
    pub const OTHERS_EVERY: u32 = 2;
    /// How long a read may take before the store counts as one that does not answer.
    pub const WITHIN: Duration = Duration::from_secs(5);
    /// Time between two questions to the peers of a node.
    pub const PEERS_EVERY: Duration = Duration::from_secs(5);
    /// Time between two questions to the peers of a node which store they use.
    pub const STORES_EVERY: Duration = Duration::from_secs(30);
    /// How long a node is named whose lease ended without a release, unless its worker gets another holder
    /// before.
    pub const LAPSED_FOR: Duration = Duration::from_hours(1);
    /// A list of the workers that takes longer than this causes a warning.
    pub const SLOW_CALL: Duration = Duration::from_secs(1);
    /// Nodes.
    pub const NODES: usize = 200;
    /// Workers of a pool.
    pub const WORKERS_OF_POOL: usize = 200;
    /// Workers of all pools. Each pool gets an equal share, one worker at least.
    pub const WORKERS: usize = 1000;
    /// Namespaces.
    pub const NAMESPACES: usize = 1000;
    /// Entries of the audit log.
    pub const CHANGES: usize = 20;
    /// Problems. Each kind of problem gets a share.
    pub const PROBLEMS: usize = 20;
}

/// Limits of what a node remembers for the plots of the console: an hour.
pub mod history {
    use std::time::Duration;

    /// Time between two looks at the leases, and their number for a sample.
    pub const EVERY: Duration = Duration::from_secs(2);
    /// See [`EVERY`].
    pub const LOOKS: u32 = 15;
    /// Samples.
    pub const SAMPLES: usize = 120;
    /// Namespaces with a number of their own in a sample: those with the most ids.
    pub const NAMESPACES: usize = 5;
}

/// Limits of HTTP.
pub mod http {
    use std::time::Duration;

    /// Bytes of the request line and headers.
    pub const MAX_HEAD: usize = 16 * 1024;
    /// Headers of a request.
    pub const MAX_HEADERS: usize = 64;
    /// Bytes of one chunk of a chunked body.
    pub const CHUNK: usize = 16 * 1024;
    /// Ids up to which a body has a length; a larger body is chunked.
    pub const WHOLE_BODY_IDS: usize = 500;
    /// Bytes of an `Idempotency-Key`.
    pub const MAX_KEY: usize = 255;
    /// Ids of a request for ids with an `Idempotency-Key`, whose answer is kept. Ranges are short.
    pub const MAX_KEYED_COUNT: usize = 1_000;
    /// How long an answer to a request with an `Idempotency-Key` is kept, unless there are too many.
    pub const KEEP: Duration = Duration::from_mins(10);
    /// Bytes of all kept answers. The oldest are dropped.
    pub const MAX_KEPT: usize = 16 * 1024 * 1024;
}

/// Limits of a connection of HTTP/2, for HTTP and gRPC.
pub mod http2 {
    /// Requests in flight at once. A client library queues further ones.
    pub const MAX_STREAMS: u32 = 100;
    /// Bytes of the headers of a request.
    pub const MAX_HEAD: u32 = 16 * 1024;
    /// Streams that the client opened and reset before the server saw them. With more, the connection is
    /// closed.
    pub const MAX_RESETS: usize = 100;
    /// Streams that were reset because the client broke the rules. With more, the connection is closed.
    pub const MAX_FAULTS: usize = 1000;
    /// Bytes of a request that a client may send before the server has read them: about 200 requests of a
    /// gRPC stream.
    pub const STREAM_WINDOW: u32 = 4 * 1024;
    /// Bytes that all requests of a connection may send before the server has read them. h2 allows half of it
    /// for the overhead of unread small frames, at 256 bytes each: about 5,000 of them. A client may send 64
    /// KiB before it has read these limits, which is as many requests of gRPC streams.
    pub const CONNECTION_WINDOW: u32 = 2560 * 1024;
    /// Unsent bytes of one answer. It holds another chunk, which is ready to be sent.
    pub const MAX_SEND_BUFFER: usize = 16 * 1024;
}
