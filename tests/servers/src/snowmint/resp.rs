//! A small blocking client of the Redis protocol.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Simple(String),
    /// `-ERR what is wrong`
    Error(String),
    /// `:7`
    Integer(i64),
    /// `$2` and two bytes, or `=` and a verbatim string.
    Bulk(String),
    /// `*` or `~`
    Array(Vec<Reply>),
    /// `%`
    Map(Vec<(Reply, Reply)>),
    /// `_`, or a bulk or array of length -1.
    Null,
    /// `,` `#` or `(`: the rest of RESP3's scalars, as text.
    Other(String),
}

impl Reply {
    /// The ids in the reply to `ID.NEXT`: one bulk string of digits, or an array of them.
    ///
    /// # Errors
    ///
    /// The text of an error reply.
    ///
    /// # Panics
    ///
    /// If it is neither.
    pub fn ids(self) -> Result<Vec<u64>, String> {
        let id = |reply| match reply {
            Self::Bulk(digits) => digits.parse().unwrap_or_else(|_| panic!("expected an id, got {digits:?}")),
            other => panic!("expected an id, got {other:?}"),
        };
        match self {
            Self::Error(text) => Err(text),
            Self::Array(ids) => Ok(ids.into_iter().map(id).collect()),
            one => Ok(vec![id(one)]),
        }
    }

    /// The text of an error reply.
    ///
    /// # Panics
    ///
    /// If it is not an error.
    pub fn error(self) -> String {
        match self {
            Self::Error(text) => text,
            other => panic!("expected an error, got {other:?}"),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Resp {
    stream: BufReader<TcpStream>,
}

impl Resp {
    /// Connects; every read and write then takes `patience` at most.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn connect(address: SocketAddrV4, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address.into(), patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream: BufReader::with_capacity(64 * 1024, stream) })
    }

    /// The socket itself.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn call(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.write(&command(words))?;
        self.read()
    }

    /// Sends `ID.NEXT namespace COUNT count` and reads the ids, or the text of the error.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn next(&mut self, namespace: &str, count: usize) -> io::Result<Result<Vec<u64>, String>> {
        let reply = self.call(&["ID.NEXT", namespace, "COUNT", &count.to_string()])?;
        let ids = reply.ids();
        if let Ok(ids) = &ids {
            assert_eq!(ids.len(), count, "the requested number of ids");
        }
        Ok(ids)
    }

    /// Sends `count` times `ID.NEXT namespace` at once, then reads the replies and passes each to `take`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); earlier replies were given to `take`.
    pub fn pipeline(
        &mut self,
        namespace: &str,
        count: usize,
        mut take: impl FnMut(Result<u64, String>),
    ) -> io::Result<()> {
        self.write(&command(&["ID.NEXT", namespace]).repeat(count))?;
        for _ in 0..count {
            take(self.read()?.ids().map(|ids| ids[0]));
        }
        Ok(())
    }

    /// Reads one reply.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnexpectedEof`] inside a reply, [`ErrorKind::ConnectionAborted`] if the server closed
    /// between replies, [`ErrorKind::InvalidData`] for an invalid reply; otherwise the error of the system.
    pub fn read(&mut self) -> io::Result<Reply> {
        let closed = || io::Error::new(ErrorKind::ConnectionAborted, "the server closed between replies");
        self.read_unless_closed()?.ok_or_else(closed)
    }

    /// Reads one reply; `None` if the server closed between replies.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); [`ErrorKind::ConnectionReset`] only between replies.
    pub fn read_unless_closed(&mut self) -> io::Result<Option<Reply>> {
        if self.stream.fill_buf()?.is_empty() {
            return Ok(None);
        }
        self.reply().map(Some).map_err(|error| match error.kind() {
            ErrorKind::ConnectionReset => {
                io::Error::new(ErrorKind::UnexpectedEof, "the server reset the connection inside a reply")
            }
            _ => error,
        })
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let mut chars = line.chars();
        let kind = chars.next();
        let rest = chars.as_str();
        Ok(match kind {
            Some('+') => Reply::Simple(rest.to_owned()),
            Some('-') => Reply::Error(rest.to_owned()),
            Some(':') => Reply::Integer(number(rest)?),
            Some('_') => Reply::Null,
            Some(',' | '#' | '(') => Reply::Other(rest.to_owned()),
            Some('$' | '=') => match number(rest)? {
                -1 => Reply::Null,
                len => self.bulk(len)?,
            },
            Some('*' | '~' | '>') => match number(rest)? {
                -1 => Reply::Null,
                len => Reply::Array((0..len).map(|_| self.reply()).collect::<io::Result<_>>()?),
            },
            Some('%') => {
                let pairs = (0..number(rest)?).map(|_| Ok((self.reply()?, self.reply()?)));
                Reply::Map(pairs.collect::<io::Result<_>>()?)
            }
            _ => return Err(invalid(&line)),
        })
    }

    fn bulk(&mut self, len: i64) -> io::Result<Reply> {
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| invalid("a negative length"))? + 2];
        self.stream.read_exact(&mut bytes)?;
        match bytes.strip_suffix(b"\r\n") {
            Some(text) => Ok(Reply::Bulk(String::from_utf8_lossy(text).into_owned())),
            None => Err(invalid("a bulk string that does not end")),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None if line.ends_with('\n') => Err(invalid(&line)),
            None => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed inside a reply")),
        }
    }
}

/// A command as clients write it: an array of bulk strings.
pub fn command(words: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        let _ = write!(text, "${}\r\n{word}\r\n", word.len());
    }
    text.into_bytes()
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| invalid(text))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not a reply: {what:?}"))
}
