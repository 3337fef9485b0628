//! Small raw clients of gRPC and Thrift: they send exactly what the test says, all of it before they read
//! anything.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

/// The first bytes of an HTTP/2 connection: the preface and empty settings.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Types and flags of HTTP/2 frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// The bytes of a connection with one call of `snowmint.v1.Snowmint/Stream` that asks `requests` times for
/// `count` ids of the namespace `default`, and ends its requests.
pub fn grpc_stream(requests: usize, count: u32) -> Vec<u8> {
    let mut message = b"\x0a\x07default\x10".to_vec();
    let mut left = count;
    while left >= 0x80 {
        message.push(u8::try_from(left & 0x7f).expect("seven bits") | 0x80);
        left >>= 7;
    }
    message.push(u8::try_from(left).expect("seven bits"));
    let mut framed = vec![0, 0, 0, 0, u8::try_from(message.len()).expect("a short message")];
    framed.extend(message);
    grpc_call("/snowmint.v1.Snowmint/Stream", &framed.repeat(requests))
}

/// Returns the bytes of a connection with one call of this method. `body` is sent unchanged, whether it
/// contains messages or not.
pub fn grpc_call(method: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = OPENING.to_vec();
    bytes.extend(frame(HEADERS, END_HEADERS, &headers(method)));
    bytes.extend(frame(DATA, END_STREAM, body));
    bytes
}

/// Returns the headers of a call, uncompressed: known names by their number.
fn headers(path: &str) -> Vec<u8> {
    // POST and http.
    let mut headers = vec![0x83, 0x86];
    let values = [(&b"\x04"[..], path), (b"\x01", "localhost"), (b"\x0f\x10", "application/grpc")];
    for (name, value) in values.into_iter().chain([(&b"\0\x02te"[..], "trailers")]) {
        headers.extend(name);
        headers.push(u8::try_from(value.len()).expect("a short value"));
        headers.extend(value.as_bytes());
    }
    headers
}

/// A frame of the first call, or of the connection.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let stream = u8::from(matches!(kind, DATA | HEADERS));
    let mut frame = vec![len[1], len[2], len[3], kind, flags, 0, 0, 0, stream];
    frame.extend(payload);
    frame
}

/// A connection of gRPC.
#[derive(Debug)]
pub struct Grpc(TcpStream);

/// The result of a call of `Stream`.
#[derive(Clone, Debug, Default)]
pub struct Streamed {
    /// The ids of all responses.
    pub ids: Vec<u64>,
    /// The number of responses.
    pub responses: usize,
    /// Whether the server ended the call.
    pub ended: bool,
}

impl Grpc {
    /// Connects.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn connect(address: SocketAddrV4, patience: Duration) -> io::Result<Self> {
        connect(address, patience).map(Self)
    }

    /// Sends these bytes, such as [`grpc_stream`].
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Reads until the server closes.
    ///
    /// # Errors
    ///
    /// The error of the system, or an end within a frame or a message.
    ///
    /// # Panics
    ///
    /// If the server sends something other than gRPC.
    pub fn read_to_the_end(self) -> io::Result<Streamed> {
        self.read_until(|_| false)
    }

    /// Reads until the server ends the call.
    ///
    /// # Errors
    ///
    /// The error of the system, or an end within a frame or a message.
    ///
    /// # Panics
    ///
    /// If the server sends something other than gRPC.
    pub fn read_call(self) -> io::Result<Streamed> {
        self.read_until(|streamed| streamed.ended)
    }

    fn read_until(mut self, is_done: impl Fn(&Streamed) -> bool) -> io::Result<Streamed> {
        let (mut streamed, mut body) = (Streamed::default(), Vec::new());
        let cut = |what: &str| io::Error::new(ErrorKind::UnexpectedEof, format!("cut within a {what}"));
        let mut head = [0; 9];
        while !is_done(&streamed)
            && let Some(first) = self.byte()?
        {
            head[0] = first;
            self.0.read_exact(&mut head[1..]).map_err(|_| cut("frame"))?;
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; len as usize];
            self.0.read_exact(&mut payload).map_err(|_| cut("frame"))?;
            let (kind, flags) = (head[3], head[4]);
            match kind {
                DATA => body.extend(payload),
                HEADERS if flags & END_STREAM != 0 => streamed.ended = true,
                SETTINGS | PING if flags & ACK == 0 => {
                    let answer = if kind == PING { &payload[..] } else { &[] };
                    // The server may have closed already.
                    let _ = self.0.write_all(&frame(kind, ACK, answer));
                }
                _ => {}
            }
        }
        let mut rest = &body[..];
        while let Some((prefix, after)) = rest.split_first_chunk::<5>() {
            let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
            let (message, after) = after.split_at_checked(len).ok_or_else(|| cut("message"))?;
            // The field of ids and its length, then eight bytes an id.
            assert_eq!((prefix[0], message[0]), (0, 0x0a), "ids as numbers");
            let (ids, _) = message[message.len() % 8..].as_chunks::<8>();
            streamed.ids.extend(ids.iter().map(|id| u64::from_le_bytes(*id)));
            streamed.responses += 1;
            rest = after;
        }
        if rest.is_empty() { Ok(streamed) } else { Err(cut("message")) }
    }

    fn byte(&mut self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        Ok((self.0.read(&mut byte)? == 1).then_some(byte[0]))
    }
}

/// The bytes of one Thrift call of `get_id`, framed.
pub const THRIFT_GET_ID: &[u8] =
    b"\0\0\0\x1d\x80\x01\0\x01\0\0\0\x06get_id\0\0\0\x01\x0b\0\x01\0\0\0\x03web\0";

/// A connection of Thrift.
#[derive(Debug)]
pub struct Thrift(TcpStream);

impl Thrift {
    /// Connects.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn connect(address: SocketAddrV4, patience: Duration) -> io::Result<Self> {
        connect(address, patience).map(Self)
    }

    /// Sends these bytes, such as [`THRIFT_GET_ID`].
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Reads the next id; `None` at the end of the connection.
    ///
    /// # Errors
    ///
    /// The error of the system, or an end within a reply.
    ///
    /// # Panics
    ///
    /// If the reply is an exception.
    pub fn read_unless_closed(&mut self) -> io::Result<Option<u64>> {
        let mut len = [0; 4];
        if self.0.read(&mut len[..1])? == 0 {
            return Ok(None);
        }
        self.0.read_exact(&mut len[1..])?;
        let mut reply = vec![0; u32::from_be_bytes(len) as usize];
        self.0.read_exact(&mut reply)?;
        assert_eq!(reply.get(..4), Some(&b"\x80\x01\0\x02"[..]), "{}", String::from_utf8_lossy(&reply));
        let (rest, _) = reply.split_last_chunk::<1>().expect("a reply ends with a stop");
        let (_, id) = rest.split_last_chunk::<8>().expect("a reply has an id");
        Ok(Some(u64::from_be_bytes(*id)))
    }
}

fn connect(address: SocketAddrV4, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
