//! The part of ZooKeeper's protocol that the store uses: requests, and a parser of answers that checks every
//! length against its frame.
//!
//! Numbers are big-endian. Frames, values and texts begin with their length, lists with their count; -1 means
//! that there is none.

use std::fmt;
use std::time::Duration;

/// The maximum bytes of an answer. A server limits requests to 1 MiB (`jute.maxbuffer`), but not its answers:
/// this is the list of a folder with a million records.
const LONGEST_FRAME: usize = 64 << 20;

/// The identifiers of what is not a request of the store.
pub(super) const NOTIFICATION: i32 = -1;
pub(super) const PING: i32 = -2;
pub(super) const AUTH: i32 = -4;

/// The types of requests.
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_CHILDREN: i32 = 8;
const PING_TYPE: i32 = 11;
/// A `create` whose answer has the state of the znode.
const CREATE2: i32 = 15;
const AUTH_TYPE: i32 = 100;
const CLOSE_SESSION: i32 = -11;

/// All rights: read, write, create, delete and admin.
const ALL_RIGHTS: i32 = 31;

/// The owner of a new znode.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    Everybody,
    /// The user of the session.
    Creator,
}

/// A request without its identifier: a number for its type, and its fields.
struct Fields(Vec<u8>);

impl Fields {
    fn of(kind: i32) -> Self {
        Self(kind.to_be_bytes().to_vec())
    }

    fn int(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn long(mut self, number: i64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self = self.int(length(bytes.len()));
        self.0.extend(bytes);
        self
    }

    /// A path, and that no watch is wanted.
    fn unwatched(self, path: &str) -> Vec<u8> {
        let mut fields = self.bytes(path.as_bytes()).0;
        fields.push(0);
        fields
    }
}

/// A server refuses all that is longer than 1 MiB, so the length of no request is cut off here.
fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// A persistent znode; answered by [`created`].
pub(super) fn create(path: &str, value: &[u8], owner: Owner) -> Vec<u8> {
    let (scheme, id) = match owner {
        Owner::Everybody => ("world", "anyone"),
        Owner::Creator => ("auth", ""),
    };
    let fields = Fields::of(CREATE2).bytes(path.as_bytes()).bytes(value).int(1).int(ALL_RIGHTS);
    fields.bytes(scheme.as_bytes()).bytes(id.as_bytes()).int(0).0
}

/// Answered by [`stat`].
pub(super) fn exists(path: &str) -> Vec<u8> {
    Fields::of(EXISTS).unwatched(path)
}

/// Answered by [`value_and_stat`].
pub(super) fn get_data(path: &str) -> Vec<u8> {
    Fields::of(GET_DATA).unwatched(path)
}

/// Answered by [`stat`]. The version -1 means any.
pub(super) fn set_data(path: &str, value: &[u8], version: i32) -> Vec<u8> {
    Fields::of(SET_DATA).bytes(path.as_bytes()).bytes(value).int(version).0
}

/// Answered by [`names`].
pub(super) fn get_children(path: &str) -> Vec<u8> {
    Fields::of(GET_CHILDREN).unwatched(path)
}

pub(super) fn ping() -> Vec<u8> {
    Fields::of(PING_TYPE).0
}

pub(super) fn close() -> Vec<u8> {
    Fields::of(CLOSE_SESSION).0
}

/// Any password is accepted.
pub(super) fn auth(user: &str, password: &str) -> Vec<u8> {
    Fields::of(AUTH_TYPE).int(0).bytes(b"digest").bytes(format!("{user}:{password}").as_bytes()).0
}

/// Returns a request with its identifier as a frame.
pub(super) fn framed(xid: i32, request: &[u8]) -> Vec<u8> {
    let mut frame = Fields::of(length(request.len() + 4)).int(xid).0;
    frame.extend(request);
    frame
}

/// Returns the frame that asks for a new session, which [`session_timeout`] answers.
pub(super) fn connect(timeout: Duration) -> Vec<u8> {
    let ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // Version, last transaction seen, timeout, session, its password, and whether a read-only server will do.
    let mut request = Fields::of(0).long(0).int(ms).long(0).bytes(&[0; 16]).0;
    request.push(0);
    Fields(Vec::new()).bytes(&request).0
}

/// What is wrong with an answer.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum InvalidAnswer {
    #[error("an answer of {0} bytes: expected 0 to {LONGEST_FRAME}")]
    Frame(i32),
    #[error("an answer that ends early: expected {expected} more bytes, found {found}")]
    Short { expected: usize, found: usize },
    #[error("an answer with length {0}: expected -1 or more")]
    Length(i32),
    #[error("an answer with a name that is not UTF-8")]
    NotText,
    #[error("an answer to request {0}, which does not wait for one")]
    Order(i32),
}

/// Returns the first frame of a stream; `None` if it is not complete yet.
pub(super) fn first_frame(stream: &[u8]) -> Result<Option<&[u8]>, InvalidAnswer> {
    let Some((length, rest)) = stream.split_first_chunk() else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    match usize::try_from(length) {
        Ok(bytes) if bytes <= LONGEST_FRAME => Ok(rest.get(..bytes)),
        _ => Err(InvalidAnswer::Frame(length)),
    }
}

/// What is left of an answer.
struct Unread<'a>(&'a [u8]);

impl<'a> Unread<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], InvalidAnswer> {
        let found = self.0.len();
        let short = InvalidAnswer::Short { expected: count, found };
        let (taken, rest) = self.0.split_at_checked(count).ok_or(short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], InvalidAnswer> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn int(&mut self) -> Result<i32, InvalidAnswer> {
        self.array().map(i32::from_be_bytes)
    }

    fn long(&mut self) -> Result<i64, InvalidAnswer> {
        self.array().map(i64::from_be_bytes)
    }

    /// Returns a length or a count; 0 for none.
    fn length(&mut self) -> Result<usize, InvalidAnswer> {
        match self.int()? {
            -1 => Ok(0),
            length => usize::try_from(length).map_err(|_| InvalidAnswer::Length(length)),
        }
    }

    fn bytes(&mut self) -> Result<&'a [u8], InvalidAnswer> {
        let length = self.length()?;
        self.take(length)
    }

    fn stat(&mut self) -> Result<Stat, InvalidAnswer> {
        let [czxid, mzxid] = [self.long()?, self.long()?];
        let [ctime, mtime] = [self.long()?, self.long()?];
        let version = self.int()?;
        // The versions of its children and its ACL, an owner, the length of its value, the number and the
        // transaction of its children.
        self.take(4 + 4 + 8 + 4 + 4 + 8)?;
        Ok(Stat { czxid, mzxid, ctime, mtime, version })
    }
}

/// The state of a znode, in ZooKeeper's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stat {
    /// The transaction that created it.
    pub(super) czxid: i64,
    /// The transaction that last wrote it.
    pub(super) mzxid: i64,
    /// The times of both in Unix milliseconds.
    pub(super) ctime: i64,
    pub(super) mtime: i64,
    /// The number of writes since it was created.
    pub(super) version: i32,
}

/// The beginning of every answer but the first.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) xid: i32,
    /// Why the server refused the request, if it did.
    pub(super) refused: Option<ErrorCode>,
}

/// Splits an answer into its header and the fields of its type. Later versions may append fields, so what
/// follows the known ones is ignored, as in ZooKeeper's own client.
pub(super) fn header(frame: &[u8]) -> Result<(Header, &[u8]), InvalidAnswer> {
    let mut unread = Unread(frame);
    let (xid, _transaction, code) = (unread.int()?, unread.long()?, unread.int()?);
    let refused = (code != 0).then(|| ErrorCode::of(code));
    Ok((Header { xid, refused }, unread.0))
}

/// Returns how long a new session outlives its connection; `None` if the server refused to open one.
pub(super) fn session_timeout(frame: &[u8]) -> Result<Option<Duration>, InvalidAnswer> {
    let mut unread = Unread(frame);
    let _version = unread.int()?;
    let ms = u64::try_from(unread.int()?).unwrap_or(0);
    Ok(Some(Duration::from_millis(ms)).filter(|it| !it.is_zero()))
}

pub(super) fn stat(fields: &[u8]) -> Result<Stat, InvalidAnswer> {
    Unread(fields).stat()
}

pub(super) fn created(fields: &[u8]) -> Result<Stat, InvalidAnswer> {
    let mut unread = Unread(fields);
    let _path = unread.bytes()?;
    unread.stat()
}

pub(super) fn value_and_stat(fields: &[u8]) -> Result<(Vec<u8>, Stat), InvalidAnswer> {
    let mut unread = Unread(fields);
    let value = unread.bytes()?.to_vec();
    Ok((value, unread.stat()?))
}

pub(super) fn names(fields: &[u8]) -> Result<Vec<String>, InvalidAnswer> {
    let mut unread = Unread(fields);
    let count = unread.length()?;
    // Not reserved: the count may be wrong.
    let mut names = Vec::new();
    for _ in 0..count {
        let name = str::from_utf8(unread.bytes()?).map_err(|_| InvalidAnswer::NotText)?;
        names.push(name.to_owned());
    }
    Ok(names)
}

/// The reason why a server refused a request, in ZooKeeper's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ErrorCode {
    ConnectionLoss,
    MarshallingError,
    Unimplemented,
    OperationTimeout,
    BadArguments,
    NoNode,
    NoAuth,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    SessionExpired,
    InvalidAcl,
    AuthFailed,
    SessionMoved,
    NotReadOnly,
    RequestTimeout,
    QuotaExceeded,
    Throttled,
    /// One that the store does not expect.
    Other(i32),
}

impl ErrorCode {
    const fn of(code: i32) -> Self {
        match code {
            -4 => Self::ConnectionLoss,
            -5 => Self::MarshallingError,
            -6 => Self::Unimplemented,
            -7 => Self::OperationTimeout,
            -8 => Self::BadArguments,
            -101 => Self::NoNode,
            -102 => Self::NoAuth,
            -103 => Self::BadVersion,
            -108 => Self::NoChildrenForEphemerals,
            -110 => Self::NodeExists,
            -112 => Self::SessionExpired,
            -114 => Self::InvalidAcl,
            -115 => Self::AuthFailed,
            -118 => Self::SessionMoved,
            -119 => Self::NotReadOnly,
            -122 => Self::RequestTimeout,
            -125 => Self::QuotaExceeded,
            -127 => Self::Throttled,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(code) => write!(f, "error {code}"),
            known => write!(f, "{known:?}"),
        }
    }
}

/// The parser, for the fuzz target.
pub mod fuzzing {
    /// Returns the first frame of a stream.
    pub fn frame(stream: &[u8]) -> Option<&[u8]> {
        super::first_frame(stream).ok().flatten()
    }

    /// Returns the names in an answer.
    pub fn names(answer: &[u8]) -> Option<Vec<String>> {
        super::names(super::header(answer).ok()?.1).ok()
    }

    /// Returns the value in an answer, and the transaction that wrote it.
    pub fn value(answer: &[u8]) -> Option<(Vec<u8>, i64)> {
        let (value, stat) = super::value_and_stat(super::header(answer).ok()?.1).ok()?;
        Some((value, stat.mzxid))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the bytes of a state, of which the store skips some.
    fn state_bytes(stat: &Stat, skipped: [u8; 32]) -> Vec<u8> {
        let Stat { czxid, mzxid, ctime, mtime, version } = stat;
        let fields = Fields(Vec::new()).long(*czxid).long(*mzxid).long(*ctime).long(*mtime).int(*version);
        [&*fields.0, &skipped].concat()
    }

    fn stats() -> impl Strategy<Value = Stat> {
        any::<(i64, i64, i64, i64, i32)>().prop_map(|(czxid, mzxid, ctime, mtime, version)| Stat {
            czxid,
            mzxid,
            ctime,
            mtime,
            version,
        })
    }

    proptest! {
        /// Goal: every answer is read back. Method: answers with what a later version may append, and each of
        /// their beginnings, which is too short.
        #[test]
        fn an_answer_is_read_as_it_was_written(
            stat in stats(), skipped: [u8; 32], value: Vec<u8>, names: Vec<String>, more: [u8; 3],
        ) {
            let state = state_bytes(&stat, skipped);
            prop_assert_eq!(super::stat(&[&*state, &more].concat()), Ok(stat));
            let record = [&*Fields(Vec::new()).bytes(&value).0, &state].concat();
            prop_assert_eq!(value_and_stat(&[&*record, &more].concat()), Ok((value.clone(), stat)));
            prop_assert_eq!(created(&record), Ok(stat));
            for end in 0..record.len() {
                let short = value_and_stat(&record[..end]);
                prop_assert!(matches!(short, Err(InvalidAnswer::Short { .. })), "{:?}", short);
            }
            let list = Fields(Vec::new()).int(length(names.len()));
            let list = names.iter().fold(list, |list, name| list.bytes(name.as_bytes())).0;
            prop_assert_eq!(super::names(&[&*list, &more].concat()), Ok(names.clone()));
            if !names.is_empty() {
                prop_assert!(super::names(&list[..list.len() - 1]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            if let Ok(Some(frame)) = first_frame(&bytes) {
                prop_assert_eq!(frame, &bytes[4..][..frame.len()]);
            }
            if let Ok((_, fields)) = header(&bytes) {
                prop_assert_eq!(fields, &bytes[16..]);
            }
            session_timeout(&bytes).ok();
            stat(&bytes).ok();
            created(&bytes).ok();
            value_and_stat(&bytes).ok();
            names(&bytes).ok();
        }
    }

    #[test]
    fn a_length_is_in_bounds() {
        let longest = i32::try_from(LONGEST_FRAME).unwrap();
        for (length, wanted) in [
            (longest, Ok(None)),
            (0, Ok(Some(&[][..]))),
            (longest + 1, Err(InvalidAnswer::Frame(longest + 1))),
            (-1, Err(InvalidAnswer::Frame(-1))),
        ] {
            assert_eq!(first_frame(&length.to_be_bytes()), wanted, "{length}");
        }
        assert_eq!(first_frame(&[0, 0, 0]), Ok(None));
        // No value, as an operator creates it, and no list.
        let none = (-1_i32).to_be_bytes();
        assert_eq!(names(&none), Ok(Vec::new()));
        let stat = Stat { czxid: 1, mzxid: 2, ctime: 3, mtime: 4, version: 5 };
        let record = [&none[..], &state_bytes(&stat, [0; 32])].concat();
        assert_eq!(value_and_stat(&record), Ok((Vec::new(), stat)));
        assert_eq!(names(&(-2_i32).to_be_bytes()), Err(InvalidAnswer::Length(-2)));
        // A count and a length beyond the frame.
        let beyond = [i32::MAX.to_be_bytes(), i32::MAX.to_be_bytes()].concat();
        let short = InvalidAnswer::Short { expected: 2_147_483_647, found: 0 };
        assert_eq!(names(&beyond), Err(short));
        assert_eq!(names(&[0, 0, 0, 1, 0, 0, 0, 1, 0xff]), Err(InvalidAnswer::NotText));
    }

    #[test]
    fn a_server_that_refuses_says_why() {
        let answer = |code: i32| [&7_i32.to_be_bytes()[..], &[0; 8], &code.to_be_bytes()].concat();
        let read = |code| header(&answer(code)).map(|(header, _)| header);
        assert_eq!(read(0), Ok(Header { xid: 7, refused: None }));
        assert_eq!(read(-101), Ok(Header { xid: 7, refused: Some(ErrorCode::NoNode) }));
        let shown = |code| ErrorCode::of(code).to_string();
        assert_eq!([shown(-127), shown(-999)], ["Throttled", "error -999"]);
        let granted = |ms: i32| session_timeout(&[[0; 4], ms.to_be_bytes()].concat());
        assert_eq!(granted(6000), Ok(Some(Duration::from_secs(6))));
        assert_eq!([granted(0), granted(-1)], [Ok(None), Ok(None)]);
    }
}
