//! The requests of a client in each protocol, and the end of a response. Clients do as little work as
//! possible, so that the server on the same processors gets the rest.

/// A protocol with the request of a measurement.
#[derive(Clone, Debug)]
pub enum Wire {
    /// The Redis protocol: a command.
    Resp(Vec<u8>),
    /// HTTP/1.1: a request.
    Http(Vec<u8>),
    /// gRPC: the path of a method, and a message.
    Grpc(&'static str, Vec<u8>),
    /// Thrift: a message with its frame.
    Thrift(Vec<u8>),
}

/// The length of a response; `None` if more bytes are needed.
pub type Found = Result<Option<usize>, String>;

impl Wire {
    /// A command of the Redis protocol.
    pub fn resp(words: &[&str]) -> Self {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
        Self::Resp(bytes)
    }

    /// A GET over HTTP/1.1.
    pub fn http(path: &str) -> Self {
        Self::Http(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes())
    }

    /// A call over gRPC.
    pub fn grpc(path: &'static str, message: &impl prost::Message) -> Self {
        Self::Grpc(path, message.encode_to_vec())
    }

    /// Returns a call of `get_id(useragent)` in Twitter's interface.
    pub fn thrift(user_agent: &str) -> Self {
        let mut message = vec![0x80, 1, 0, 1, 0, 0, 0, 6];
        message.extend(b"get_id\0\0\0\x07\x0b\0\x01");
        message.extend((user_agent.len() as u32).to_be_bytes());
        message.extend(user_agent.bytes());
        message.push(0);
        let mut framed = (message.len() as u32).to_be_bytes().to_vec();
        framed.extend(message);
        Self::Thrift(framed)
    }

    /// Returns the first bytes of a new connection.
    pub fn greeting(&self) -> Vec<u8> {
        if !matches!(self, Self::Grpc(..)) {
            return Vec::new();
        }
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // No server push, and a window that no response fills.
        frame(&mut out, SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff]);
        frame(&mut out, WINDOW_UPDATE, 0, 0, &(MAX_WINDOW - FIRST_WINDOW).to_be_bytes());
        out
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_WINDOW: u32 = 0x7fff_ffff;
const FIRST_WINDOW: u32 = 65_535;
/// Number of received bytes after which the server gets a new window.
const NEW_WINDOW: u32 = 1 << 28;

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
}

/// The state of one connection: its open streams, and the bytes received for them.
#[derive(Debug)]
pub struct Dialogue {
    wire: Wire,
    /// The fields of a request's headers.
    headers: Vec<u8>,
    next_stream: u32,
    /// The open streams, with the bytes of their messages so far.
    streams: Vec<(u32, usize)>,
    /// Bytes received since the last new window.
    received: u32,
}

impl Dialogue {
    /// A new connection.
    pub fn new(wire: Wire) -> Self {
        let mut headers = Vec::new();
        if let Wire::Grpc(path, _) = &wire {
            // POST, http, then literals that are not indexed: path, authority, content-type and te.
            headers.extend([0x83, 0x86]);
            for (name, value) in
                [(&[0x04][..], *path), (&[0x01], "localhost"), (&[0x0f, 0x10], "application/grpc")]
            {
                headers.extend(name);
                headers.push(value.len() as u8);
                headers.extend(value.bytes());
            }
            headers.extend(b"\0\x02te\x08trailers");
        }
        Self { wire, headers, next_stream: 1, streams: Vec::new(), received: 0 }
    }

    /// Appends a request.
    pub fn ask(&mut self, out: &mut Vec<u8>) {
        match &self.wire {
            Wire::Resp(bytes) | Wire::Http(bytes) | Wire::Thrift(bytes) => out.extend(bytes),
            Wire::Grpc(_, message) => {
                let stream = self.next_stream;
                self.next_stream += 2;
                self.streams.push((stream, 0));
                frame(out, HEADERS, END_HEADERS, stream, &self.headers);
                let mut body = vec![0];
                body.extend((message.len() as u32).to_be_bytes());
                body.extend(message);
                frame(out, DATA, END_STREAM, stream, &body);
            }
        }
    }

    /// Reads the bytes that have arrived. Returns the number of processed bytes, and the number of complete
    /// responses.
    ///
    /// # Errors
    ///
    /// A request failed.
    pub fn read(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, usize), String> {
        let (mut at, mut responses) = (0, 0);
        while at < input.len() {
            let found = match &self.wire {
                Wire::Resp(_) => resp(&input[at..])?,
                Wire::Http(_) => http(&input[at..])?,
                Wire::Thrift(_) => thrift(&input[at..])?,
                Wire::Grpc(..) => match self.frame(&input[at..], out)? {
                    Some((len, ended)) => {
                        at += len;
                        responses += usize::from(ended);
                        continue;
                    }
                    None => None,
                },
            };
            let Some(len) = found else { break };
            at += len;
            responses += 1;
        }
        Ok((at, responses))
    }

    /// Reads one HTTP/2 frame. Returns its length, and whether a response ended.
    fn frame(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Option<(usize, bool)>, String> {
        let Some(head) = input.first_chunk::<9>() else { return Ok(None) };
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some(payload) = input.get(9..9 + len) else { return Ok(None) };
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut ended = false;
        match kind {
            SETTINGS if flags & ACK == 0 => frame(out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(out, PING, ACK, 0, payload),
            GOAWAY => return Err("the server closes the connection".into()),
            RST_STREAM => return Err(format!("the server reset a call: {payload:?}")),
            DATA | HEADERS => {
                let at = self.streams.iter().position(|(open, _)| *open == stream);
                let at = at.ok_or_else(|| format!("stream {stream} is not open"))?;
                if kind == DATA {
                    self.streams[at].1 += len;
                    self.received += len as u32;
                    if self.received >= NEW_WINDOW {
                        frame(out, WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
                        self.received = 0;
                    }
                }
                if flags & END_STREAM != 0 {
                    ended = true;
                    // A failed call has only headers.
                    if self.streams.swap_remove(at).1 == 0 {
                        return Err(format!("a call failed: {}", String::from_utf8_lossy(payload)));
                    }
                }
            }
            _ => {}
        }
        Ok(Some((9 + len, ended)))
    }
}

fn failed(reply: &[u8]) -> String {
    format!("a request failed: {}", String::from_utf8_lossy(&reply[..reply.len().min(200)]))
}

/// Returns the length of the reply at the start of `input`.
fn resp(input: &[u8]) -> Found {
    // Nearly all replies look like this.
    if input.starts_with(b"$19\r\n") {
        return Ok((input.len() >= 26).then_some(26));
    }
    let Some(end) = input.iter().position(|byte| *byte == b'\n').map(|at| at + 1) else { return Ok(None) };
    let number = || {
        let digits = std::str::from_utf8(&input[1..end - 2]).unwrap_or_default();
        digits.parse::<usize>().map_err(|_| failed(input))
    };
    match input[0] {
        b'+' | b':' => Ok(Some(end)),
        b'$' => {
            let all = end + number()? + 2;
            Ok((input.len() >= all).then_some(all))
        }
        b'*' => {
            let mut at = end;
            for _ in 0..number()? {
                if at >= input.len() {
                    return Ok(None);
                }
                let Some(len) = resp(&input[at..])? else { return Ok(None) };
                at += len;
            }
            Ok(Some(at))
        }
        _ => Err(failed(input)),
    }
}

/// Returns the length of the response at the start of `input`.
fn http(input: &[u8]) -> Found {
    let Some(head) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(None) };
    if !input.starts_with(b"HTTP/1.1 200") {
        return Err(failed(input));
    }
    let body = head + 4;
    for line in input[..head].split(|byte| *byte == b'\n').skip(1) {
        if let Some(length) = line.strip_prefix(b"content-length: ") {
            let length =
                std::str::from_utf8(length.trim_ascii()).ok().and_then(|length| length.parse::<usize>().ok());
            let all = body + length.ok_or_else(|| failed(input))?;
            return Ok((input.len() >= all).then_some(all));
        }
    }
    let mut at = body;
    loop {
        let Some(end) = input[at..].iter().position(|byte| *byte == b'\n').map(|end| at + end + 1) else {
            return Ok(None);
        };
        let digits = std::str::from_utf8(input[at..end].trim_ascii()).unwrap_or_default();
        let len = usize::from_str_radix(digits, 16).map_err(|_| failed(input))?;
        at = end + len + 2;
        if at > input.len() {
            return Ok(None);
        }
        if len == 0 {
            return Ok(Some(at));
        }
    }
}

/// Returns the length of the framed message at the start of `input`.
fn thrift(input: &[u8]) -> Found {
    let Some(head) = input.first_chunk::<4>() else { return Ok(None) };
    let all = 4 + u32::from_be_bytes(*head) as usize;
    let Some(message) = input.get(4..all) else { return Ok(None) };
    // A reply; an exception has type 3.
    if message.starts_with(&[0x80, 1, 0, 2]) { Ok(Some(all)) } else { Err(failed(message)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each response is found exactly once, wherever the bytes are split.
    #[test]
    fn responses_end_where_they_end() {
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let mut grpc = Vec::new();
        frame(&mut grpc, SETTINGS, 0, 0, &[]);
        frame(&mut grpc, HEADERS, END_HEADERS, 1, b"\x88");
        frame(&mut grpc, DATA, 0, 1, b"\0\0\0\0\0");
        frame(&mut grpc, HEADERS, END_HEADERS | END_STREAM, 1, b"\x88");
        let responses: [(Wire, &[u8]); 9] = [
            (Wire::resp(&["PING"]), b"+PONG\r\n"),
            (Wire::resp(&["INCR", "a"]), b":12\r\n"),
            (Wire::resp(&["ID.NEXT", "a"]), b"$19\r\n1541815603606036480\r\n"),
            (Wire::resp(&["ID.NEXT", "a"]), b"$2\r\n12\r\n"),
            (
                Wire::resp(&["ID.RANGE", "a"]),
                b"*2\r\n*3\r\n$1\r\n7\r\n:5\r\n:1\r\n*3\r\n$1\r\n7\r\n:5\r\n:1\r\n",
            ),
            (Wire::http("/"), b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"),
            (Wire::http("/"), chunked),
            (Wire::thrift("a"), b"\0\0\0\x05\x80\x01\0\x02\0"),
            (Wire::grpc("/a", &()), &grpc),
        ];
        for (wire, response) in responses {
            let mut dialogue = Dialogue::new(wire.clone());
            let mut out = Vec::new();
            dialogue.ask(&mut out);
            for cut in 0..response.len() {
                let (mut cold, mut ignored) = (Dialogue::new(wire.clone()), Vec::new());
                cold.ask(&mut ignored);
                let (done, ended) = cold.read(&response[..cut], &mut ignored).unwrap();
                assert!(done <= cut && ended == 0, "{wire:?} {cut}");
            }
            assert_eq!(dialogue.read(response, &mut out), Ok((response.len(), 1)), "{wire:?}");
        }
    }

    #[test]
    fn failures_are_errors() {
        let mut failed_call = Vec::new();
        frame(&mut failed_call, HEADERS, END_HEADERS | END_STREAM, 1, b"\x88");
        let failures: [(Wire, &[u8]); 5] = [
            (Wire::resp(&["PING"]), b"-ERR no\r\n"),
            (Wire::resp(&["PING"]), b"*1\r\n-ERR no\r\n"),
            (Wire::http("/"), b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"),
            (Wire::thrift("a"), b"\0\0\0\x05\x80\x01\0\x03\0"),
            (Wire::grpc("/a", &()), &failed_call),
        ];
        for (wire, response) in failures {
            let mut dialogue = Dialogue::new(wire);
            dialogue.ask(&mut Vec::new());
            assert!(dialogue.read(response, &mut Vec::new()).is_err(), "{response:?}");
        }
    }
}
