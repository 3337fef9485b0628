//! The scripts, and the requests made of them.
//! Each begins with a write that changes nothing: a replica refuses it, and so does a primary without its replicas.

use std::sync::LazyLock;

use redis::{Pipeline, Script};

use super::{Copies, Names};

/// Before a read. PERSIST is a write that needs no memory, so a server that is full can still be read; where copies
/// are asked for, INCR makes a change that the copies have to confirm, together with all before it.
const READ_FENCE: &str =
    "if ARGV[1] == '1' then redis.call('INCR', KEYS[1]) else redis.call('PERSIST', KEYS[1]) end ";

/// Before a write. An empty SETRANGE makes no key and changes none, but is refused where memory has run out: only the
/// first write of a script is checked for that, and it must not be one that leaves half a record behind.
static SWAP: LazyLock<Code> = LazyLock::new(|| {
    Code::new(
        "redis.call('SETRANGE', KEYS[1], 0, '') \
         local at = redis.call('HGET', KEYS[2], 'r') \
         if (at or '0') ~= ARGV[1] then return 0 end \
         if not at then redis.call('ZADD', KEYS[3], 0, ARGV[2]) end \
         redis.call('HSET', KEYS[2], 'r', ARGV[3], 'v', ARGV[4]) \
         return 1"
            .to_owned(),
    )
});

static RECORDS: LazyLock<Code> = LazyLock::new(|| {
    Code::new(format!(
        "{READ_FENCE}local found = {{}} \
         for at = 2, #KEYS do found[at - 1] = redis.call('HMGET', KEYS[at], 'r', 'v') end \
         return found"
    ))
});

static KEYS: LazyLock<Code> = LazyLock::new(|| {
    Code::new(format!(
        "{READ_FENCE}return redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])"
    ))
});

/// A script, and the name that a server that has seen it knows it by.
struct Code {
    source: String,
    hash: String,
}

impl Code {
    fn new(source: String) -> Self {
        let hash = Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }
}

/// A script with its keys and arguments.
pub(super) struct Request {
    code: &'static Code,
    reads: bool,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Request {
    /// The swap of one record; `before` is 0 where there must be none.
    pub(super) fn swap(names: &Names, key: &str, before: i64, after: i64, value: &[u8]) -> Self {
        let arguments: [Vec<u8>; 4] =
            [before.to_string().into(), key.into(), after.to_string().into(), value.to_vec()];
        Self {
            code: &SWAP,
            reads: false,
            keys: vec![names.fence(), names.record(key), names.index()],
            arguments: arguments.into(),
        }
    }

    /// Revision and value of each of these records.
    pub(super) fn records<'a>(names: &Names, keys: impl IntoIterator<Item = &'a str>) -> Self {
        let records = keys.into_iter().map(|key| names.record(key));
        let keys = [names.fence()].into_iter().chain(records).collect();
        Self { code: &RECORDS, reads: true, keys, arguments: Vec::new() }
    }

    /// The keys in a range, in their order.
    pub(super) fn keys(names: &Names, from: &str, to: &str, limit: usize) -> Self {
        let arguments: [Vec<u8>; 3] = [from.into(), to.into(), limit.to_string().into()];
        let keys = vec![names.fence(), names.index()];
        Self { code: &KEYS, reads: true, keys, arguments: arguments.into() }
    }

    /// A read of nothing: it tells whether scripts run and names can be reached.
    pub(super) fn probe(names: &Names) -> Self {
        Self::records(names, [])
    }

    /// The commands: the script by its hash or its source, and the wait for copies.
    pub(super) fn pipeline(&self, by_hash: bool, copies: Option<Copies>) -> Pipeline {
        let mut pipeline = redis::pipe();
        if by_hash {
            pipeline.cmd("EVALSHA").arg(&self.code.hash);
        } else {
            pipeline.cmd("EVAL").arg(&self.code.source);
        }
        pipeline.arg(self.keys.len()).arg(&self.keys);
        if self.reads {
            pipeline.arg(u8::from(copies.is_some()));
        }
        pipeline.arg(&self.arguments);
        if let Some(Copies { wanted, wait_ms }) = copies {
            pipeline.cmd("WAIT").arg(wanted).arg(wait_ms);
        }
        pipeline
    }
}

/// The server's time.
pub(super) fn time() -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.cmd("TIME");
    pipeline
}
