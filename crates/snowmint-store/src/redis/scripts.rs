//! The Lua scripts, and the requests that use them. Scripts on records and marks start with a write that
//! changes nothing: a replica refuses it, and so does a primary without its replicas. Scripts on a counter of
//! another system write only to count, so such a server may also answer that it counted nothing.

use std::sync::LazyLock;

use redis::{Pipeline, Script};

use super::Names;
use super::connect::Copies;
use crate::counter::claims::{KEPT, MOST};

/// Precedes a read. PERSIST is a write that needs no memory, so a full server can still be read. If replicas
/// are required, INCR makes a change that they have to confirm, together with everything before it.
const READ_FENCE: &str =
    "if ARGV[1] == '1' then redis.call('INCR', KEYS[1]) else redis.call('PERSIST', KEYS[1]) end ";

/// Precedes a write. An empty SETRANGE changes nothing, but is refused if memory has run out: only the first
/// write of a script is checked for that, so it must not be one that could leave half a record behind. It
/// makes the fence if there is none: a cluster that moves keys runs no script on keys that do not exist.
const WRITE_FENCE: &str =
    "if redis.call('SETRANGE', KEYS[1], 0, '') == 0 then redis.call('INCR', KEYS[1]) end ";

/// Compares and sets. A value without a revision is a damaged record, which some node may hold, and not a
/// free key.
static SWAP: LazyLock<Code> = LazyLock::new(|| {
    Code::fenced_write(
        "local found = redis.call('HMGET', KEYS[2], 'r', 'v') \
         local at = found[1] \
         if (at or '0') ~= ARGV[1] or (found[2] and not at) then return 0 end \
         if not at then redis.call('HINCRBY', KEYS[4], 'n', 1) end \
         redis.call('ZADD', KEYS[3], 0, ARGV[2]) \
         redis.call('HSET', KEYS[2], 'r', ARGV[3], 'v', ARGV[4]) \
         return 1",
    )
});

/// Adds to a record. Numbers in Lua are exact only up to 2^53, so digits are compared as text and added by
/// HINCRBY. The revision comes first, because its HINCRBY may fail; that of the sum cannot.
static ADD: LazyLock<Code> = LazyLock::new(|| {
    Code::fenced_write(
        "local found = redis.call('HMGET', KEYS[2], 'r', 'v') \
         local at, before, most = found[1], found[2], ARGV[4] \
         if at then \
           if not before or not string.find(at, '^[1-9][0-9]*$') then return 0 end \
           if before ~= '0' and not string.find(before, '^[1-9][0-9]*$') then return 0 end \
         elseif before then return 0 \
         else before = '0' end \
         if #before > #most or (#before == #most and before > most) then return 0 end \
         if not at then redis.call('HINCRBY', KEYS[4], 'n', 1) end \
         redis.call('ZADD', KEYS[3], 0, ARGV[1]) \
         redis.call('HINCRBY', KEYS[2], 'r', ARGV[2]) \
         redis.call('HINCRBY', KEYS[2], 'v', ARGV[3]) \
         return before",
    )
});

/// As [`ADD`], on an existing plain number under a name of another system: only INCRBY changes it.
static TAKE: LazyLock<Code> = LazyLock::new(|| {
    Code::new(
        "if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end \
         local before, most = redis.call('GET', KEYS[1]), ARGV[2] \
         if before ~= '0' and not string.find(before, '^[1-9][0-9]*$') then return 0 end \
         if #before > #most or (#before == #most and before > most) then return 0 end \
         redis.call('INCRBY', KEYS[1], ARGV[1]) \
         return before",
    )
});

/// As [`TAKE`], with a mark of the reservation in the same step: if the mark survives, so does the addition.
/// Returns -1 as a number if there are too many marks. The oldest marks beyond the number to keep leave the
/// list if they are among the given settled ones.
static TAKE_MARKED: LazyLock<Code> = LazyLock::new(|| {
    Code::new(
        "if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return 0 end \
         local before, most = redis.call('GET', KEYS[1]), ARGV[2] \
         if before ~= '0' and not string.find(before, '^[1-9][0-9]*$') then return 0 end \
         if #before > #most or (#before == #most and before > most) then return 0 end \
         local settled, given = {}, #ARGV - 5 \
         for at = 6, #ARGV do settled[ARGV[at]] = true end \
         local beyond = #redis.call('LRANGE', KEYS[2], ARGV[4] - 1, ARGV[4] - 2 + given) \
         local last, leave = beyond > 0 and redis.call('LRANGE', KEYS[2], -beyond, -1) or {}, 0 \
         while leave < beyond and settled[last[#last - leave]] do leave = leave + 1 end \
         if #redis.call('LRANGE', KEYS[2], ARGV[5] - 1 + leave, ARGV[5] - 1 + leave) > 0 then return -1 end \
         redis.call('LPUSH', KEYS[2], ARGV[3]) \
         if leave > 0 then redis.call('LTRIM', KEYS[2], 0, -leave - 1) end \
         redis.call('INCRBY', KEYS[1], ARGV[1]) \
         return before",
    )
});

/// Adds to a counter of another system if it still holds the value that was read.
static RAISE: LazyLock<Code> = LazyLock::new(|| {
    Code::new(
        "if redis.call('TYPE', KEYS[1]).ok ~= 'string' or redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
         redis.call('INCRBY', KEYS[1], ARGV[2]) \
         return 1",
    )
});

/// Returns the marks of reservations. PERSIST is a write, so no replica answers.
static MARKS: LazyLock<Code> =
    LazyLock::new(|| Code::new("redis.call('PERSIST', KEYS[1]) return redis.call('LRANGE', KEYS[1], 0, -1)"));

/// Returns records. A key of another type gets an invalid revision, so that it is reported without hiding the
/// others.
static RECORDS: LazyLock<Code> = LazyLock::new(|| {
    Code::fenced_read(
        "local found = {} \
         for at = 2, #KEYS do \
           local record = redis.pcall('HMGET', KEYS[at], 'r', 'v') \
           if record.err then record = {'none', ''} end \
           found[at - 1] = record \
         end \
         return found",
    )
});

/// Returns keys of the index, or 0 if the index is incomplete: it has fewer keys than were ever added, or the
/// count is missing.
static KEYS: LazyLock<Code> = LazyLock::new(|| {
    Code::fenced_read(
        "if tonumber(redis.call('HGET', KEYS[3], 'n') or -1) ~= redis.call('ZCARD', KEYS[2]) then return 0 end \
         return redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])",
    )
});

/// Puts the keys of all records into the index, on the server on which they were found: only that server is
/// known to have all of them. A record that was added meanwhile was indexed by its writer.
static INDEX: LazyLock<Code> = LazyLock::new(|| {
    Code::fenced_write(
        "if (string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '') ~= ARGV[1] then return 0 end \
         for at = 2, #ARGV do redis.call('ZADD', KEYS[2], 0, ARGV[at]) end \
         redis.call('HSET', KEYS[3], 'n', redis.call('ZCARD', KEYS[2])) \
         return 1",
    )
});

/// A script, and its hash, which identifies it to a server that has seen it.
struct Code {
    source: String,
    hash: String,
    /// Whether it begins with [`READ_FENCE`], whose argument says if replicas are required.
    has_read_fence: bool,
}

impl Code {
    fn new(source: impl Into<String>) -> Self {
        let source = source.into();
        let hash = Script::new(&source).get_hash().to_owned();
        Self { source, hash, has_read_fence: false }
    }

    fn fenced_read(source: &str) -> Self {
        Self { has_read_fence: true, ..Self::new(format!("{READ_FENCE}{source}")) }
    }

    fn fenced_write(source: &str) -> Self {
        Self::new(format!("{WRITE_FENCE}{source}"))
    }
}

/// A script with its keys and arguments.
pub(crate) struct ScriptCall {
    code: &'static Code,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl ScriptCall {
    const fn new(code: &'static Code, keys: Vec<String>) -> Self {
        Self { code, keys, arguments: Vec::new() }
    }

    fn argument(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(bytes.into());
        self
    }

    fn number(self, number: impl ToString + Copy) -> Self {
        self.argument(number.to_string())
    }

    /// Builds the swap of one record; `before` is 0 if there must be none.
    pub(super) fn swap(names: &Names, key: &str, before: i64, after: i64, value: &[u8]) -> Self {
        Self::new(&SWAP, names.of_record(key)).number(before).argument(key).number(after).argument(value)
    }

    /// Builds the addition to the number of one record. Its answer is the number before, or 0 as an integer
    /// if it is refused.
    pub(super) fn add(names: &Names, key: &str, step: i64, addend: i64) -> Self {
        let call = Self::new(&ADD, names.of_record(key)).argument(key).number(step);
        call.number(addend).number(i64::MAX - addend)
    }

    /// Builds the addition to a counter of another system. Its answer is as for [`add`](Self::add).
    pub(crate) fn take(counter: &str, addend: i64) -> Self {
        Self::new(&TAKE, vec![counter.to_owned()]).number(addend).number(i64::MAX - addend)
    }

    /// Builds the addition to a counter of another system, and a mark beside it. Its answer is as for
    /// [`add`](Self::add), and -1 as an integer if there is no room for the mark. The settled marks are given
    /// oldest first.
    pub(crate) fn take_marked(
        counter: &str,
        marks: &str,
        addend: i64,
        mark: &str,
        settled: impl IntoIterator<Item = String>,
    ) -> Self {
        let call = Self::new(&TAKE_MARKED, vec![counter.to_owned(), marks.to_owned()]).number(addend);
        let call = call.number(i64::MAX - addend).argument(mark).number(KEPT).number(MOST);
        settled.into_iter().fold(call, Self::argument)
    }

    /// Builds the addition to a counter of another system that holds `before`; its answer is 0 as an integer
    /// if it holds another value.
    pub(crate) fn raise(counter: &str, before: u64, addend: u64) -> Self {
        Self::new(&RAISE, vec![counter.to_owned()]).number(before).number(addend)
    }

    /// Builds the read of the newest marks of reservations.
    pub(crate) fn marks(marks: &str) -> Self {
        Self::new(&MARKS, vec![marks.to_owned()])
    }

    /// Builds the read of the revision and value of each of these records.
    pub(super) fn records<'a>(names: &Names, keys: impl IntoIterator<Item = &'a str>) -> Self {
        let records = keys.into_iter().map(|key| names.record(key));
        Self::new(&RECORDS, [names.fence()].into_iter().chain(records).collect())
    }

    /// Builds the read of the keys in a range, in order; its answer is 0 if the index has to be rebuilt
    /// first.
    pub(super) fn keys(names: &Names, from: &[u8], to: &str, limit: usize) -> Self {
        Self::new(&KEYS, names.of_index()).argument(from).argument(to).number(limit)
    }

    /// Builds the write of the complete index, from the keys of all records of a server; its answer is 0 on
    /// any other server.
    pub(super) fn index<'a>(names: &Names, server: &str, keys: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let call = Self::new(&INDEX, names.of_index()).argument(server);
        keys.into_iter().fold(call, Self::argument)
    }

    /// Builds a read of nothing, which checks that scripts run and names are accessible.
    pub(super) fn probe(names: &Names) -> Self {
        Self::records(names, [])
    }

    /// Returns the commands: the script by its hash or its source, and the wait for replicas.
    pub(super) fn pipeline(&self, by_hash: bool, copies: Option<Copies>) -> Pipeline {
        let mut pipeline = redis::pipe();
        if by_hash {
            pipeline.cmd("EVALSHA").arg(&self.code.hash);
        } else {
            pipeline.cmd("EVAL").arg(&self.code.source);
        }
        pipeline.arg(self.keys.len()).arg(&self.keys);
        if self.code.has_read_fence {
            pipeline.arg(u8::from(copies.is_some()));
        }
        pipeline.arg(&self.arguments);
        if let Some(Copies { wanted, wait_ms }) = copies {
            pipeline.cmd("WAIT").arg(wanted).arg(wait_ms);
        }
        pipeline
    }
}

/// Queries the type of a key, and its value if it is text.
pub(crate) fn type_and_text(key: &str) -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.cmd("TYPE").arg(key).cmd("GET").arg(key);
    pipeline
}

/// Queries one step of a scan by pattern, from a cursor that begins and ends at 0, and the identity of the
/// server.
pub(super) fn scan(cursor: &str, pattern: &str) -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
    pipeline.cmd("INFO").arg("server");
    pipeline
}

/// Returns a pattern that matches only this text.
pub(crate) fn literal(text: &str) -> String {
    let mut pattern = String::new();
    for sign in text.chars() {
        if matches!(sign, '*' | '?' | '[' | ']' | '^' | '\\') {
            pattern.push('\\');
        }
        pattern.push(sign);
    }
    pattern
}

/// Queries the values of keys, empty for those of another type.
pub(crate) fn texts(keys: &[String]) -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.cmd("MGET").arg(keys);
    pipeline
}

/// Queries the server's time.
pub(super) fn time() -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.cmd("TIME");
    pipeline
}
